"""Which file is whose dump: names, duplicates, what is passed over, and the manifest's word above the names'."""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest
from hostile_pickles import entry, pickled, write

from hangdrill.model.run import Artifact, ArtifactKind, Manifest, PullReason, RankPull
from hangdrill.recorder import (
    DumpError,
    DumpFiles,
    DumpJob,
    DuplicateRank,
    Outcome,
    find_dumps,
    merge_evidence,
    open_place,
    read_dump,
    read_evidence,
)

DUMP = pickled(entry())


def found_at(path: Path, prefix: str | None = None) -> DumpFiles:
    return find_dumps(open_place(path), prefix=prefix)


def test_dumps_are_found_and_the_rest_is_listed_with_the_reason(tmp_path: Path) -> None:
    names = {"fr_1": DUMP, "fr_0": DUMP, "notes_2024": b"text", "trace_5": DUMP, "fr_2DOTtmp": DUMP,
             "DOThidden_3": DUMP, "jobDOTlog": b"", "README": b"", "rank_8DOTjson": b'{"loss": 1}'}  # fmt: skip
    found = found_at(write(tmp_path, **names))
    assert found.files == {0: ("fr_0",), 1: ("fr_1",), 5: ("trace_5",)}
    assert {Path(file.path).name: file.reason for file in found.ignored} == {
        ".hidden_3": "a temporary or hidden file",
        "README": "its name says no rank",
        "fr_2.tmp": "a temporary or hidden file",
        "job.log": "not a dump by its name",
        "notes_2024": "neither its name nor its first bytes are a dump's",
        "rank_8.json": "neither its name nor its first bytes are a dump's",
    }
    assert found.duplicates == ()


def test_a_recorders_name_is_believed_whatever_is_in_the_file(tmp_path: Path) -> None:
    """An empty or broken file of that name is evidence: somebody meant to write a dump."""
    assert list(found_at(write(tmp_path, fr_0=b"", _dump_1=b"junk")).files) == [0, 1]


def test_two_files_of_one_rank_are_both_kept_and_said(tmp_path: Path) -> None:
    found = found_at(write(tmp_path, a__fr_0=DUMP, b__fr_0=DUMP, b__fr_1=DUMP))
    assert found.files[0] == ("a/fr_0", "b/fr_0")
    assert found.duplicates == (0,)
    evidence = read_evidence(tmp_path)
    assert evidence.duplicates == (DuplicateRank(rank=0, files=(f"{tmp_path}/a/fr_0", f"{tmp_path}/b/fr_0")),)
    assert [dump.rank for dump in evidence.dumps] == [0, 0, 1]


def test_two_places_with_a_file_of_one_rank_are_a_duplicate_too(tmp_path: Path) -> None:
    write(tmp_path, a__fr_0=DUMP, b__fr_0=DUMP, b__fr_1=DUMP)
    both = merge_evidence([read_evidence(tmp_path / "a"), read_evidence(tmp_path / "b")])
    assert both.duplicates == (DuplicateRank(rank=0, files=(f"{tmp_path}/a/fr_0", f"{tmp_path}/b/fr_0")),)
    assert both.claimed == 3


def test_the_roads_of_one_collector_are_no_duplicates(tmp_path: Path) -> None:
    """Its files without its manifest; the negative control has them in two directories."""
    names = {"rank_0DOTa0DOTdumpDOTpickle": DUMP, "rank_0DOTa0DOTtraceDOTjson": b"{}"}
    assert found_at(write(tmp_path / "one", **names)).duplicates == ()
    write(tmp_path / "two" / "host-a", **names)
    write(tmp_path / "two" / "host-b", **names)
    assert found_at(tmp_path / "two").duplicates == (0,)


def test_without_a_manifest_the_last_attempt_is_in_the_names(tmp_path: Path) -> None:
    found = found_at(write(tmp_path, rank_0DOTa0DOTdumpDOTpickle=DUMP, rank_0DOTa1DOTdumpDOTpickle=DUMP))
    assert found.files == {0: ("rank_0.a1.dump.pickle",)}
    assert [file.reason for file in found.ignored] == ["of attempt 0, before the restart; the last is 1"]


