"""What the two fingerprints alone answer: each line passes, fails or is unknown on a stack made for it."""

from typing import Any

import pytest
from sample_receipts import extension, fingerprint

from hangdrill.certify.declared import is_declared
from hangdrill.certify.stack_lines import stack_lines
from hangdrill.certify.stacks import Stack
from hangdrill.model.certify_plan import CertifyPlan, StackPlan, WorkPlan
from hangdrill.model.receipt import Line
from hangdrill.model.verdict import Verdict

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN


def stack(name: str, missing: str = "", **changed: Any) -> Stack:
    return Stack(
        name=name,
        python=f"/{name}/python",
        fingerprint=fingerprint(**changed) if "fingerprint" not in changed else None,
        missing=missing,
        next_step="mend it" if missing else "",
    )


def lines(candidate: Stack, *, baseline: Stack | None = None, backend: str = "nccl") -> dict[str, Line]:
    side = StackPlan(python="x")
    plan = CertifyPlan(title="t", baseline=side, candidate=side, workload=WorkPlan(backend=backend))
    return {line.id: line for line in stack_lines(plan, baseline or stack("baseline"), candidate)}


def test_two_whole_stacks_pass_every_line() -> None:
    found = lines(stack("candidate"))
    assert {name: line.verdict for name, line in found.items()} == dict.fromkeys(found, PASS)


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        ({"torch_git": ""}, "stack/candidate/build", UNKNOWN),
        ({"wheel": ""}, "stack/candidate/wheel", UNKNOWN),
        ({"changed_files": ("torch/distributed/c10d.py",)}, "stack/candidate/wheel", FAIL),
        ({"extensions": (extension(loads=False, error="undefined symbol"),)}, "stack/candidate/extensions", UNKNOWN),
        ({"extensions": (extension(built_with="2.14"),)}, "stack/candidate/extensions", UNKNOWN),
        ({"extensions": (extension(loads=None),)}, "stack/candidate/extensions", UNKNOWN),
        ({"extensions": (extension(built_with="2.14", stable_abi=True),)}, "stack/candidate/extensions", PASS),
        ({"extensions": (extension(built_with=""),)}, "stack/candidate/extensions", PASS),
        ({"driver": None}, "stack/driver", UNKNOWN),
        ({"nccl": None}, "stack/driver", UNKNOWN),
        ({"gpus": ()}, "stack/topology", FAIL),
        ({"host": "node-2"}, "stack/topology", FAIL),
    ],
)
def test_one_changed_fact_changes_its_line(changed: dict[str, Any], name: str, verdict: Verdict) -> None:
    found = lines(stack("candidate", **changed))[name]
    assert found.verdict is verdict
    assert bool(found.mend) == (verdict is not PASS)


def test_a_missing_stack_makes_every_line_of_it_unknown_with_the_next_step() -> None:
    found = lines(stack("candidate", missing="there is no Python", fingerprint=None))
    unknown = {name for name, line in found.items() if line.verdict is UNKNOWN}
    assert unknown == {name for name in found if not name.startswith("stack/baseline")}
    assert all(found[name].mend == "mend it" for name in unknown)


def test_on_gloo_no_driver_is_needed() -> None:
    assert lines(stack("candidate", driver=None, nccl=None), backend="gloo")["stack/driver"].verdict is PASS


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("torch", "torch", True),
        ("torch", "torch.git", True),
        ("torch", "package:torch", True),
        ("torch", "package:torchvision", False),
        ("nvidia-*", "package:nvidia-nccl-cu13", True),
        ("NCCL_ALGO", "env:NCCL_ALGO", True),
        ("env:NCCL_*", "env:NCCL_ALGO", True),
        ("nccl", "env:nccl", True),
        ("numpy", "nccl", False),
        ("canary/*/memory-*", "canary/dp/memory-peak/worse", True),
    ],
)
def test_what_a_pattern_of_the_plan_declares(pattern: str, name: str, fits: bool) -> None:
    assert is_declared([pattern], name) is fits
