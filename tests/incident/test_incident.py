"""`hangdrill.diagnose`: paths to a typed, frozen answer, without torch; and what was found at the paths is said."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hangdrill
from hangdrill.model.diagnosis import Basis, Culprit, Diagnosis, HangKind, HangVerdict
from hangdrill.model.errors import UsageError

DUMPS = Path(__file__).parents[1] / "data" / "dumps"
GLOO = DUMPS / "gloo" / "hold-rank-1-of-3"


def copied(place: Path, *ranks: int, name: str = "fr_{}") -> Path:
    place.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        (place / name.format(rank)).write_bytes((GLOO / f"fr_{rank}").read_bytes())
    return place


def names_rank_1(found: Diagnosis) -> bool:
    return found.verdict is HangVerdict.HANG and [culprit.rank for culprit in found.culprits] == [1]


def test_a_real_gloo_hang_of_three_ranks_is_told(tmp_path: Path) -> None:
    """torch's own analyzer ends with `KeyError: ('0', 2)` on these three files."""
    found = hangdrill.diagnose(GLOO)
    assert names_rank_1(found)
    assert found.kind is HangKind.RANK_ABSENT
    assert found.culprits == (Culprit(rank=1, basis=Basis.OBSERVED, why=found.culprits[0].why),)
    assert found.stuck is not None
    assert (found.stuck.op, found.stuck.sequence, found.stuck.waiting) == ("all_reduce", 6, (0, 2))
    assert found.ranks.present == (0, 1, 2)


@pytest.mark.torchrun
def test_torchs_own_analyzer_crashes_on_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(GLOO), "--prefix", "fr_"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "KeyError: ('0', " in done.stderr


def test_the_answer_is_frozen_and_typed() -> None:
    found = hangdrill.diagnose(str(GLOO))
    assert isinstance(found, Diagnosis)
    with pytest.raises(AttributeError):
        found.verdict = HangVerdict.NO_HANG  # type: ignore[misc]  # what must not be possible
    assert json.loads(msgspec.json.encode(found))["schema"] == "hangdrill.diagnosis/1"


def test_several_paths_are_one_job(tmp_path: Path) -> None:
    copied(tmp_path / "a", 0)
    copied(tmp_path / "b", 1, 2)
    found = hangdrill.diagnose([tmp_path / "a", str(tmp_path / "b" / "fr_1"), tmp_path / "b" / "fr_2"])
    assert msgspec.structs.replace(found, notes=()) == msgspec.structs.replace(hangdrill.diagnose(GLOO), notes=())


def test_a_path_given_twice_is_read_once(tmp_path: Path) -> None:
    assert hangdrill.diagnose([GLOO, GLOO / "../hold-rank-1-of-3"]).ranks.duplicate == ()


def test_a_missing_rank_is_known_by_the_world_size(tmp_path: Path) -> None:
    copied(tmp_path, 0, 2)
    assert hangdrill.diagnose(tmp_path, world_size=3).ranks.missing == (1,)
    assert hangdrill.diagnose(tmp_path, world_size=5).ranks.missing == (1, 3, 4)


def test_a_prefix_keeps_another_jobs_files_out(tmp_path: Path) -> None:
    copied(tmp_path, 0, 1, 2, name="job7_{}")
    copied(tmp_path, 0, 1, name="job8_{}")
    found = hangdrill.diagnose(tmp_path, prefix="job7_")
    assert names_rank_1(found)
    assert found.ranks.duplicate == ()
    assert found.notes[-1].startswith("passed over: 2 files (its name has no job7_<rank>): ")
    assert hangdrill.diagnose(tmp_path).ranks.duplicate == (0, 1)


def test_a_path_that_is_itself_a_prefix_is_taken_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(tmp_path, 0, 1, 2, name="job7_{}")
    copied(tmp_path, 0, 1, name="job8_{}")
    assert hangdrill.diagnose(f"{tmp_path}/job7_").ranks.duplicate == ()
    monkeypatch.chdir(tmp_path)
    assert names_rank_1(hangdrill.diagnose("job7_"))
    with pytest.raises(UsageError, match="no such file"):
        hangdrill.diagnose("job9_")


@pytest.mark.parametrize("size", [0, -1, 10**12])
def test_a_world_size_that_no_job_has_is_refused(size: int) -> None:
    with pytest.raises(UsageError, match="a job has 1 to 1000000 ranks"):
        hangdrill.diagnose(GLOO, world_size=size)


def test_two_files_of_one_rank_are_said_and_both_read(tmp_path: Path) -> None:
    copied(tmp_path / "host-a", 0, 1, 2)
    copied(tmp_path / "host-b", 2)
    found = hangdrill.diagnose(tmp_path)
    assert names_rank_1(found)  # they say the same
    assert found.ranks.duplicate == (2,)
    assert (
        f"2 files claim to be rank 2's and all were read: {tmp_path}/host-a/fr_2, {tmp_path}/host-b/fr_2" in found.notes
    )


def test_two_files_that_contradict_each_other_name_no_innocent(tmp_path: Path) -> None:
    copied(tmp_path / "host-a", 0, 1, 2)
    whole = pickle.loads((GLOO / "fr_1").read_bytes())  # our own file
    for one in whole["entries"]:
        one["time_created_ns"] += 1
    (tmp_path / "host-b").mkdir()
    (tmp_path / "host-b" / "fr_1").write_bytes(pickle.dumps(whole, protocol=2))
    found = hangdrill.diagnose(tmp_path)
    assert found.ranks.duplicate == (1,)
    assert {culprit.rank for culprit in found.culprits} <= {1}


