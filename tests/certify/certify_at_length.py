"""Real pairs of real stacks, a quarter of an hour on two quiet cores: `make certify`. CI does the same on pairs
that were kept (test_real_pairs.py) and on simulated ones (test_canary_lines.py).

Candidate = baseline, a stack whose every backward pass takes longer, and one that takes 200 MB more: each is planted in
the interpreter, as a changed package would be, and hangdrill is told nothing.
"""

import os

import msgspec
import pytest
from certify_contexts import context_of

from hangdrill.certify.canary import CanaryCell
from hangdrill.model.certify_plan import Measure, Topology
from hangdrill.model.verdict import Verdict

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(1800)]

PAIRS = int(os.environ.get("HANGDRILL_PAIRS", "16"))
SLOWER = """
import importlib.abc, importlib.util, sys, time

class Planted(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            right = module.Tensor.backward

            def backward(*args, **kwargs):
                began = time.perf_counter()
                right(*args, **kwargs)
                until = began + 1.5 * (time.perf_counter() - began)
                while time.perf_counter() < until:
                    pass

            module.Tensor.backward = backward

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Planted())
"""
LARGER = "import sys\nsys.planted = b'x' * 200_000_000\n"


def certified(directory, planted, measure):
    """The lines of one measure and the differences, with what is planted in the candidate."""
    context = context_of(directory, topologies=(Topology.SINGLE_NODE, Topology.DP), pairs=PAIRS)
    work = msgspec.structs.replace(context.plan.workload, steps=200)
    plan = msgspec.structs.replace(context.plan, measures=(measure,), workload=work)
    (directory / "planted").mkdir()
    (directory / "planted/sitecustomize.py").write_text(planted)
    stack = msgspec.structs.replace(context.stacks["candidate"], env={"PYTHONPATH": str(directory / "planted")})
    stacks = {**context.stacks, "candidate": stack}
    result = CanaryCell(plan).run(msgspec.structs.replace(context, plan=plan, stacks=stacks))
    lines = [line for line in result.lines if line.baseline]
    for line in lines:
        print(line.id, line.verdict.value, line.detail)
    return lines, result.differences


@pytest.mark.parametrize("measure", [Measure.THROUGHPUT, Measure.MEMORY_PEAK])
def test_the_same_stack_twice_is_no_difference(tmp_path, measure):
    lines, differences = certified(tmp_path, "", measure)
    assert lines
    assert Verdict.FAIL not in {line.verdict for line in lines}
    assert differences == ()


@pytest.mark.parametrize(
    ("planted", "measure"),
    [
        pytest.param(SLOWER, Measure.THROUGHPUT, id="throughput-of-a-slower-one"),
        pytest.param(LARGER, Measure.MEMORY_PEAK, id="memory-of-a-larger-one"),
    ],
)
def test_a_stack_that_is_slower_or_larger_is_found(tmp_path, planted, measure):
    (line,), (difference,) = certified(tmp_path, planted, measure)
    assert line.verdict is Verdict.FAIL, line.detail
    assert difference.line == line.id
