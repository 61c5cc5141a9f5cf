"""What no plan may say: numbers that are none or beyond all reason, empty or unprintable texts, one name twice.

Said before anything is measured: a receipt that is good for a million years would fail hours later, when it is made,
and a limit of infinity would pass whatever was measured. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hangdrill.drill.scenario_bounds import between
from hangdrill.drill.scenario_shape import Problem
from hangdrill.model.certify_plan import CertifyPlan

__all__ = ["beyond_reason"]

MOST_DAYS = 3650
MOST = {"nproc_per_node": 1024, "steps": 1_000_000, "pairs": 1000, "timeout_s": 86_400, "deadline_s": 604_800}
"""Of the workload."""
MOST_RATIO = 100.0
MOST_AMOUNT = 1e12
LARGEST_SEED = (1 << 63) - 1


def beyond_reason(plan: CertifyPlan) -> Iterator[Problem]:
    """Every such mistake. What is too small is for `plan.py` to say."""
    if not plan.rollback.roads:
        yield Problem("rollback.roads", "there are none, so no way back would be tried", "leave it out for both")
    yield from _numbers(plan)
    yield from _texts(plan)
    yield from _twice(plan)
    for where, table in _environments(plan):
        for name in table:
            if not name or "=" in name or not name.isprintable():
                yield Problem(where, f"{name!r} is no name of a variable", 'write { NCCL_ALGO = "Ring" }')


def _numbers(plan: CertifyPlan) -> Iterator[Problem]:
    work = plan.workload
    for key, most in MOST.items():
        if not getattr(work, key) <= 0:  # nan is not more than 0 either
            yield from between(f"workload.{key}", getattr(work, key), 0, most, above=True)
    if plan.valid_days > MOST_DAYS:
        yield from between("valid_days", plan.valid_days, 1, MOST_DAYS)
    yield from between("seed", plan.seed, 0, LARGEST_SEED)
    for measure, threshold in plan.thresholds.items():
        for name, limit in (("ratio", MOST_RATIO), ("absolute", MOST_AMOUNT)):
            value = getattr(threshold, name)
            if value is not None and not value < 0:
                yield from between(f"thresholds.{measure.value}.{name}", value, 0, limit)
    if plan.price is not None and not plan.price.per_hour <= 0:
        yield from between("price.per_hour", plan.price.per_hour, 0, MOST_AMOUNT, above=True)


def _texts(plan: CertifyPlan) -> Iterator[Problem]:
    needed = {
        "title": plan.title,
        "baseline.python": plan.baseline.python,
        "candidate.python": plan.candidate.python,
        "workload.backend": plan.workload.backend,
        **{f"checkpoint.stack[{at}].python": one.python for at, one in enumerate(plan.checkpoint.stack)},
        **{f"ring.order[{at}]": name for at, name in enumerate(plan.ring.order)},
    }
    for key, text in needed.items():
        if not text.strip():
            yield Problem(key, "it is empty", "give it a text")
        elif not text.isprintable():
            yield Problem(key, "it has a character that cannot be printed", "remove it")
    for key, text in _leaves(msgspec.to_builtins(plan), ""):
        if "\0" in text and key not in needed:
            yield Problem(key, "it has a NUL character, which no program takes", "remove it")


def _leaves(value: Any, key: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - the builtins of a plan
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _leaves(one, f"{key}.{name}".strip("."))
    elif isinstance(value, Sequence):
        for at, one in enumerate(value):
            yield from _leaves(one, f"{key}[{at}]")


def _twice(plan: CertifyPlan) -> Iterator[Problem]:
    lists: dict[str, Sequence[str]] = {
        "measures": [one.value for one in plan.measures],
        "checkpoint.modes": plan.checkpoint.modes,
        "checkpoint.layouts": plan.checkpoint.layouts,
        "rollback.roads": plan.rollback.roads,
        "ring.order": plan.ring.order,
    }
    for key, names in lists.items():
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield Problem(key, f'"{name}" stands there twice', "name it once")


def _environments(plan: CertifyPlan) -> Iterator[tuple[str, Mapping[str, str]]]:
    yield "baseline.env", plan.baseline.env
    yield "candidate.env", plan.candidate.env
    yield "workload.env", plan.workload.env
    for at, stack in enumerate(plan.checkpoint.stack):
        yield f"checkpoint.stack[{at}].env", stack.env
