"""The evidence directory: nothing is overwritten, nothing is half written, and a full disk does not stop the watch."""

import errno
import hashlib
import stat

import pytest

from hangdrill.collector import store as store_module
from hangdrill.collector.control import RankKey
from hangdrill.collector.events import EventName
from hangdrill.collector.store import EvidenceStore, write_atomically
from hangdrill.model.errors import ExitCode, MachineError, UsageError
from hangdrill.model.run import Artifact, ArtifactKind, Manifest, PullReason, RankPull

KEY = RankKey(0, 1)


def add(store, data, key=KEY, road="handler"):
    return store.add(key, ArtifactKind.DUMP, data, road=road, reason=PullReason.STALL, name="dump", extension="pickle")


def read(directory):
    import msgspec

    return msgspec.json.decode((directory / "manifest.json").read_bytes(), type=Manifest)


def test_an_artifact_is_on_the_disk_as_the_manifest_says(tmp_path):
    store = EvidenceStore(tmp_path, run_id="a", world_size=4)
    artifact = add(store, b"evidence")
    assert read(tmp_path) == store.manifest == Manifest(run_id="a", world_size=4, artifacts=(artifact,))
    assert artifact == Artifact(
        rank=1,
        kind=ArtifactKind.DUMP,
        road="handler",
        path="rank_1.a0.dump.pickle",
        bytes=8,
        sha256=hashlib.sha256(b"evidence").hexdigest(),
        pulled_ns=artifact.pulled_ns,
        reason=PullReason.STALL,
    )
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", "rank_1.a0.dump.pickle"}


def test_a_second_file_gets_a_name_of_its_own(tmp_path):
    store = EvidenceStore(tmp_path)
    names = [add(store, data).path for data in (b"first", b"second", b"third")]
    assert names == ["rank_1.a0.dump.pickle", "rank_1.a0.dump.2.pickle", "rank_1.a0.dump.3.pickle"]
    assert (tmp_path / names[0]).read_bytes() == b"first"


def test_a_file_that_nobody_listed_is_not_overwritten_either(tmp_path):
    (tmp_path / "rank_1.a0.dump.pickle").write_bytes(b"somebody's")
    assert add(EvidenceStore(tmp_path), b"ours").path == "rank_1.a0.dump.2.pickle"
    assert (tmp_path / "rank_1.a0.dump.pickle").read_bytes() == b"somebody's"


def test_attempts_do_not_share_names(tmp_path):
    store = EvidenceStore(tmp_path)
    assert [add(store, b"x", RankKey(k, 1)).path for k in (0, 1)] == ["rank_1.a0.dump.pickle", "rank_1.a1.dump.pickle"]


def test_a_job_that_stalls_for_days_does_not_fill_the_disk(tmp_path):
    store = EvidenceStore(tmp_path)
    added = [add(store, b"x") for _ in range(20)]
    assert sum(artifact is not None for artifact in added) == 8
    assert add(store, b"x", RankKey(0, 2)) is not None, "another rank has room"


def test_the_same_run_goes_on_and_another_run_is_refused(tmp_path):
    first = add(EvidenceStore(tmp_path, run_id="a"), b"x")
    again = EvidenceStore(tmp_path, run_id="a", world_size=2)
    assert again.manifest == Manifest(run_id="a", world_size=2, artifacts=(first,))
    for other in ("b", ""):
        with pytest.raises(UsageError, match="evidence of another run"):
            EvidenceStore(tmp_path, run_id=other)


def test_a_manifest_that_is_none_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UsageError, match="not a manifest"):
        EvidenceStore(tmp_path, run_id="a")


def test_a_rank_is_listed_once_with_the_last_that_was_seen(tmp_path):
    store = EvidenceStore(tmp_path)
    store.record([RankPull(rank=2), RankPull(rank=0)])
    store.record([RankPull(rank=2, pid=7)])
    assert read(tmp_path).ranks == (RankPull(rank=0), RankPull(rank=2, pid=7))


def test_nothing_new_to_record_is_not_written(tmp_path):
    store = EvidenceStore(tmp_path)
    store.record([RankPull(rank=0)])
    before = (tmp_path / "manifest.json").stat().st_ino
    store.record([RankPull(rank=0)])
    assert (tmp_path / "manifest.json").stat().st_ino == before


def test_a_full_disk_is_kept_as_the_failure_and_leaves_no_half_file(tmp_path, monkeypatch):
    store = EvidenceStore(tmp_path)
    kept = add(store, b"before")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "_write_all", full)
    assert add(store, b"after") is None
    assert isinstance(store.failure, MachineError)
    assert store.failure.exit_code is ExitCode.MACHINE
    assert "No space left on device" in str(store.failure)
    assert store.manifest.artifacts == (kept,)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "rank_1.a0.dump.pickle"]


def test_a_directory_that_is_gone_is_a_failure_and_no_exception(tmp_path):
    directory = tmp_path / "evidence"
    directory.mkdir()
    store = EvidenceStore(directory)
    directory.rmdir()
    store.event(EventName.WATCHING)
    assert add(store, b"x") is None
    assert store.failure is not None


def test_an_event_is_a_line(tmp_path):
    store = EvidenceStore(tmp_path)
    store.event(EventName.PULLED, rank=3, detail="two\nlines")
    store.event(EventName.COMPLETE)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert ['"rank":3' in line for line in lines] == [True, False]


def test_replacing_a_file_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "manifest.json"
    write_atomically(path, b"old")

    def fails(_descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(store_module.os, "fsync", fails)
    with pytest.raises(OSError, match="Input/output"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
