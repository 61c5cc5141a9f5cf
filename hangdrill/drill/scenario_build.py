"""Make a scenario from a few words instead of a file: for the command line and for drills written in Python.

What is not said is expected by the truth that is injected: the ranks the fault is placed on are the culprits, and every
rank that can leave a dump leaves one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hangdrill.drill.scenario_file import NamedScenario, validate
from hangdrill.model.errors import UsageError
from hangdrill.model.scenario import FaultKind

__all__ = ["Words", "build", "parse_before", "parse_group"]

HARMLESS = frozenset({FaultKind.NONE.value, FaultKind.SLOW.value})
DUMPLESS = frozenset({FaultKind.STOP.value, FaultKind.KILL.value, FaultKind.STORE_DEATH.value})
"""The culprit's process can give no dump."""
ABORTS_ON_GLOO = frozenset({FaultKind.WRONG_SHAPE.value, FaultKind.WRONG_DTYPE.value})
IMPLIED_PLACE = frozenset({FaultKind.IN_DESTROY.value, FaultKind.DATALOADER.value, FaultKind.NONE.value})
DEFAULT_WORLD = 2


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """The words. hold: ranks, the short form of fault = "hold". before: "all_reduce:40". group: "tp" or "0,1".

    None means not said, and then the default of the scenario's key holds. culprits None: the ranks of the fault.
    """

    workload: str | None = None
    script: str | None = None
    args: tuple[str, ...] = ()
    nproc: int | None = None
    nnodes: int | None = None
    backend: str | None = None
    steps: int | None = None
    timeout_s: float | None = None
    max_restarts: int | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    fault: str | None = None
    ranks: tuple[int, ...] = ()
    hold: tuple[int, ...] = ()
    before: str | None = None
    group: str | None = None
    at: str | None = None
    delay_s: float | None = None
    trigger: str | None = None
    dumps: str | tuple[int, ...] | None = None
    culprits: tuple[int, ...] | None = None
    within_s: float | None = None
    title: str | None = None
    name: str | None = None


def build(words: Words, *, source: str, cwd: Path | None = None) -> NamedScenario:
    """The scenario. source names where the words came from in an error ("command line")."""
    if words.hold and words.fault not in (None, FaultKind.HOLD.value):
        raise UsageError(
            f"both hold and fault = {words.fault}", where=source, next_step="a drill places one fault: keep one"
        )
    if words.group is not None and words.before is None:
        raise UsageError(
            "a group, and no operation in it", where=source, next_step="add before, for instance all_reduce:4"
        )
    kind = FaultKind.HOLD.value if words.hold else words.fault or FaultKind.NONE.value
    ranks = tuple(sorted({*words.hold, *words.ranks}))
    name = words.name or _name(words, kind, ranks)
    tables = {
        "title": words.title or f"{name} from the {source}",
        "job": _job(words),
        "fault": _fault(words, kind, ranks),
        "recorder": _said(trigger=words.trigger),
        "expect": _expect(words, kind, ranks),
    }
    return validate(tables, name=name, path=None, source=source, cwd=cwd)


def parse_before(text: str, group: str | None, *, source: str) -> dict[str, Any]:
    """ "all_reduce:40" -> the table of fault.before; "any:40" counts every operation, without a number the first."""
    op, _, nth = text.partition(":")
    if nth and not nth.isdecimal():
        raise UsageError(f'"{nth}" is no number', where=f"{source}: before", next_step="write it as all_reduce:40")
    table: dict[str, Any] = {"nth": int(nth or 1)}
    if op not in ("", "any"):
        table["op"] = op
    return table if group is None else {**table, "group": parse_group(group)}


def parse_group(text: str) -> str | list[int]:
    """ "0,1" are global ranks, anything else is a name or a description."""
    parts = [part.strip() for part in text.split(",")]
    return [int(part) for part in parts] if len(parts) > 1 and all(part.isdecimal() for part in parts) else text


def _job(words: Words) -> dict[str, Any]:
    return {
        "args": list(words.args),
        "env": words.env,
        **_said(
            workload=words.workload,
            script=words.script,
            nproc_per_node=words.nproc,
            nnodes=words.nnodes,
            backend=words.backend,
            steps=words.steps,
            timeout_s=words.timeout_s,
            max_restarts=words.max_restarts,
        ),
    }


def _fault(words: Words, kind: str, ranks: Sequence[int]) -> dict[str, Any]:
    table: dict[str, Any] = {"kind": kind, "ranks": list(ranks), **_said(at=words.at, delay_s=words.delay_s)}
    if words.before is not None:
        table["before"] = parse_before(words.before, words.group, source="fault")
    elif words.at is None and kind not in IMPLIED_PLACE and words.workload is not None:
        table["at"] = "step:3"
    return table


def _expect(words: Words, kind: str, ranks: Sequence[int]) -> dict[str, Any]:
    culprits = words.culprits if words.culprits is not None else () if kind in HARMLESS else ranks
    dumps = words.dumps if words.dumps is not None else _expected_dumps(words, kind, ranks)
    return {
        "culprits": list(culprits),
        "dumps": dumps if isinstance(dumps, str) else list(dumps),
        **_said(within_s=words.within_s),
    }


def _expected_dumps(words: Words, kind: str, ranks: Sequence[int]) -> str | list[int]:
    if kind in HARMLESS:
        return "none"
    aborts = kind in ABORTS_ON_GLOO and (words.backend or "gloo") == "gloo"
    if kind in DUMPLESS or aborts:
        return [rank for rank in range((words.nproc or DEFAULT_WORLD) * (words.nnodes or 1)) if rank not in ranks]
    return "all"


def _name(words: Words, kind: str, ranks: Sequence[int]) -> str:
    job = words.workload or Path(words.script or "job").stem
    return "-".join([job, kind, *(f"r{rank}" for rank in ranks)])


def _said(**values: object) -> Mapping[str, object]:
    """Only the keys that were said."""
    return {key: value for key, value in values.items() if value is not None}
