"""Times of two clocks: measured once, moved once, and never compared as they are."""

import json
import os
import time
from pathlib import Path

import pytest
from healthy_runs import PULLED_NS, SECOND_NS, WORLD, held_run, mutate, native_run, with_dump

from hangdrill.checks import run_checks
from hangdrill.collector.clocks import SAME_NS, ahead_of_this_clock_ns, file_clock_ahead_ns
from hangdrill.collector.control import ControlDirectory, RankKey
from hangdrill.collector.native import NativeFile
from hangdrill.collector.notice import NoticeRules, RankView, find_notice
from hangdrill.collector.store import EvidenceStore
from hangdrill.collector.traces import OperationKey, PendingOperation
from hangdrill.drill.clocks import by_one_clock
from hangdrill.drill.control import ControlReader
from hangdrill.model.run import FileFacts, PullReason, RankClock, RankExit, RecordedRun
from hangdrill.model.verdict import Verdict
from hangdrill.node.shared import _replace as replace_file

MINUTES_NS = 600 * SECOND_NS
SIDES = [MINUTES_NS, -MINUTES_NS]


def written(directory: Path, rank: int, *, ahead_ns: int) -> Path:
    """A facts file of a rank whose clock is so far ahead."""
    path = directory / f"rank_{rank}.a0.facts.json"
    path.write_text(json.dumps({"rank": rank, "pid": 1, "written_ns": time.time_ns() + ahead_ns}))
    return path


@pytest.mark.parametrize("ahead_ns", [0, *SIDES])
def test_clock_of_a_rank_is_measured_from_its_facts_file(tmp_path: Path, ahead_ns: int) -> None:
    found = ahead_of_this_clock_ns(written(tmp_path, 0, ahead_ns=ahead_ns))
    assert found is not None
    assert abs(found - ahead_ns) < SAME_NS
    control = ControlDirectory(tmp_path)
    assert abs(control.clock_ahead_ns(RankKey(0, 0)) - ahead_ns) < SAME_NS
    assert bool(control.clock_ahead_ns(RankKey(0, 0))) is bool(ahead_ns)


def test_clock_of_a_rank_that_does_not_say_is_not_known(tmp_path: Path) -> None:
    assert ahead_of_this_clock_ns(tmp_path / "rank_0.a0.facts.json") is None
    (tmp_path / "rank_1.a0.facts.json").write_text('{"rank": 1, "pid": 1}')
    assert ahead_of_this_clock_ns(tmp_path / "rank_1.a0.facts.json") is None
    assert ControlReader(tmp_path).clocks() == ()


def test_looking_leaves_no_file(tmp_path: Path) -> None:
    assert abs(file_clock_ahead_ns(tmp_path) or 0) < SAME_NS
    assert list(tmp_path.iterdir()) == []
    assert file_clock_ahead_ns(tmp_path / "none") is None


def skewed(run: RecordedRun, rank: int, ahead_ns: int) -> RecordedRun:
    """The same run, recorded with this rank's clock so far ahead: every time that the rank gave is moved."""
    opposite = tuple(RankClock(rank=each, ahead_ns=-ahead_ns if each == rank else 0) for each in WORLD)
    clocks = tuple(RankClock(rank=each, ahead_ns=ahead_ns if each == rank else 0) for each in WORLD)
    return mutate(by_one_clock(mutate(run, clocks=opposite)), clocks=clocks)


def with_exit(run: RecordedRun, rank: int) -> RecordedRun:
    """A rank that raised after its evidence was pulled."""
    assert run.manifest is not None
    end = RankExit(rank=rank, status="exception", time_ns=PULLED_NS + SECOND_NS)
    ranks = tuple(mutate(pull, exit=end) if pull.rank == rank else pull for pull in run.manifest.ranks)
    return mutate(run, manifest=mutate(run.manifest, ranks=ranks))


@pytest.mark.parametrize("ahead_ns", SIDES)
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_record_of_a_skewed_rank_is_that_of_a_right_one(rank: int, ahead_ns: int) -> None:
    right = with_exit(held_run(), rank)
    assert mutate(by_one_clock(skewed(right, rank, ahead_ns)), clocks=right.clocks) == right


@pytest.mark.parametrize("ahead_ns", SIDES)
def test_skewed_rank_passes_every_check_and_its_offset_is_told(ahead_ns: int) -> None:
    results = {result.name: result for result in run_checks(by_one_clock(skewed(held_run(), 1, ahead_ns)))}
    assert {name for name, result in results.items() if result.verdict is not Verdict.PASS} == set()
    side = "ahead of" if ahead_ns > 0 else "behind"
    assert f"rank 1: its clock is 600.0 s {side} the controller's" in results["fresh"].detail


def test_what_a_collector_on_another_host_says_is_moved_with_its_ranks() -> None:
    run = held_run()
    own = tuple(mutate(item, path=f"node1/{item.path}") if item.rank == 3 else item for item in run.artifacts)
    clocks = tuple(RankClock(rank=rank, ahead_ns=MINUTES_NS) for rank in WORLD)
    moved = by_one_clock(mutate(run, artifacts=own, clocks=clocks)).artifacts
    assert [item.pulled_ns - PULLED_NS for item in moved] == [0, 0, 0, -MINUTES_NS]


