"""A copy that is kept holds everything: what links lead to, and nothing that lies elsewhere or was cut meanwhile."""

import pickle

import pytest
from checkpoint_cases import save_alone

from hangdrill.certify import checkpoint_files
from hangdrill.certify.checkpoint_files import duplicate, list_files
from hangdrill.certify.checkpoint_look import CheckpointState, look
from hangdrill.cli import run_command
from hangdrill.model.errors import ExitCode, UsageError

SHARD = "__0_0.distcp"


@pytest.fixture
def whole(tmp_path):
    save_alone(tmp_path / "whole")
    return tmp_path / "whole"


def store_at(checkpoint, path):
    """Let `.metadata` say that every shard is stored at this path."""
    stored = pickle.loads((checkpoint / ".metadata").read_bytes())
    for info in stored.storage_data.values():
        info.relative_path = path
    (checkpoint / ".metadata").write_bytes(pickle.dumps(stored))


@pytest.mark.parametrize("path", ["../elsewhere/shard", "/elsewhere/shard", "a/../../shard"])
def test_a_shard_outside_of_the_checkpoint_makes_it_no_whole_one(whole, path):
    store_at(whole, path)
    found = look(whole)
    assert found.state is CheckpointState.DAMAGED
    assert "stored outside of the checkpoint" in found.problems[0]


def test_a_shard_behind_a_link_to_a_directory_is_copied(whole, tmp_path):
    (tmp_path / "fast-disk").mkdir()
    (whole / SHARD).rename(tmp_path / "fast-disk" / SHARD)
    (whole / "shards").symlink_to(tmp_path / "fast-disk")
    store_at(whole, f"shards/{SHARD}")
    assert look(whole).is_whole
    assert run_command(["checkpoint", "duplicate", str(whole), str(tmp_path / "copy")]) == ExitCode.PASS
    (tmp_path / "fast-disk" / SHARD).unlink()
    assert look(tmp_path / "copy").is_whole


def test_links_in_a_circle_end(whole):
    (whole / "again").symlink_to(whole)
    (whole / "up").symlink_to(whole.parent)
    assert [str(path) for path in list_files(whole)] == [".metadata", SHARD]


def test_a_checkpoint_that_is_cut_while_it_is_copied_is_not_kept(whole, tmp_path, capsys, monkeypatch):
    honest = checkpoint_files._copy

    def late(source, to, path):
        (source / SHARD).write_bytes(b"the next save has begun")
        return honest(source, to, path)

    monkeypatch.setattr(checkpoint_files, "_copy", late)
    assert run_command(["checkpoint", "duplicate", str(whole), str(tmp_path / "copy")]) == ExitCode.USAGE
    assert "its copy is partial" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


@pytest.mark.parametrize("inside", ["inner", "a/b"])
def test_a_copy_within_the_checkpoint_is_refused(whole, inside):
    with pytest.raises(UsageError, match="deleted with it"):
        duplicate(whole, whole / inside)
    assert [str(path) for path in list_files(whole)] == [".metadata", SHARD]


def test_a_link_to_nowhere_is_not_overwritten(whole, tmp_path):
    (tmp_path / "copy").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="never overwrites"):
        duplicate(whole, tmp_path / "copy")


def test_a_way_up_is_no_name_of_a_copy(whole, tmp_path):
    with pytest.raises(UsageError, match="name a new directory"):
        duplicate(whole, tmp_path / "gone" / "..")
    assert not (tmp_path / "gone").exists()
