"""How a job of a cell ends: what counts as its time, and what is looked at before its numbers are judged."""

import sys
from types import SimpleNamespace

import pytest
from certify_contexts import context_of

from hangdrill.certify import checkpoint_jobs, script_cells, script_jobs
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_runs import PairRuns
from hangdrill.certify.checkpoint_jobs import Job, run_job
from hangdrill.certify.running import run_cell
from hangdrill.certify.script_cells import ScriptCell
from hangdrill.drill.procfs import own_id, read_process
from hangdrill.drill.supervise import EndReport, Supervisor
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.errors import MachineError
from hangdrill.model.verdict import Verdict


def a_job(directory) -> Job:
    return Job(
        command=("/bin/true",),
        python=sys.executable,
        environ={"PATH": "/usr/bin:/bin"},
        agent_path=directory,
        cwd=directory,
        log=directory / "job.log",
        deadline_s=60.0,
    )


def test_what_it_takes_to_end_the_leftovers_of_a_job_is_no_part_of_its_time(tmp_path, monkeypatch):
    now_s, end = [0.0], Supervisor.end

    def slow_end(self, grace):
        now_s[0] += 100.0
        return end(self, grace)

    monkeypatch.setattr(checkpoint_jobs, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(Supervisor, "end", slow_end)
    found = run_job(a_job(tmp_path), Interrupt())
    assert (found.exit_code, found.took_s, now_s) == (0, 0.0, [100.0])


@pytest.mark.parametrize("stuck", [True, False])
def test_what_survives_sigkill_is_told_and_its_numbers_count_for_nothing(tmp_path, monkeypatch, stuck):
    """The next job would be measured beside it."""
    own = read_process(own_id()[0])
    monkeypatch.setattr(Supervisor, "end", lambda self, grace: EndReport(survivors=(own,) if stuck else ()))
    if stuck:
        with pytest.raises(MachineError, match=f"survive SIGKILL: {own.id.pid}"):
            run_job(a_job(tmp_path), Interrupt())
    else:
        assert run_job(a_job(tmp_path), Interrupt()).exit_code == 0


@pytest.mark.parametrize("edited", [True, False])
def test_a_script_that_is_edited_while_it_is_measured_was_not_measured(tmp_path, monkeypatch, edited):
    script = tmp_path / "train.py"
    script.write_text("first = 1\n")
    context = context_of(tmp_path, script=script, pairs=1)

    def runs(_, require_same):
        (context.cell_dir / "runs.json").write_text("{}")
        if edited:
            script.write_text("second = 2\n")
        require_same()
        return PairRuns()

    monkeypatch.setattr(script_cells, "run_script_pairs", runs)
    result = run_cell(ScriptCell(context.plan), context)
    assert result.ran is not edited
    assert ("your script was changed while it was measured" in result.why_not) == edited
    assert {line.verdict for line in result.lines} == {Verdict.UNKNOWN}  # without a run there is nothing else


def test_a_run_of_an_edited_script_is_not_taken_once_the_script_is_what_it_was(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("first = 1\n")
    context = context_of(tmp_path, script=script, pairs=2)
    seen = []

    def run(context, role, directory, *, placement):
        directory.mkdir()
        if not seen:
            script.write_text("second = 2\n")
        seen.append((directory.name, script.read_text()))
        return CanaryRun(world_size=2, exit_code=0)

    monkeypatch.setattr(script_jobs, "run_script", run)
    assert not run_cell(ScriptCell(context.plan), context).ran
    script.write_text("first = 1\n")
    assert run_cell(ScriptCell(context.plan), context).ran
    assert ("01-baseline", "first = 1\n") in seen
    assert seen[0] == ("01-baseline", "second = 2\n")