def test_facts_that_a_node_carries_keep_their_age(tmp_path: Path) -> None:
    """Else a file that was carried late would look as if its rank's clock were behind."""
    source, target = written(tmp_path, 0, ahead_ns=MINUTES_NS), tmp_path / "shared"
    target.mkdir()
    long_ago_ns = source.stat().st_mtime_ns - 30 * SECOND_NS
    os.utime(source, ns=(long_ago_ns, long_ago_ns))
    source.write_text(json.dumps({"rank": 0, "pid": 1, "written_ns": long_ago_ns + MINUTES_NS}))
    os.utime(source, ns=(long_ago_ns, long_ago_ns))
    replace_file(target / source.name, source.read_bytes(), written_ns=source.stat().st_mtime_ns)
    assert abs((ahead_of_this_clock_ns(target / source.name) or 0) - MINUTES_NS) < SAME_NS
    replace_file(target / source.name, source.read_bytes())
    assert abs((ahead_of_this_clock_ns(target / source.name) or 0) - MINUTES_NS) > SAME_NS


@pytest.mark.parametrize("ahead_ns", SIDES)
def test_without_the_correction_the_same_record_fails(ahead_ns: int) -> None:
    """The negative control of the tests above."""
    results = {result.name: result.verdict for result in run_checks(skewed(held_run(), 1, ahead_ns))}
    assert Verdict.FAIL in results.values()


@pytest.mark.parametrize("ahead_ns", SIDES)
def test_stale_dump_of_a_skewed_rank_is_stale(ahead_ns: int) -> None:
    """A file whose times are right by the true clock, and whose writer's clock was another one then."""
    run = skewed(held_run(), 1, ahead_ns)
    old = tuple(mutate(item, created_ns=item.created_ns - 3600 * SECOND_NS) for item in run.dumps[1][0].operations)
    results = {result.name: result for result in run_checks(by_one_clock(with_dump(run, 1, operations=old)))}
    assert results["fresh"].verdict is Verdict.FAIL
    assert "older than the attempt" in results["fresh"].detail


def test_file_that_nothing_wrote_since_before_the_drill_is_stale_by_no_clock() -> None:
    run = native_run()
    path = f"{run.dump_prefix}2"
    same = next(facts for facts in run.files if facts.path == path and facts.when == "collected")
    before = mutate(same, when="before")
    results = {result.name: result for result in run_checks(mutate(run, files=(before, *run.files)))}
    assert results["fresh"].verdict is Verdict.FAIL
    assert "rank 2: fr_2: it was there before the drill began" in results["fresh"].detail
    written_anew: FileFacts = mutate(before, sha256="0" * 64)
    results = {result.name: result for result in run_checks(mutate(run, files=(written_anew, *run.files)))}
    assert results["fresh"].verdict is Verdict.PASS


def stuck(*, age_s: float, ahead_ns: int, now_ns: int) -> RankView:
    key = OperationKey(group_name="0", p2p=False, sequence=4)
    operation = PendingOperation(
        key=key,
        group_desc="default_pg",
        name="all_reduce",
        created_ns=now_ns - int(age_s * 1e9) + ahead_ns,
        timeout_ms=5000,
    )
    return RankView(rank=0, progress_s=99.9, pending=(operation,), pending_since_s={key: 99.9}, ahead_ns=ahead_ns)


@pytest.mark.parametrize("ahead_ns", SIDES)
@pytest.mark.parametrize(("age_s", "noticed"), [(0.1, False), (60.0, True)])
def test_collector_takes_an_operations_age_by_the_ranks_own_clock(
    ahead_ns: int, age_s: float, *, noticed: bool
) -> None:
    now_ns = time.time_ns()
    views = [stuck(age_s=age_s, ahead_ns=ahead_ns, now_ns=now_ns)]
    assert (find_notice(views, NoticeRules(), now_s=100.0, now_ns=now_ns) is not None) is noticed


def test_native_file_that_came_since_the_first_look_is_taken_whatever_its_time_says(tmp_path: Path) -> None:
    """The clock of a file server may be minutes behind the process that writes."""
    (tmp_path / "evidence").mkdir()
    store = EvidenceStore(tmp_path / "evidence", run_id="r")
    native, path = NativeFile(str(tmp_path / "fr_"), 3), tmp_path / "fr_3"
    path.write_bytes(b"cut")
    os.utime(path, (1.0, 1.0))
    key, later_ns = RankKey(0, 3), time.time_ns()
    assert native.copy_when_whole(store, key, not_before_ns=later_ns, reason=PullReason.STALL, even_cut=True)


def test_native_file_that_was_there_at_the_first_look_is_taken_once_it_changes(tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    store = EvidenceStore(tmp_path / "evidence", run_id="r")
    path = tmp_path / "fr_3"
    path.write_bytes(b"old")
    os.utime(path, (1.0, 1.0))
    native, key, later_ns = NativeFile(str(tmp_path / "fr_"), 3), RankKey(0, 3), time.time_ns()
    assert not native.copy_when_whole(store, key, not_before_ns=later_ns, reason=PullReason.STALL, even_cut=True)
    path.write_bytes(b"newer")
    os.utime(path, (2.0, 2.0))
    assert native.copy_when_whole(store, key, not_before_ns=later_ns, reason=PullReason.STALL, even_cut=True)
