"""What a rank notes of a state is its bytes, and what is compared is every tensor and every value of every rank."""

import hashlib
import json

import pytest

from hangdrill.certify.checkpoint_notes import Note, TensorNote, differences, read_notes, size_text


def note(rank=0, *, tensors=None, values=None):
    return Note(
        schema="hangdrill.checkpoint-note/1",
        rank=rank,
        world_size=2,
        torch="2.15.0",
        outcome="done",
        tensors=tensors if tensors is not None else {"w": tensor()},
        values=values if values is not None else {"step": "3"},
    )


def tensor(sha256="aa", shape=(2,), dtype="torch.float32", **more):
    return TensorNote(shape=shape, dtype=dtype, sha256=sha256, **more)


def test_equal_notes_have_no_difference():
    saved = {0: note(0), 1: note(1)}
    assert differences(saved, saved) == ()
    assert size_text(saved) == "2 tensors and 2 values of 2 ranks"


@pytest.mark.parametrize(
    ("restored", "words"),
    [
        (note(1, tensors={"w": tensor("bb")}), "rank 1: w has other bytes"),
        (note(1, tensors={"w": tensor(shape=(1, 2))}), "rank 1: w has another shape, dtype or placement"),
        (note(1, tensors={"w": tensor(dtype="torch.int32")}), "rank 1: w has another shape, dtype or placement"),
        (note(1, tensors={"w": tensor(placements=("S(0)",))}), "rank 1: w has another shape, dtype or placement"),
        (note(1, tensors={}), "rank 1: w was not restored"),
        (note(1, values={"step": "2"}), "rank 1: step is 2, and 3 was saved"),
        (note(1, values={}), "rank 1: step was not restored"),
        (None, "rank 1 noted nothing that it restored"),
    ],
)
def test_one_difference_on_one_rank_is_named(restored, words):
    saved = {0: note(0), 1: note(1)}
    found = {0: note(0)} | ({1: restored} if restored is not None else {})
    assert differences(saved, found) == (words,)


def test_what_only_the_newer_torch_has_is_no_difference():
    newer = note(0, values={"step": "3", "optimizer.param_groups.0.new_option": "False"})
    assert differences({0: note(0)}, {0: newer}) == ()


def test_many_differences_are_counted():
    saved = {0: note(0, tensors={str(number): tensor() for number in range(9)})}
    found = differences(saved, {0: note(0, tensors={})})
    assert len(found) == 5
    assert found[-1] == "and 5 more"


def test_a_note_that_cannot_be_read_is_none(tmp_path):
    (tmp_path / "x.rank0.json").write_text("{")
    (tmp_path / "x.rank1.json").write_text('{"schema": "hangdrill.checkpoint-note/2"}')
    assert read_notes(tmp_path / "x") == {}


def test_a_tensor_is_hashed_by_its_elements_in_order(tmp_path):
    torch = pytest.importorskip("torch")
    from hangdrill.rank.checkpoint import record

    base = torch.arange(12, dtype=torch.int64).reshape(3, 4)
    state = {
        "turned": base.t(),
        "nested": {"list": [base, {"scalar": torch.tensor(7, dtype=torch.int64)}], "empty": torch.zeros(0)},
        "half": torch.ones(2, dtype=torch.bfloat16),
        "step": 3,
        "betas": (0.9, 0.999),
        "thing": object(),
    }
    environ = {"HANGDRILL_CHECKPOINT_NOTE": str(tmp_path / "n"), "RANK": "1", "WORLD_SIZE": "2"}
    record(state, environ=environ)
    found = read_notes(tmp_path / "n")[1]
    bytes_of = {
        "turned": b"".join(value.to_bytes(8, "little") for value in (0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11)),
        "nested.list.0": b"".join(value.to_bytes(8, "little") for value in range(12)),
        "nested.list.1.scalar": (7).to_bytes(8, "little"),
        "nested.empty": b"",
        "half": b"\x80\x3f\x80\x3f",
    }
    assert {name: about.sha256 for name, about in found.tensors.items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in bytes_of.items()
    }
    assert found.values == {"step": "3", "betas": "[0.9, 0.999]", "thing": "<builtins.object>"}
    assert found.tensors["turned"].shape == (4, 3)


def test_one_other_bit_is_another_hash(tmp_path):
    torch = pytest.importorskip("torch")
    from hangdrill.rank.checkpoint import record

    values = torch.ones(4)
    for name, state in (("a", {"w": values}), ("b", {"w": torch.nextafter(values, torch.tensor(2.0))})):
        record(state, environ={"HANGDRILL_CHECKPOINT_NOTE": str(tmp_path / name)})
    assert differences(read_notes(tmp_path / "a"), read_notes(tmp_path / "b")) == ("rank 0: w has other bytes",)


def test_record_does_nothing_outside_of_a_drill(tmp_path):
    pytest.importorskip("torch")
    from hangdrill.rank.checkpoint import record

    record({"step": 1}, environ={})
    assert list(tmp_path.iterdir()) == []


def test_a_note_appears_whole_and_for_its_owner_only(tmp_path):
    pytest.importorskip("torch")
    from hangdrill.rank.checkpoint import record

    record({"step": 1}, environ={"HANGDRILL_CHECKPOINT_NOTE": str(tmp_path / "n")})
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["values"] == {"step": "1"}
