"""What a run directory tells: tolerant of what is missing, the same a week later, wherever it was moved."""

import os
import shutil
import time

import msgspec
import pytest
from fake_job import FakeRoad, control_of, scenario, write_fault, write_ops, write_rank

from hangdrill.drill.control import ControlReader, read_ops
from hangdrill.drill.fault import FaultState, PlacedFault
from hangdrill.drill.judge import judge
from hangdrill.drill.layout import Journal, RunLayout, write_json
from hangdrill.drill.procfs import own_id
from hangdrill.drill.roads import read_manifest
from hangdrill.drill.run import run_drill
from hangdrill.drill.store import load_run
from hangdrill.drill.supervise import Supervisor
from hangdrill.launchers.protocol import NoopLauncher
from hangdrill.model.errors import InternalError, UsageError
from hangdrill.model.run import RankExit
from hangdrill.model.scenario import Fault, FaultKind
from hangdrill.model.verdict import Verdict


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    """A recorded drill of two ranks; rank 1 was held after three collectives."""
    monkeypatch.setattr("hangdrill.drill.session.Session.others_are_gone", lambda self: False)

    def job(request):
        for rank in (0, 1):
            write_rank(control_of(request), rank, collectives=4 - rank)
        write_fault(control_of(request), 1)

    run_drill(
        "fake",
        scenario(),
        run_dir=tmp_path / "run",
        python="python3",
        environ={"HANGDRILL_RUNTIME_DIR": str(tmp_path / "runtime")},
        launcher=NoopLauncher(job),
        road_for=lambda plan, layout: FakeRoad(layout),
    )
    return tmp_path / "run"


def test_everything_is_read_back(run_dir):
    run = load_run(run_dir)
    assert run.scenario == scenario()
    assert {rank: agent.groups[0].collectives for rank, agent in run.agents.items()} == {0: 4, 1: 3}
    assert [report.rank for report in run.faults] == [1]
    assert {facts.when for facts in run.files} == {"collected", "job-exit"}
    assert run.leftovers == ()
    assert run.job_exit_code is not None


def test_counts_are_those_of_the_time_of_collection(run_dir):
    """A released rank goes on and counts; the dumps were taken before that."""
    write_ops(run_dir / "control" / "rank_1.a0.ops", (99, 0))
    assert load_run(run_dir).agents[1].groups[0].collectives == 3


def test_verdict_is_the_same_again(run_dir):
    first = judge(run_dir)
    assert judge(run_dir) == first
    assert first.verdict is not Verdict.PASS, "the fake dumps are no dumps"


def test_moved_run_directory_is_judged_where_it_is(run_dir, tmp_path):
    first = judge(run_dir)
    moved = tmp_path / "elsewhere" / "copy"
    moved.parent.mkdir()
    shutil.move(run_dir, moved)
    again = judge(moved)
    assert again.verdict is first.verdict
    assert [check.name for check in again.checks] == [check.name for check in first.checks]
    assert load_run(moved).dump_prefix == f"{moved}/native/fr_"


@pytest.mark.parametrize(
    "name",
    [
        "journal.jsonl", "inspection.json", "evidence/manifest.json", "control/rank_0.a0.facts.json",
        "control/rank_0.a0.ops", "control/rank_0.a0.ops.collected", "control/rank_1.a0.fault.json",
        "evidence/rank_0.a0.handler.pickle",
    ],
)  # fmt: skip
@pytest.mark.parametrize("damage", ["missing", "cut", "noise"])
def test_missing_or_damaged_file_is_missing_evidence_and_never_a_pass(run_dir, name, damage):
    path = run_dir / name
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:7] if damage == "cut" else b"\xff\x00{")
    assert judge(run_dir).verdict is not Verdict.PASS


def test_directory_without_a_plan_is_no_run(tmp_path):
    with pytest.raises(UsageError, match="not a run directory"):
        load_run(tmp_path)


def test_damaged_plan_is_the_users_to_mend(run_dir):
    (run_dir / "plan.json").write_text('{"schema": "hangdrill.plan/1"')
    with pytest.raises(UsageError, match="the plan is damaged"):
        load_run(run_dir)


def test_last_attempt_is_apart_from_earlier_ones(run_dir):
    write_rank(run_dir / "control", 0, attempt=1)
    run = load_run(run_dir)
    assert run.agents[0].attempt == 1
    assert [(agent.rank, agent.attempt) for agent in run.earlier_agents] == [(0, 0)]


