"""The order of a drill, with a job and a road that are only files: no torch, no processes."""

import signal
import stat
import time

import msgspec
import pytest
from fake_job import HEALTHY, FakeRoad, control_of, scenario, write_fault, write_rank

from hangdrill.drill.registry import registrations
from hangdrill.drill.roads import Notice
from hangdrill.drill.run import run_drill, run_many
from hangdrill.drill.waiting import Interrupt
from hangdrill.launchers.protocol import NoopJob, NoopLauncher
from hangdrill.model.errors import Interrupted, MachineError, UsageError
from hangdrill.model.run import JournalEvent
from hangdrill.model.verdict import Verdict


@pytest.fixture
def environ(tmp_path, monkeypatch):
    runtime = tmp_path / "runtime"
    monkeypatch.setattr("hangdrill.drill.session.Session.others_are_gone", lambda self: False)
    return {"HANGDRILL_RUNTIME_DIR": str(runtime), "PATH": "/usr/bin:/bin"}


def held_job(request):
    """Both ranks run, and rank 1 reports that it is held."""
    for rank in (0, 1):
        write_rank(control_of(request), rank)
    write_fault(control_of(request), 1)


def healthy_job(request):
    for rank in (0, 1):
        write_rank(control_of(request), rank)


def run(tmp_path, environ, *, launcher=None, road=None, interrupt=None, **tables):
    roads = []

    def road_for(plan, layout):
        roads.append(FakeRoad(layout, **(road or {})))
        return roads[0]

    result = run_drill(
        "fake",
        scenario(**tables),
        run_dir=tmp_path / "run",
        python="python3",
        environ=environ,
        interrupt=interrupt,
        launcher=launcher or NoopLauncher(held_job),
        road_for=road_for,
    )
    return result, roads[0]


