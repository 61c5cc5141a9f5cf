"""Two real canary jobs that measure in turns: whatever becomes of the one, the other has its numbers."""

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from certify_contexts import context_of, left_over
from planted_torch import plant_in_torch

from hangdrill.certify.canary_jobs import CanaryJob
from hangdrill.certify.canary_turns import run_in_turns
from hangdrill.certify.canary_work import work_of
from hangdrill.certify.measures import measured_of, parts_of
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.certify_plan import Topology
from hangdrill.model.errors import Interrupted, MachineError
from hangdrill.rank.canary.turns import SIDES, Turns

pytestmark = pytest.mark.torchrun

STEPS = ("--steps", "3", "--timeout-s", "30")
PLANT = """
def plant(torch):
    calls, right = [], torch.Tensor.backward

    def backward(*args, **kwargs):
        calls.append(1)
        if len(calls) == 10 and os.environ.get("RANK") == "1":
            {action}
        return right(*args, **kwargs)

    torch.Tensor.backward = backward
"""


def job(directory: Path, name: str, **changes) -> CanaryJob:
    given = {
        "python": sys.executable,
        "environ": dict(os.environ),
        "directory": directory / name,
        "backend": "gloo",
        "ranks": 2,
        "parts": ("latency", "dp", "tp"),
        "options": STEPS,
    }
    return CanaryJob(**{**given, **changes})


def planted(directory: Path, action: str) -> dict[str, str]:
    """The environment of a job whose rank 1 does this in the tenth backward() of its life, in the middle of dp."""
    return {**os.environ, **plant_in_torch(directory, PLANT.format(action=action))}


def test_both_jobs_measure_everything_and_do_alone_what_is_not_measured_in_turns(tmp_path):
    context = context_of(tmp_path, topologies=(Topology.SINGLE_NODE, Topology.DP, Topology.PP))
    first, second = (job(tmp_path, name, parts=parts_of(context.plan), max_restarts=1) for name in ("one", "two"))
    runs = run_in_turns(first, second, tmp_path, Interrupt())
    for run in runs:
        assert run.trouble() == ""
        assert [one.name for one in measured_of(context.plan) if one.sample(run) is None] == []
        assert work_of(run) is not None
        assert run.slowest("part_turns_s") > 0
        assert all(run.slowest(name) >= 0 for name in run.ranks[0].measures)
    one, two = runs
    made = min(record.times_ns["joined"] for record in one.of_attempt(0).values())
    assert made <= two.launched_ns
    assert one.ended_ns <= min(record.times_ns["alone"] for record in two.of_attempt(0).values())
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("at", "action", "limit_s"),
    [
        (1, "raise RuntimeError('planted')", 60.0),
        (0, "os.kill(os.getpid(), 9)", 60.0),
        (1, "os.kill(os.getpid(), 9)", 60.0),
        (1, "__import__('time').sleep(1000)", 10.0),
    ],
    ids=["fails", "dies-first", "dies", "hangs"],
)
def test_what_becomes_of_the_one_job_costs_the_other_none_of_its_numbers(tmp_path, at, action, limit_s):
    options = (*STEPS, "--timeout-s", "20")
    jobs = [job(tmp_path, name, limit_s=limit_s, options=options) for name in ("one", "two")]
    jobs[at] = msgspec.structs.replace(jobs[at], environ=planted(tmp_path, action))
    runs = run_in_turns(jobs[0], jobs[1], tmp_path, Interrupt())
    bad, good = runs[at], runs[1 - at]
    assert bad.trouble()
    assert bad.slowest("dp_step_s") is None
    assert good.trouble() == ""
    assert None not in [good.slowest(name) for name in ("all_reduce_4096_s", "dp_step_s", "tp_step_s")]
    assert left_over(tmp_path) == []


def test_a_job_that_cannot_start_is_told_and_nothing_is_left(tmp_path):
    absent = job(tmp_path, "two", python=str(tmp_path / "no-python"))
    with pytest.raises(MachineError, match="no-python"):
        run_in_turns(job(tmp_path, "one"), absent, tmp_path, Interrupt())
    assert left_over(tmp_path) == []


def test_a_first_job_that_cannot_start_is_told_before_the_second_one_is_started(tmp_path):
    absent = job(tmp_path, "one", python=str(tmp_path / "no-python"))
    with pytest.raises(MachineError, match="no-python"):
        run_in_turns(absent, job(tmp_path, "two"), tmp_path, Interrupt())
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_jobs_that_end_at_once_leave_a_run_each_and_no_word_of_a_directory_that_is_gone(tmp_path, caplog):
    """The end of a job is written for the other one; where it cannot be, that is no error of anybody's."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/words\nrm -rf {tmp_path}/turns-*\nexit 3\n')
    python.chmod(0o755)
    jobs = [job(tmp_path, name, python=str(python), deadline_s=42.0) for name in ("one", "two")]
    runs = run_in_turns(*jobs, tmp_path, Interrupt())
    assert [(run.exit_code, run.ranks) for run in runs] == [(3, ()), (3, ())]
    assert {run.trouble() for run in runs} == {"ranks 0, 1 left no record: no output, exit code 3"}
    assert caplog.records == []
    words = [line.split() for line in (tmp_path / "words").read_text().splitlines()]
    assert [line[line.index("--patience-s") + 1] for line in words] == ["42", "42"]


def test_a_rank_that_takes_no_part_in_transfers_takes_part_in_their_turns(tmp_path):
    """Else it would meet its peers again only after all turns of both jobs, and a meeting has a limit."""
    from hangdrill.rank.canary.communication import p2p

    turns = Turns(tmp_path, SIDES[0], rank=2, limit_s=60)
    Turns(tmp_path, SIDES[1], rank=0, limit_s=60).end()
    waited_s = {}
    options = SimpleNamespace(peer=1, sizes_bytes=(4096,))
    record, device = SimpleNamespace(measures={}), SimpleNamespace(type="cpu")

    def meet(name: str) -> None:
        waited_s[name] = turns.waited_s

    p2p(SimpleNamespace(options=options, record=record, device=device, meet=meet, turns=turns, rank=2, world_size=3))
    assert (waited_s["p2p"], waited_s["transferred"] > 0, record.measures) == (0.0, True, {})


def test_an_interrupt_in_the_middle_of_a_turn_ends_both(tmp_path):
    interrupt = Interrupt()

    def stop() -> None:
        while not list(tmp_path.glob("turns-*/dp.2.*")):
            time.sleep(0.02)
        interrupt.request()

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(Interrupted):
        run_in_turns(job(tmp_path, "one"), job(tmp_path, "two"), tmp_path, interrupt)
    assert left_over(tmp_path) == []