def test_interrupted_drill_is_never_a_pass(run_dir):
    Journal(run_dir / "journal.jsonl", time.monotonic()).write("interrupted", {"why": "interrupted by SIGINT"})
    result = judge(run_dir)
    assert ("drill-ran", Verdict.UNKNOWN) in [(check.name, check.verdict) for check in result.checks]


def test_crashed_diagnosis_is_unknown(run_dir, monkeypatch):
    def crash(*args, **kwargs):
        raise KeyError("('0', 0)")

    monkeypatch.setattr("hangdrill.drill.judge.diagnose", crash)
    result = judge(run_dir)
    assert result.diagnosis is None
    assert "diagnosis-ran" in [check.name for check in result.checks]


def test_ops_file_of_another_version_is_not_read(tmp_path):
    path = tmp_path / "ops"
    write_ops(path, (3, 1))
    record = read_ops(path)
    assert record is not None
    assert (record.operations, record.slots[0].p2p) == (4, 1)
    path.write_bytes(b"\x02" + path.read_bytes()[1:])
    assert read_ops(path) is None


def test_foreign_files_in_control_are_ignored(tmp_path):
    (tmp_path / "rank_x.a0.ops").write_bytes(b"")
    (tmp_path / "rank_0.a0.facts.json.bak").write_bytes(b"")
    reader = ControlReader(tmp_path)
    assert (reader.facts(), reader.operations(), reader.faults(), reader.exits()) == ({}, {}, (), {})


def test_journal_on_a_full_disk_keeps_what_it_could_not_write(tmp_path):
    journal = Journal(tmp_path / "no" / "such" / "directory", time.monotonic())
    journal.write("planned")
    assert [event.name for event in journal.lost] == ["planned"]


def test_release_is_safe_to_repeat_and_needs_no_reader(tmp_path):
    supervisor = Supervisor("hd-0123456789ab", own_id())
    fault = PlacedFault(Fault(kind=FaultKind.HOLD_GIL, ranks=(0, 2)), tmp_path)
    fault.arm()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gil_0", "gil_2"]
    assert fault.release(supervisor).fifos == ()
    reader = os.open(tmp_path / "gil_2", os.O_RDONLY | os.O_NONBLOCK)
    assert fault.release(supervisor).fifos == ("gil_2",)
    assert os.read(reader, 1) == b"!"
    os.close(reader)
    fault.sweep()
    assert list(tmp_path.iterdir()) == []


def test_fault_is_confirmed_only_by_every_target(tmp_path):
    fault = PlacedFault(Fault(kind=FaultKind.HOLD, ranks=(0, 2)), tmp_path)
    with pytest.raises(InternalError):
        fault.confirm(())
    fault.arm()
    write_fault(tmp_path, 2)
    reports = ControlReader(tmp_path).faults()
    assert fault.missing(reports) == (0,)
    with pytest.raises(InternalError):
        fault.confirm(reports)
    write_fault(tmp_path, 0)
    fault.confirm(ControlReader(tmp_path).faults())
    assert fault.state is FaultState.CONFIRMED


def test_plan_file_of_a_run_is_complete_json(run_dir):
    plan = msgspec.json.decode(RunLayout(run_dir).plan.read_bytes())
    assert {"command", "environment", "deadlines", "expected_ranks", "dump_prefix", "orders"} <= plan.keys()


def test_how_a_rank_ends_after_its_release_says_nothing_of_the_hang(run_dir, monkeypatch):
    layout = RunLayout(run_dir)
    released = next(event for event in load_run(run_dir).journal if event.name == "released")
    manifest = read_manifest(layout)

    def ends(after_ns):
        end = RankExit(rank=1, status="exception", in_distributed=True, last_sequence=4, time_ns=after_ns)
        ranks = (manifest.ranks[0], msgspec.structs.replace(manifest.ranks[1], exit=end))
        write_json(layout.manifest, msgspec.structs.replace(manifest, ranks=ranks))

    seen = []

    def diagnose(dumps, *, reports, **kwargs):
        seen.append([report.exit is not None for report in reports])

    monkeypatch.setattr("hangdrill.drill.judge.diagnose", diagnose)
    ends(released.detail["from_ns"] + 1)
    judge(run_dir)
    ends(released.detail["from_ns"] - 1)
    judge(run_dir)
    assert seen == [[False, False], [False, True]]
