"""A copy of a checkpoint appears whole and equal, or not at all."""

import errno

import pytest

from hangdrill.certify import checkpoint_files
from hangdrill.certify.checkpoint_files import changes_since, duplicate, list_files, sum_files
from hangdrill.model.errors import MachineError, UsageError


@pytest.fixture
def source(tmp_path):
    directory = tmp_path / "source"
    (directory / "sub").mkdir(parents=True)
    (directory / ".metadata").write_bytes(b"m" * 10)
    (directory / "sub" / "shard").write_bytes(b"s" * (3 << 20))
    return directory


def test_a_copy_has_every_file_with_an_equal_hash(source, tmp_path):
    assert duplicate(source, tmp_path / "kept" / "copy") == sum_files(source) == sum_files(tmp_path / "kept" / "copy")


def test_a_copy_never_overwrites(source, tmp_path):
    (tmp_path / "copy").mkdir()
    with pytest.raises(UsageError, match="never overwrites"):
        duplicate(source, tmp_path / "copy")


def test_an_empty_source_is_no_checkpoint(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no file to copy"):
        duplicate(tmp_path / "empty", tmp_path / "copy")


def test_a_source_that_is_gone_is_the_machines_fault(tmp_path):
    with pytest.raises(MachineError, match="cannot list"):
        duplicate(tmp_path / "gone", tmp_path / "copy")


def test_a_copy_that_differs_is_refused_and_leaves_nothing(source, tmp_path, monkeypatch):
    honest = checkpoint_files._copy

    def lying(origin, to, path):
        known = honest(origin, to, path)
        (to / path).write_bytes(b"x" * known.bytes)
        return known

    monkeypatch.setattr(checkpoint_files, "_copy", lying)
    with pytest.raises(MachineError, match=r"the copy is not equal: \.metadata is not what was saved"):
        duplicate(source, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_full_disk_leaves_no_directory_that_was_made_for_the_copy(source, tmp_path, monkeypatch):
    def full(origin, to, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint_files, "_copy", full)
    (tmp_path / "kept").mkdir()
    for to in ("a/b/copy", "kept/c/copy"):
        with pytest.raises(MachineError, match="No space left"):
            duplicate(source, tmp_path / to)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "source"]
    assert not list((tmp_path / "kept").iterdir())


def test_changes_name_what_is_missing_cut_and_altered(source):
    manifest = sum_files(source)
    assert changes_since(source, manifest).lost == ()
    (source / ".metadata").unlink()
    (source / "sub" / "shard").write_bytes(b"s" * 5)
    assert changes_since(source, manifest).lost == (
        ".metadata is missing",
        f"sub/shard is cut: 5 of {3 << 20} bytes",
    )
    (source / "sub" / "shard").write_bytes(b"t" * (3 << 20))
    assert changes_since(source, manifest).altered == ("sub/shard is not what was saved: its sha256 differs",)


def test_only_regular_files_are_of_a_checkpoint(source):
    import os

    os.mkfifo(source / "fifo")
    assert [str(path) for path in list_files(source)] == [".metadata", "sub/shard"]