def test_of_torchfts_quorums_the_last_one_counts(tmp_path: Path) -> None:
    found = found_at(write(tmp_path, fr_quorum_9__0=DUMP, fr_quorum_10__0=DUMP, fr_quorum_10__1=DUMP))
    assert found.files == {0: ("fr_quorum_10/0",), 1: ("fr_quorum_10/1",)}
    assert [file.reason for file in found.ignored] == ["of quorum 9, before the restart; the last is 10"]


def test_a_directory_a_host_is_read(tmp_path: Path) -> None:
    found = found_at(write(tmp_path, **{"host-a__nccl_trace_rank_0": DUMP, "host-b__nccl_trace_rank_1": DUMP}))
    assert found.files == {0: ("host-a/nccl_trace_rank_0",), 1: ("host-b/nccl_trace_rank_1",)}


def test_a_prefix_takes_only_its_files(tmp_path: Path) -> None:
    found = found_at(write(tmp_path, fr_0=DUMP, try_0=DUMP), prefix="try_")
    assert found.files == {0: ("try_0",)}
    assert [file.reason for file in found.ignored] == ["its name has no try_<rank>"]


def test_one_file_is_a_dump_too(tmp_path: Path) -> None:
    write(tmp_path, fr_3=DUMP, nothing=DUMP, README=b"text", notes_7=b"text")
    assert found_at(tmp_path / "fr_3").files == {3: ("fr_3",)}
    assert read_dump(tmp_path / "fr_3").rank == 3
    assert read_dump(tmp_path / "nothing", rank=8).rank == 8
    with pytest.raises(DumpError, match="does not say which rank"):
        found_at(tmp_path / "nothing")
    with pytest.raises(DumpError, match="does not say which rank"):
        read_dump(tmp_path / "nothing")
    for name in ("README", "notes_7"):
        with pytest.raises(DumpError, match="it is no dump"):
            found_at(tmp_path / name)


def artifact(rank: int, path: str, *, attempt: int = 0, kind: ArtifactKind = ArtifactKind.DUMP) -> Artifact:
    return Artifact(
        rank=rank,
        attempt=attempt,
        kind=kind,
        road="handler",
        path=path,
        bytes=1,
        sha256="",
        pulled_ns=1,
        reason=PullReason.STALL,
    )


