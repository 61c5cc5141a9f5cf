"""A job that waits for a scheduler: why is told, and its wait has a deadline of its own, before all others."""

import msgspec
import pytest
from fake_job import FakeRoad, control_of, scenario, write_fault, write_rank

from hangdrill.drill.run import run_drill
from hangdrill.launchers.protocol import NoopJob, NoopLauncher
from hangdrill.model.errors import MachineError
from hangdrill.model.run import JournalEvent


class QueuedJob(NoopJob):
    """Says each reason once, then begins."""

    def __init__(self, request, reasons):
        super().__init__()
        self.request = request
        self.reasons = reasons

    def waiting(self):
        if self.reasons:
            return self.reasons[0] if self.reasons[0] == "for ever" else self.reasons.pop(0)
        for rank in (0, 1):
            write_rank(control_of(self.request), rank)
        write_fault(control_of(self.request), 1)
        return ""


class QueueLauncher(NoopLauncher):
    def __init__(self, *reasons):
        super().__init__()
        self.reasons = list(reasons)
        self.jobs = []

    def start(self, request):
        self.jobs.append(QueuedJob(request, self.reasons))
        return self.jobs[0]


def run(tmp_path, launcher, **job):
    return run_drill(
        "fake",
        scenario(job=job),
        run_dir=tmp_path / "run",
        python="python3",
        environ={"HANGDRILL_RUNTIME_DIR": str(tmp_path / "runtime"), "PATH": "/usr/bin:/bin"},
        launcher=launcher,
        road_for=lambda plan, layout: FakeRoad(layout),
    )


def events(tmp_path):
    lines = (tmp_path / "run" / "journal.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=JournalEvent) for line in lines]


def test_each_new_reason_is_told_once_before_the_ranks_are_waited_for(tmp_path):
    run(tmp_path, QueueLauncher("Priority", "Resources", "Resources"))
    told = events(tmp_path)
    assert [event.detail["why"] for event in told if event.name == "queued"] == ["Priority", "Resources"]
    names = [event.name for event in told]
    assert names.index("launched") < names.index("queued") < names.index("steady")


def test_job_that_stays_in_the_queue_is_removed_and_is_the_machines_fault(tmp_path):
    launcher = QueueLauncher("for ever")
    with pytest.raises(MachineError, match=r"still queued after 0\.3 s \(for ever\)(.|\n)*--sbatch"):
        run(tmp_path, launcher, queue_s=0.3)
    assert launcher.jobs[0].removed
    assert events(tmp_path)[-1].name == "failed"