def test_the_culprits_stacks_beside_the_dumps_are_named_and_nobody_elses(tmp_path: Path) -> None:
    copied(tmp_path, 0, 1, 2)
    for rank in (0, 1):
        (tmp_path / f"rank_{rank}.a0.stacks.txt").write_text("Thread 0x1 (most recent call first):\n")
    notes = hangdrill.diagnose(tmp_path).notes
    assert f"the stacks of rank 1 are in {tmp_path}/rank_1.a0.stacks.txt" in notes
    assert not any("stacks of rank 0" in note for note in notes)
    (tmp_path / "rank_1.a0.stacks.txt").unlink()
    assert not any("the stacks of" in note for note in hangdrill.diagnose(tmp_path).notes)


def test_the_link_to_the_agent_in_a_run_directory_is_not_worth_a_note(tmp_path: Path) -> None:
    copied(tmp_path, 0, 1, 2)
    for place in ("agent/hangdrill", "other"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "rank").symlink_to(tmp_path.parent)
    told = [note for note in hangdrill.diagnose(tmp_path).notes if "a link to a directory" in note]
    assert len(told) == 1
    assert told[0].startswith("passed over: 1 file")
    assert told[0].endswith(f"{tmp_path}/other/rank")


RUNS = GLOO.parents[2] / "gpu_runs"


def own_files(run: Path) -> None:
    """What a drill leaves beside the evidence, in the run directory and above it."""
    for name in (
        "../summary.json", "../junit.xml", "result.json", "inspection.json", "job.log", "collector.log",
        "control/rank_0.a0.ops", "torchrun/hd-1_x/attempt_0/0/error.json", "agent/hangdrill/__pycache__/a/b.pyc",
    ):  # fmt: skip
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(b"x")


@pytest.mark.parametrize("above", [False, True])
def test_the_own_files_of_a_run_are_not_worth_a_note(tmp_path: Path, above: bool) -> None:
    """Of a drill with the collector, and of one without, whose dumps torch wrote."""
    collected, native = tmp_path / "a" / "drill", tmp_path / "b" / "drill"
    shutil.copytree(RUNS / "nccl.collector.coalesced-hold-r1" / "evidence", collected / "evidence")
    copied(native / "native", 0, 1, 2)
    for name in ("plan.json", "journal.jsonl"):
        (native / name).write_bytes(b"{}")
    for run in (collected, native):
        own_files(run)
        place = run.parent if above else run
        assert not [note for note in hangdrill.diagnose(place).notes if "passed over" in note]
        (place / "notes.md").write_text("x")
        if above or run is native:  # beside a manifest no file is asked what it is
            assert f"passed over: 1 file (not a dump by its name): {place}/notes.md" in hangdrill.diagnose(place).notes


def test_files_of_these_names_that_are_of_no_run_are_named(tmp_path: Path) -> None:
    copied(tmp_path / "native", 0, 1, 2)
    for name in ("job.log", "plan.json"):
        (tmp_path / name).write_bytes(b"x")
    notes = hangdrill.diagnose(tmp_path).notes
    assert f"passed over: 1 file (not a dump by its name): {tmp_path}/job.log" in notes
    assert f"passed over: 1 file (its name says no rank): {tmp_path}/plan.json" in notes


def test_what_was_passed_over_is_counted_and_named(tmp_path: Path) -> None:
    copied(tmp_path, 0, 1, 2)
    for name in ("fr_0.tmp", "a.log", "b.log", "c.log", "d.log"):
        (tmp_path / name).write_bytes(b"x")
    notes = hangdrill.diagnose(tmp_path).notes
    logs = ", ".join(f"{tmp_path}/{name}.log" for name in "abc")
    assert f"passed over: 4 files (not a dump by its name): {logs} and 1 more" in notes
    assert f"passed over: 1 file (a temporary or hidden file): {tmp_path}/fr_0.tmp" in notes


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "nothing is there, so no dump either"),
        ({"a.txt": b"x", "b.bin": b"x"}, "no dump is there, but 1 file (not a dump by its name): "),
        ({"only.tar.gz": b"junk"}, "no dump is there, but 1 file (an archive inside a directory"),
    ],
)
def test_a_place_without_dumps_is_the_users_mistake(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError) as caught:
        hangdrill.diagnose(tmp_path)
    assert caught.value.what.startswith(said)
    assert caught.value.next_step


def test_one_empty_host_among_others_is_no_mistake(tmp_path: Path) -> None:
    """It may be the culprit's."""
    copied(tmp_path / "a", 0, 2)
    (tmp_path / "b").mkdir()
    assert hangdrill.diagnose([tmp_path / "a", tmp_path / "b"], world_size=3).ranks.missing == (1,)


def test_dumps_of_which_none_can_be_read_leave_it_undecided(tmp_path: Path) -> None:
    for rank, data in enumerate((b"", b"junk", b"\x80\x02cos\nsystem\n.")):
        (tmp_path / f"fr_{rank}").write_bytes(data)
    found = hangdrill.diagnose(tmp_path)
    assert found.verdict is HangVerdict.UNDECIDED
    assert [one.rank for one in found.ranks.unreadable] == [0, 1, 2]


BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "numpy", "fsspec"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
import hangdrill
assert set(sys.modules) & {"msgspec", "hangdrill.recorder"} == set(), "importing hangdrill imports nothing else"
found = hangdrill.diagnose(sys.argv[1])
print([culprit.rank for culprit in found.culprits])
try:
    import torch
except ModuleNotFoundError:
    print("blocked")
"""


def test_it_works_where_torch_is_not_installed() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED, str(GLOO)], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:2] == ["[1]", "blocked"], done.stderr


def test_the_package_says_so_when_it_has_no_such_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _: Any = hangdrill.nonsense  # type: ignore[attr-defined]  # it is not there
