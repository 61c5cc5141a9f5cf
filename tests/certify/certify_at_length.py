"""Real pairs of real stacks, on quiet cores: `make certify`. CI does the same on pairs that were kept
(test_real_pairs.py) and on simulated ones (test_canary_lines.py).

Candidate = baseline must show no difference; a candidate whose every training step takes 20 % longer and whose process
group takes 200 MB more must be caught. Both are planted in the interpreter, as a changed package would be, and
hangdrill is told nothing. HANGDRILL_REPEATS=10 does all of it ten times, which takes an hour and more; HANGDRILL_PAIRS
are those of a plan that says nothing.
"""

import os

import msgspec
import pytest
from certify_contexts import context_of
from planted_torch import plant_in_torch

from hangdrill.certify.canary import CanaryCell
from hangdrill.model.certify_plan import Measure, Topology
from hangdrill.model.verdict import Verdict

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(1800)]

PAIRS = int(os.environ.get("HANGDRILL_PAIRS", "12"))
REPEATS = range(int(os.environ.get("HANGDRILL_REPEATS", "1")))
STEPS = 200
EQUAL = (
    Measure.INIT_TIME,
    Measure.START_TIME,
    Measure.MEMORY_BEFORE_FIRST_STEP,
    Measure.MEMORY_PEAK,
    Measure.COLLECTIVE_LATENCY,
    Measure.THROUGHPUT,
    Measure.SHUTDOWN_TIME,
)
PLANTED = (Measure.MEMORY_BEFORE_FIRST_STEP, Measure.MEMORY_PEAK, Measure.THROUGHPUT)
NOTHING = """
def plant(torch):
    pass
"""
SLOWER_AND_LARGER = """
def plant(torch):
    import torch.distributed as dist
    call, right, group = torch.nn.Module.__call__, torch.Tensor.backward, dist.init_process_group
    began = []

    def forward(self, *args, **kwargs):
        began.append(time.perf_counter())
        try:
            return call(self, *args, **kwargs)
        finally:
            inner = began.pop()
            if not began:
                outer[0] = inner

    outer = [0.0]

    def backward(*args, **kwargs):
        right(*args, **kwargs)
        now = time.perf_counter()
        until = now + 0.2 * (now - outer[0])
        while time.perf_counter() < until:
            pass

    def init_process_group(*args, **kwargs):
        sys.planted = b"x" * 200_000_000
        return group(*args, **kwargs)

    torch.nn.Module.__call__ = forward
    torch.Tensor.backward, dist.init_process_group = backward, init_process_group
"""


def certified(directory, planted, measures):
    """The lines that were measured and the differences, with what is planted in the candidate."""
    context = context_of(directory, topologies=(Topology.SINGLE_NODE, Topology.DP), pairs=PAIRS)
    work = msgspec.structs.replace(context.plan.workload, steps=STEPS)
    plan = msgspec.structs.replace(context.plan, measures=measures, workload=work)
    stack = msgspec.structs.replace(context.stacks["candidate"], env=plant_in_torch(directory, planted))
    stacks = {**context.stacks, "candidate": stack}
    result = CanaryCell(plan).run(msgspec.structs.replace(context, plan=plan, stacks=stacks))
    lines = [line for line in result.lines if line.baseline]
    for line in lines:
        print(line.id, line.verdict.value, line.detail)
    return lines, result.differences


@pytest.mark.parametrize("repeat", REPEATS)
def test_the_same_stack_twice_is_no_difference(tmp_path, repeat):
    lines, differences = certified(tmp_path, NOTHING, EQUAL)
    assert lines
    assert Verdict.FAIL not in {line.verdict for line in lines}
    assert differences == ()


@pytest.mark.parametrize("repeat", REPEATS)
def test_a_fifth_slower_and_200_mb_larger_are_each_found(tmp_path, repeat):
    lines, differences = certified(tmp_path, SLOWER_AND_LARGER, PLANTED)
    found = {line.id.rpartition("/")[2]: line.verdict for line in lines}
    assert set(found) == {"memory-before-first-step", "memory-peak", "throughput"}
    assert set(found.values()) == {Verdict.FAIL}, [line.detail for line in lines]
    assert {difference.line for difference in differences} == {line.id for line in lines}