def journal(tmp_path):
    lines = (tmp_path / "run" / "journal.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=JournalEvent) for line in lines]


def names(tmp_path):
    return [event.name for event in journal(tmp_path)]


def test_steps_of_a_held_drill_come_in_order(tmp_path, environ):
    run(tmp_path, environ)
    assert names(tmp_path) == [
        "planned", "launched", "steady", "fault-confirmed", "noticed", "collected", "inspected", "teardown", "released",
        "job-ended", "inspected", "finished",
    ]  # fmt: skip


def test_hold_is_armed_before_the_launch_and_released_after_the_inspection(tmp_path, environ):
    seen = {}

    def job(request):
        seen["at launch"] = (control_of(request) / "hold_1").exists()
        held_job(request)

    def collecting():
        seen["while collecting"] = (tmp_path / "run" / "control" / "hold_1").exists()

    run(tmp_path, environ, launcher=NoopLauncher(job), road={"on": {"is_complete": collecting}})
    assert seen == {"at launch": True, "while collecting": True}
    assert not (tmp_path / "run" / "control" / "hold_1").exists()


def test_healthy_job_that_ends_by_itself_is_no_hang(tmp_path, environ):
    run(tmp_path, environ, launcher=NoopLauncher(healthy_job, exit_code=0), road={"notices": False}, **HEALTHY)
    assert [name for name in names(tmp_path) if name in ("fault-confirmed", "no-hang", "noticed")] == [
        "fault-confirmed",
        "no-hang",
    ]
    ended = next(event for event in journal(tmp_path) if event.name == "job-ended")
    assert ended.detail == {"exit_code": 0, "by_itself": True, "signals": [], "in_time": True}


def test_fault_that_never_took_is_in_the_journal_and_makes_the_drill_unknown(tmp_path, environ):
    result, _ = run(tmp_path, environ, launcher=NoopLauncher(healthy_job, exit_code=1), road={"notices": False})
    missed = next(event for event in journal(tmp_path) if event.name == "fault-missed")
    assert missed.detail == {"missing": [1], "why": "the job ended before it came to that"}
    assert result.verdict is not Verdict.PASS


def test_evidence_that_is_late_is_asked_for_once_more(tmp_path, environ):
    asked = tmp_path / "run" / "control" / "collect_now"
    run(tmp_path, environ, road={"completes": False}, expect={"within_s": 0.05})
    collected = next(event for event in journal(tmp_path) if event.name == "collected")
    assert collected.detail["complete"] is False
    assert asked.exists()


def test_counts_are_frozen_before_anything_is_released(tmp_path, environ):
    run(tmp_path, environ)
    assert (tmp_path / "run" / "control" / "rank_0.a0.ops.collected").exists()


def test_run_directory_is_private(tmp_path, environ):
    run(tmp_path, environ)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run").iterdir() if path.is_dir()}
    assert modes.pop("agent")
    assert set(modes.values()) | {stat.S_IMODE((tmp_path / "run").stat().st_mode)} == {0o700}


def test_drill_is_registered_while_it_runs_and_not_afterwards(tmp_path, environ):
    seen = []

    def look():
        seen.extend(registrations(tmp_path / "runtime"))

    run(tmp_path, environ, road={"on": {"start": look}})
    assert [registration.name for registration in seen] == ["fake"]
    assert registrations(tmp_path / "runtime") == ()


@pytest.mark.parametrize("phase", ["start", "noticed", "is_complete", "finish"])
def test_interrupt_ends_everything_and_keeps_the_record(tmp_path, environ, phase):
    jobs = []

    class Launcher(NoopLauncher):
        def start(self, request):
            held_job(request)
            jobs.append(NoopJob())
            return jobs[0]

    with Interrupt() as interrupt:
        on = {phase: lambda: interrupt.request(signal.SIGTERM)}
        with pytest.raises(Interrupted, match="SIGTERM"):
            run(tmp_path, environ, launcher=Launcher(), road={"on": on}, interrupt=interrupt)
    assert names(tmp_path)[-1] == "finished"
    assert "interrupted" in names(tmp_path)
    assert not (tmp_path / "run" / "control" / "hold_1").exists()
    assert jobs[0].closed
    assert registrations(tmp_path / "runtime") == ()
    assert (tmp_path / "run" / "inspection.json").exists()


def test_failure_of_hangdrill_in_a_phase_still_ends_everything(tmp_path, environ):
    def fail():
        raise OSError(28, "No space left on device")

    with pytest.raises(MachineError, match="No space left"):
        run(tmp_path, environ, road={"on": {"is_complete": fail}})
    assert not (tmp_path / "run" / "control" / "hold_1").exists()
    assert names(tmp_path)[-1] == "failed"
    assert registrations(tmp_path / "runtime") == ()


def test_failure_of_one_ending_step_does_not_skip_the_others(tmp_path, environ):
    def fail():
        raise RuntimeError("the collector is a bug")

    run(tmp_path, environ, road={"on": {"finish": fail}})
    assert "finished" in names(tmp_path)
    assert (tmp_path / "run" / "inspection.json").exists()
    assert any("the collector is a bug" in str(event.detail) for event in journal(tmp_path))


def test_run_directory_that_exists_is_refused_before_anything_starts(tmp_path, environ):
    (tmp_path / "run").mkdir()
    launcher = NoopLauncher(held_job)
    with pytest.raises(UsageError, match="exists already"):
        run(tmp_path, environ, launcher=launcher)
    assert launcher.requests == []


def test_out_directory_that_is_a_file_is_the_machines_fault(tmp_path, environ):
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot make the run directory"):
        run(tmp_path / "file", environ)


def test_runtime_directory_of_somebody_else_is_refused(tmp_path, environ):
    (tmp_path / "runtime").mkdir(mode=0o755)
    with pytest.raises(MachineError, match="not this user's alone"):
        run(tmp_path, environ)


def test_one_failing_drill_does_not_end_the_others(tmp_path, environ, monkeypatch):
    def drill(name, given, **kwargs):
        if name == "bad":
            raise ValueError("a bug")
        return name

    monkeypatch.setattr("hangdrill.drill.run.run_drill", drill)
    items = [("good", scenario()), ("bad", scenario()), ("also-good", scenario())]
    results = run_many(items, out_dir=tmp_path, jobs=2, python="python3", environ=environ)
    assert results[0] == "good"
    assert results[2] == "also-good"
    assert (results[1].verdict, results[1].scenario) == (Verdict.UNKNOWN, "bad")
    assert "a bug" in results[1].checks[0].detail


def test_error_of_the_only_drill_is_raised(tmp_path, environ):
    with pytest.raises(MachineError, match="may not be executed"):
        run_many([("only", scenario())], out_dir=tmp_path, jobs=1, python="/no/such/python", environ=environ)
    assert not (tmp_path / "only").exists()


@pytest.mark.parametrize(("trigger", "released_early"), [("native", True), ("collector", False)])
def test_rank_that_is_left_alone_is_let_go_only_where_torch_is_alone(
    tmp_path, environ, monkeypatch, trigger, released_early
):
    """torchrun waits 30 s for a stalled rank when the others are gone; the collector must still see it stalled."""
    monkeypatch.setattr("hangdrill.drill.session.Session.others_are_gone", lambda self: True)
    seen = []
    looks = {"is_complete": lambda: seen.append((tmp_path / "run" / "control" / "hold_1").exists())}
    run(tmp_path, environ, road={"on": looks}, recorder={"trigger": trigger})
    assert seen[0] is not released_early


def test_alarm_before_the_fault_does_not_end_the_drill_if_the_job_goes_on(tmp_path, environ):
    alarms = iter([Notice(by="collector", why="ranks start far apart", noticed_ns=1), None])
    looks = []

    def noticed(road):
        looks.append(len(looks))
        if len(looks) == 3:
            write_fault(road.layout.control, 1)
        return next(alarms, Notice(by="collector", why="all_reduce #4 pending", noticed_ns=time.time_ns()))

    run(tmp_path, environ, launcher=NoopLauncher(healthy_job), road={"notice": noticed})
    assert "fault-missed" not in names(tmp_path)
    noticed_event = next(event for event in journal(tmp_path) if event.name == "noticed")
    assert noticed_event.detail["why"] == "all_reduce #4 pending"


def test_alarm_that_is_older_than_the_fault_is_not_taken_for_its_notice(tmp_path, environ):
    asked = tmp_path / "run" / "control" / "collect_now"

    def noticed(road):
        stale = Notice(by="collector", why="an old alarm", noticed_ns=1)
        return Notice(by="collector", why="asked", noticed_ns=time.time_ns()) if asked.exists() else stale

    run(tmp_path, environ, road={"notice": noticed})
    noticed_event = next(event for event in journal(tmp_path) if event.name == "noticed")
    assert noticed_event.detail["why"] == "asked"
