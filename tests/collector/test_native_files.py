"""Files that torch wrote by itself: copied byte for byte once they are whole, never touched, never replaced by less."""

import hashlib

from fake_plane import dump

from hangdrill.collector.control import RankKey
from hangdrill.collector.native import NativeFile, copy_native
from hangdrill.collector.store import EvidenceStore
from hangdrill.model.run import PullReason

KEY = RankKey(0, 3)


def setting(tmp_path):
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    return str(tmp_path / "fr_"), EvidenceStore(evidence)


def look(native, store, **changes):
    return native.copy_when_whole(store, KEY, **{"not_before_ns": 0, "reason": PullReason.STALL, **changes})


def names(store):
    return [artifact.path for artifact in store.manifest.artifacts]


def test_a_whole_file_is_copied_at_once_and_left_as_it_is(tmp_path):
    prefix, store = setting(tmp_path)
    original = tmp_path / "fr_3"
    original.write_bytes(dump(5))
    before = original.stat()
    assert look(NativeFile(prefix, 3), store)
    copy = store.directory / "rank_3.a0.native.pickle"
    assert copy.read_bytes() == original.read_bytes()
    assert (original.stat().st_ino, original.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    (artifact,) = store.manifest.artifacts
    assert (artifact.road, artifact.sha256) == ("native", hashlib.sha256(copy.read_bytes()).hexdigest())


def test_a_file_that_is_being_written_is_left_until_two_looks_agree(tmp_path):
    prefix, store = setting(tmp_path)
    native, path, whole = NativeFile(prefix, 3), tmp_path / "fr_3", dump(5)
    path.write_bytes(whole[:100])
    assert not look(native, store)
    path.write_bytes(whole[:200])
    assert not look(native, store), "it grows"
    path.write_bytes(whole)
    assert look(native, store)
    assert names(store) == ["rank_3.a0.native.pickle"]


def test_a_file_that_stays_cut_is_evidence_too(tmp_path):
    prefix, store = setting(tmp_path)
    native = NativeFile(prefix, 3)
    (tmp_path / "fr_3").write_bytes(dump(5)[:100])
    assert not look(native, store)
    assert look(native, store)


def test_at_the_last_look_a_cut_file_is_taken_at_once(tmp_path):
    prefix, store = setting(tmp_path)
    (tmp_path / "fr_3").write_bytes(dump(5)[:100])
    assert look(NativeFile(prefix, 3), store, even_cut=True)


def test_a_file_of_an_earlier_job_is_no_evidence_of_this_one(tmp_path):
    prefix, store = setting(tmp_path)
    path = tmp_path / "fr_3"
    path.write_bytes(dump(5))
    later = path.stat().st_mtime_ns + 1
    assert not look(NativeFile(prefix, 3), store, not_before_ns=later)
    assert look(NativeFile(prefix, 3), store, not_before_ns=later - 1)


def test_a_poorer_file_written_over_it_adds_nothing_and_a_richer_one_does(tmp_path):
    prefix, store = setting(tmp_path)
    native, path = NativeFile(prefix, 3), tmp_path / "fr_3"
    for entries, copied in ((5, True), (5, False), (2, False), (9, True)):
        path.write_bytes(dump(entries))
        assert look(native, store) is copied, entries
    assert names(store) == ["rank_3.a0.native.pickle", "rank_3.a0.native.2.pickle"]


def test_the_drill_copies_what_there_is_and_goes_on_with_the_manifest(tmp_path):
    for rank in (0, 2):
        (tmp_path / f"fr_{rank}").write_bytes(dump(rank + 1))
    (tmp_path / "fr_1").write_bytes(b"")
    prefix, evidence = str(tmp_path / "fr_"), tmp_path / "evidence"
    manifest = copy_native(prefix, range(4), evidence, run_id="hd-1", road="debug-server")
    assert [(a.rank, a.path, a.road) for a in manifest.artifacts] == [
        (0, "rank_0.a0.native.pickle", "debug-server"),
        (2, "rank_2.a0.native.pickle", "debug-server"),
    ]
    again = copy_native(prefix, [3], evidence, attempt=1, run_id="hd-1")
    assert again.artifacts == manifest.artifacts
    assert copy_native(prefix, range(4), evidence, run_id="hd-1") == manifest, "a second call adds nothing"


def test_nothing_there_is_an_empty_manifest(tmp_path):
    manifest = copy_native(str(tmp_path / "fr_"), range(4), tmp_path / "evidence", run_id="hd-1")
    assert manifest.artifacts == ()
    assert (tmp_path / "evidence" / "manifest.json").is_file()