def evidence_directory(run: Path) -> Path:
    """A run directory: rank 0 with a dump and a trace, rank 1 restarted once, and a native copy with an odd name."""
    place = run / "evidence"
    place.mkdir(parents=True)
    names = ["rank_0.a1.dump.pickle", "rank_1.a0.dump.pickle", "odd name", "native/fr_0", "rank_1.a1.stacks.txt"]
    for name in names:
        write(place, **{name.replace("/", "__"): DUMP})
    manifest = Manifest(
        world_size=2,
        artifacts=(
            artifact(0, "rank_0.a1.dump.pickle", attempt=1),
            artifact(0, "native/fr_0", attempt=1),
            artifact(1, "rank_1.a0.dump.pickle"),
            artifact(1, "odd name", attempt=1),
            artifact(1, "../../elsewhere", attempt=1),
            artifact(1, "rank_1.a1.stacks.txt", attempt=1, kind=ArtifactKind.STACKS),
        ),
        ranks=(RankPull(rank=1, attempt=1, pid=5), RankPull(rank=0, attempt=1), RankPull(rank=1, attempt=0, pid=4)),
    )
    (place / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    return place


def test_the_manifest_is_believed_above_the_names(tmp_path: Path) -> None:
    place = evidence_directory(tmp_path)
    found = found_at(place)
    assert found.files == {
        0: ("native/fr_0", "rank_0.a1.dump.pickle"),
        1: ("odd name",),
    }
    assert [file.reason for file in found.ignored] == [
        "the manifest names a file outside its directory",
        "of attempt 0, before the restart; the last is 1",
    ]
    assert found.duplicates == ()


def test_evidence_has_the_reports_of_the_last_attempt_and_the_groups_of_the_launch(tmp_path: Path) -> None:
    evidence_directory(tmp_path)
    groups = [{"name": "3", "desc": "mesh_tp", "ranks": [0, 1]}]
    facts = msgspec.json.encode({"rank": 0, "pid": 1, "groups": groups})
    write(tmp_path, control__rank_0DOTa0DOTfactsDOTjson=facts, control__rank_1DOTa0DOTfactsDOTjson=b"{half")
    for directory in (tmp_path, tmp_path / "evidence"):
        evidence = read_evidence(directory)
        assert [(dump.rank, Path(dump.path).name) for dump in evidence.dumps] == [
            (0, "fr_0"),
            (0, "rank_0.a1.dump.pickle"),
            (1, "odd name"),
        ]
        assert [(report.rank, report.pid) for report in evidence.reports] == [(0, None), (1, 5)]
        assert evidence.world_size == 2
        assert [(group.name, group.ranks) for group in evidence.launch_groups] == [("3", (0, 1))]


def test_a_manifest_of_somebody_else_is_no_manifest(tmp_path: Path) -> None:
    write(tmp_path, fr_0=DUMP, manifestDOTjson=b'{"files": 3, "schema": "other"}')
    assert list(found_at(tmp_path).files) == [0]


def test_what_cannot_be_read_is_listed_and_what_is_cut_is_used_and_listed(tmp_path: Path) -> None:
    whole = pickled(entry(), entry(record_id=1, collective_seq_id=2))
    write(tmp_path, fr_0=whole, fr_1=whole[:-40], fr_2=b"", fr_3=pickled(entry(state="strted")))
    evidence = read_evidence(tmp_path)
    assert [(dump.rank, len(dump.operations)) for dump in evidence.dumps] == [(0, 2), (1, 1)]
    assert [(one.rank, one.salvaged_entries) for one in evidence.unreadable] == [(1, 1), (2, 0), (3, 0)]
    errors = [one.error for one in evidence.unreadable]
    assert f"cut or damaged at byte {len(whole) - 40}" in errors[0]
    assert "the file is empty" in errors[1]
    assert "entries[0].state" in errors[2]
    assert "strted" in errors[2]


def test_another_map_can_be_given(tmp_path: Path) -> None:
    """The seam for other processes: an executor's map."""
    write(tmp_path, fr_0=DUMP)
    seen = []

    def each(read: Callable[[DumpJob], Outcome], jobs: Iterable[DumpJob]) -> Iterable[Outcome]:
        for job in jobs:
            seen.append((Path(job.path).name, job.rank, job.data))
            yield read(job)

    assert len(read_evidence(tmp_path, each=each).dumps) == 1
    assert seen == [("fr_0", 0, b"")]


def test_a_dump_that_the_manifest_lists_and_that_is_not_there_is_unreadable(tmp_path: Path) -> None:
    place = evidence_directory(tmp_path)
    (place / "odd name").unlink()
    evidence = read_evidence(tmp_path)
    assert [(one.rank, Path(one.file).name, one.error) for one in evidence.unreadable] == [
        (1, "odd name", "the manifest lists it, and it is not there")
    ]


def test_the_directory_above_a_run_is_as_good_as_the_run(tmp_path: Path) -> None:
    evidence_directory(tmp_path / "quick" / "ddp-hold")
    above, run = read_evidence(tmp_path), read_evidence(tmp_path / "quick" / "ddp-hold")
    assert len(above.ignored) == len(run.ignored) == 2
    assert msgspec.structs.replace(above, ignored=()) == msgspec.structs.replace(run, ignored=())


def test_a_manifest_that_says_a_trillion_ranks_is_not_believed(tmp_path: Path) -> None:
    write(tmp_path, manifestDOTjson=msgspec.json.encode(Manifest(world_size=10**12)))
    assert read_evidence(tmp_path).world_size is None


def test_facts_that_may_not_be_read_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence_directory(tmp_path)
    write(tmp_path, control__rank_0DOTa0DOTfactsDOTjson=b" " * 10_001)
    monkeypatch.setattr("hangdrill.recorder.local.MAX_SMALL_BYTES", 10_000)
    assert read_evidence(tmp_path / "evidence").launch_groups == ()


def test_two_runs_in_one_directory_are_not_mixed(tmp_path: Path) -> None:
    for run in ("one", "two"):
        manifest = msgspec.json.encode(Manifest(run_id=run))
        write(tmp_path, **{f"{run}__evidence__manifestDOTjson": manifest})
    with pytest.raises(DumpError, match=r"it holds 2 runs \(one, two\)"):
        read_evidence(tmp_path)


def test_an_empty_directory_is_no_evidence(tmp_path: Path) -> None:
    evidence = read_evidence(tmp_path)
    assert (evidence.dumps, evidence.claimed, evidence.found) == ((), 0, False)
