"""Which file is whose dump: names, duplicates, what is passed over, and the manifest's word above the names'."""

from pathlib import Path

import msgspec
import pytest
from hostile_pickles import entry, pickled

from hangdrill.model.run import Artifact, ArtifactKind, Manifest, PullReason, RankPull
from hangdrill.recorder import DumpError, find_dumps, read_dump, read_evidence
from hangdrill.recorder.names import rank_in_name

DUMP = pickled(entry())


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("comm_lib_trace_rank_0", 0),
        ("comm_lib_trace_rank_1023", 1023),
        ("nccl_trace_rank_7", 7),
        ("fr_3", 3),
        ("fr_trace_12.pickle", 12),
        ("_dump_15", 15),
        ("dump_4.json", 4),
        ("rank_2.a1.dump.pickle", 2),
        ("rank_2.a0.trace.json", 2),
        ("rank5.pkl", 5),
        ("host-12.fr_3", 3),
        ("node07_nccl_trace_rank_9", 9),
        ("nccl_trace_rank_3.host-44", 3),
        ("fr_8_node01", 8),
        ("mytrace_6", 6),
        ("job-17-31.pickle", 31),
        ("mytrace", None),
        ("fr_", None),
        ("fr_3x", None),
        ("truth.json", None),
    ],
)
def test_names_say_the_rank(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


@pytest.mark.parametrize(("name", "rank"), [("try2-7", 7), ("try2-7.host3", 7), ("fr_7", None), ("try2-x", None)])
def test_with_a_prefix_only_the_digits_behind_it_count(name: str, rank: int | None) -> None:
    assert rank_in_name(name, prefix="try2-") == rank


def write(directory: Path, **files: bytes) -> Path:
    for name, data in files.items():
        path = directory / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return directory


def test_dumps_are_found_and_the_rest_is_listed_with_the_reason(tmp_path: Path) -> None:
    names = {"fr_1": DUMP, "fr_0": DUMP, "notes_2024": b"text", "trace_5": DUMP, "fr_2DOTtmp": DUMP,
             "DOThidden_3": DUMP, "jobDOTlog": b"", "README": b""}  # fmt: skip
    found = find_dumps(write(tmp_path, **names))
    assert {rank: [path.name for path in paths] for rank, paths in found.files.items()} == {
        0: ["fr_0"],
        1: ["fr_1"],
        5: ["trace_5"],
    }
    assert {file.path.name: file.reason for file in found.ignored} == {
        ".hidden_3": "a temporary or hidden file",
        "README": "its name says no rank",
        "fr_2.tmp": "a temporary or hidden file",
        "job.log": "not a dump by its name",
        "notes_2024": "neither its name nor its first byte is a dump's",
    }
    assert found.duplicates == ()


def test_two_files_of_one_rank_are_both_kept_and_said(tmp_path: Path) -> None:
    found = find_dumps(write(tmp_path, a__fr_0=DUMP, b__fr_0=DUMP, b__fr_1=DUMP))
    assert [path.parent.name for path in found.files[0]] == ["a", "b"]
    assert found.duplicates == (0,)
    assert read_evidence(tmp_path).duplicates == (0,)


def test_directories_are_entered_but_not_for_ever_and_not_by_links(tmp_path: Path) -> None:
    write(tmp_path, a__b__c__fr_0=DUMP, a__b__c__d__fr_1=DUMP, DOTgit__fr_2=DUMP)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "fr_9").symlink_to(tmp_path / "gone")
    assert list(find_dumps(tmp_path).files) == [0]


def test_a_prefix_takes_only_its_files(tmp_path: Path) -> None:
    found = find_dumps(write(tmp_path, fr_0=DUMP, try_0=DUMP), prefix="try_")
    assert [path.name for path in found.files[0]] == ["try_0"]


def test_one_file_is_a_dump_too(tmp_path: Path) -> None:
    write(tmp_path, fr_3=DUMP, nothing=DUMP)
    assert find_dumps(tmp_path / "fr_3").files == {3: (tmp_path / "fr_3",)}
    assert read_dump(tmp_path / "fr_3").rank == 3
    assert read_dump(tmp_path / "nothing", rank=8).rank == 8
    with pytest.raises(DumpError, match="does not say which rank"):
        find_dumps(tmp_path / "nothing")
    with pytest.raises(DumpError, match="does not say which rank"):
        read_dump(tmp_path / "nothing")


def test_a_path_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="no such file or directory"):
        find_dumps(tmp_path / "gone")
    with pytest.raises(DumpError, match="cannot be read: No such file"):
        read_dump(tmp_path / "fr_0")


def test_a_directory_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("hangdrill.recorder.files.os.scandir", refuse)
    with pytest.raises(DumpError, match="cannot be read: Permission denied"):
        find_dumps(tmp_path)


def test_a_file_that_cannot_be_looked_into_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, trace_5=DUMP)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert find_dumps(tmp_path).files == {}


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdrill.recorder.files.MAX_FILES", 1)
    with pytest.raises(DumpError, match="more than 1 files"):
        find_dumps(write(tmp_path, fr_0=DUMP, fr_1=DUMP))


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
    found = find_dumps(place)
    assert found.files == {
        0: (place / "native" / "fr_0", place / "rank_0.a1.dump.pickle"),
        1: (place / "odd name",),
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
    assert list(find_dumps(tmp_path).files) == [0]


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


def test_another_reader_can_be_given(tmp_path: Path) -> None:
    """The seam for other processes."""
    write(tmp_path, fr_0=DUMP)
    seen = []

    def read(path: Path, rank: int) -> object:
        seen.append((path.name, rank))
        return read_dump(path, rank=rank)

    assert len(read_evidence(tmp_path, read=read).dumps) == 1
    assert seen == [("fr_0", 0)]


def test_an_empty_directory_is_no_evidence(tmp_path: Path) -> None:
    assert read_evidence(tmp_path).dumps == ()
