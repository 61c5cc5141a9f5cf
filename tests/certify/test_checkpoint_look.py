"""A checkpoint's files: whole, partial or damaged, each in its own words, and never taken for version trouble."""

import os
import pickle

import pytest
from checkpoint_cases import load_weight, old_form, save_alone

from hangdrill.certify import checkpoint_metadata, checkpoint_pickle
from hangdrill.certify.checkpoint_controls import PLANTS, copy_of, file_controls, flip_byte
from hangdrill.certify.checkpoint_files import sum_files
from hangdrill.certify.checkpoint_look import CheckpointState, look
from hangdrill.certify.checkpoint_metadata import MetadataError, read_metadata
from hangdrill.model.verdict import Verdict


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoint") / "whole"
    save_alone(directory)
    return directory


@pytest.fixture
def broken(whole, tmp_path):
    return copy_of(whole, tmp_path / "broken")


def test_a_whole_checkpoint_is_whole_with_and_without_its_manifest(whole):
    found = look(whole)
    assert (found.state, found.problems, found.parts, found.unproven) == (CheckpointState.WHOLE, (), 4, 0)
    assert look(whole, sum_files(whole)).is_whole


@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.parametrize("with_manifest", [False, True])
def test_each_planted_damage_is_called_what_it_is(whole, broken, name, with_manifest):
    plant, expected, _ = PLANTS[name]
    what = plant(broken)
    found = look(broken, sum_files(whole) if with_manifest else None)
    assert found.state is expected
    assert what.partition(",")[0] in found.problems[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("flipped-byte", "checksum"),
        ("missing-shard", "is missing"),
        ("cut-shard", "is cut"),
        ("unfinished", "the save did not end"),
    ],
)
def test_each_damage_has_its_own_words(broken, name, words):
    PLANTS[name][0](broken)
    assert words in look(broken).problems[0]


def test_torch_itself_restores_a_flipped_byte_without_a_word(broken):
    """Why the checksums are looked at here."""
    before = load_weight(broken)
    flip_byte(broken, "model.weight")
    assert not before.equal(load_weight(broken))


def test_a_cut_metadata_is_partial_and_a_changed_one_is_damaged(broken):
    path = broken / ".metadata"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert look(broken).state is CheckpointState.PARTIAL
    path.write_bytes(b"\x80\x04not a pickle.")
    assert look(broken).state is CheckpointState.DAMAGED
    path.write_bytes(pickle.dumps({"model": 1}))
    assert look(broken).problems == (".metadata: it says nothing of stored tensors",)


def test_a_changed_metadata_is_damage_when_the_manifest_is_there(whole, broken):
    path = broken / ".metadata"
    path.write_bytes(path.read_bytes() + b"\0")
    found = look(broken, sum_files(whole))
    assert found.state is CheckpointState.DAMAGED
    assert ".metadata is not what was saved" in found.problems[0]


def too_large_a_file(checkpoint, monkeypatch):
    """A file with a hole in it: it takes no place on the disk, and nobody may read it."""
    os.truncate(checkpoint / ".metadata", checkpoint_metadata.MAX_METADATA_BYTES + 1)


def too_many_values(checkpoint, monkeypatch):
    """The whole file, where less memory may be taken than its values are estimated at."""
    monkeypatch.setattr(checkpoint_pickle, "MOST_MADE_BYTES", 1000)


@pytest.mark.parametrize("enlarge", [too_large_a_file, too_many_values])
def test_a_metadata_that_is_too_large_to_be_read_is_unknown_and_not_damaged(broken, monkeypatch, enlarge):
    assert look(broken).is_whole  # the control
    enlarge(broken, monkeypatch)
    found = look(broken)
    assert found.state is CheckpointState.UNKNOWN
    assert "at most" in found.problems[0]
    assert "restore it with the stack that saved it" in found.next_step


def test_a_metadata_of_just_the_largest_size_is_read(broken, monkeypatch):
    size = (broken / ".metadata").stat().st_size
    monkeypatch.setattr(checkpoint_metadata, "MAX_METADATA_BYTES", size)
    assert look(broken).is_whole
    monkeypatch.setattr(checkpoint_metadata, "MAX_METADATA_BYTES", size - 1)
    assert look(broken).state is CheckpointState.UNKNOWN


def test_one_that_is_too_large_and_as_it_was_saved_is_whole(whole, broken, monkeypatch):
    too_many_values(broken, monkeypatch)
    assert look(broken, sum_files(whole)) == look(whole, sum_files(whole))
    assert look(broken, sum_files(whole)).is_whole


def test_a_metadata_that_cannot_be_read_is_unknown(broken):
    """The memory of a process is a file whose first page cannot be read, whoever asks."""
    (broken / ".metadata").unlink()
    (broken / ".metadata").symlink_to("/proc/self/mem")
    found = look(broken)
    assert (found.state, found.problems) == (CheckpointState.UNKNOWN, (".metadata cannot be read: Input/output error",))
    assert found.next_step


def test_other_files_beside_a_checkpoint_are_nobodys_business(whole, broken):
    (broken / "train_log.txt").write_text("loss 0.1")
    assert look(broken, sum_files(whole)).is_whole


def test_a_directory_without_any_part_of_a_checkpoint_is_none(tmp_path):
    assert look(tmp_path).state is CheckpointState.ELSE
    assert look(tmp_path / "gone").state is CheckpointState.ELSE


def test_nothing_in_a_hostile_metadata_is_run(broken, tmp_path):
    class Hostile:
        def __reduce__(self):
            return (open, (str(tmp_path / "run"), "w"))

    (broken / ".metadata").write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(MetadataError):
        read_metadata(broken / ".metadata")
    assert not (tmp_path / "run").exists()


def test_the_form_of_an_older_torch_is_told_from_that_of_2_15(tmp_path):
    save_alone(tmp_path / "new")
    with old_form():
        save_alone(tmp_path / "old")
    assert (look(tmp_path / "new").form, look(tmp_path / "old").form) == ("2.15", "2.14")


def test_the_file_controls_hold_on_a_whole_checkpoint(whole, tmp_path):
    controls = file_controls(whole, tmp_path)
    assert [control.held for control in controls] == [True] * 4


def test_a_control_whose_damage_is_not_found_does_not_hold(whole, tmp_path, monkeypatch):
    monkeypatch.setitem(PLANTS, "flipped-byte", (lambda directory: "nothing", *PLANTS["flipped-byte"][1:]))
    controls = {control.name: control for control in file_controls(whole, tmp_path)}
    assert controls["checkpoint/flipped-byte"].got is Verdict.PASS
    assert not controls["checkpoint/flipped-byte"].held
