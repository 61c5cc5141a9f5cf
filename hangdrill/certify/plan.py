"""PLAN.toml -> CertifyPlan. Every mistake is a UsageError with file, line, key and what to write instead.

Paths of Pythons, scripts, checkpoints, receipts and keys are made absolute, from the plan's directory; `~`, `..` and
`${NAME}` are replaced, and `${HANGDRILL_STACKS}` is ~/.cache/hangdrill-stacks where the variable is not set.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from hangdrill.certify.nodes_plan import node_mistakes, with_node_count
from hangdrill.certify.plan_bounds import beyond_reason
from hangdrill.certify.plan_images import fill_image, image_mistakes
from hangdrill.certify.plan_ring import fill_keys, ring_mistakes
from hangdrill.drill.scenario_shape import Problem, convert, usage_error
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.errors import UsageError
from hangdrill.model.receipt import PlanRecord

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["DEFAULT_STACKS", "STACKS_VARIABLE", "LoadedPlan", "load_plan", "plan_of"]

STACKS_VARIABLE = "HANGDRILL_STACKS"
DEFAULT_STACKS = "~/.cache/hangdrill-stacks"
MAX_FILE_BYTES = 1_000_000
SIDES = ("baseline", "candidate")
STACK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")


class LoadedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A valid plan, the record of it as given, and warnings: allowed, and probably not meant."""

    plan: CertifyPlan
    record: PlanRecord
    warnings: tuple[str, ...] = ()


def load_plan(path: Path, environ: Mapping[str, str]) -> LoadedPlan:
    """Read and check a plan. UsageError with all mistakes at once."""
    try:
        with path.open("rb") as file:  # its size alone says nothing of a device or a pipe
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise UsageError("the file is larger than 1 MB: no plan", where=str(path))
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        hint = "docs/certify.md shows how to write one"
        raise UsageError(f"cannot read the plan: {what}", where=str(path), next_step=hint) from error
    return plan_of(text, path=path, environ=environ)


def plan_of(text: str, *, path: Path, environ: Mapping[str, str]) -> LoadedPlan:
    """The plan of a text, which stands for the file `path`."""
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError is one; a number of 5000 digits raises a plain one
        raise UsageError(f"not valid TOML: {error}", where=str(path), next_step="mend the line") from error
    except RecursionError as error:
        raise UsageError("lists in lists without end", where=str(path), next_step="write a plan") from error
    of_paths: list[Problem] = []
    plan, problems = convert(_with_paths(data, path.absolute().parent, environ, of_paths), CertifyPlan)
    problems += of_paths
    if plan is not None:
        plan = with_node_count(plan)
        problems += _mistakes(plan)
    if plan is None or problems:
        raise usage_error(problems, file=str(path), text=text)
    record = PlanRecord(path=str(path), sha256=hashlib.sha256(text.encode()).hexdigest(), text=text)
    return LoadedPlan(plan=plan, record=record, warnings=tuple(_warnings(plan)))


def _with_paths(
    data: dict[str, Any], home: Path, environ: Mapping[str, str], problems: list[Problem]
) -> dict[str, Any]:
    """The tables with every path absolute. Whatever has a wrong type is left for `convert` to say so."""

    def mend(table: object, key: str, where: str) -> None:
        if isinstance(table, dict) and isinstance(table.get(key), str):
            table[key] = _path(table[key], home, environ, f"{where}.{key}", problems)

    def mend_stack(table: object, where: str) -> None:
        if not fill_image(table, lambda text: _path(text, home, environ, f"{where}.mounts", problems)):
            mend(table, "python", where)

    for side in SIDES:
        mend_stack(data.get(side), side)
    checkpoint = data.get("checkpoint")
    stacks = checkpoint.get("stack") if isinstance(checkpoint, dict) else None
    for number, stack in enumerate(stacks if isinstance(stacks, list) else ()):
        mend_stack(stack, f"checkpoint.stack[{number}]")
    mend(checkpoint, "known_good", "checkpoint")
    mend(data.get("workload"), "script", "workload")
    mend(data.get("ring"), "receipt_before", "ring")
    fill_keys(data.get("ring"), lambda text: _path(text, home, environ, "ring.key", problems))
    return data


def _path(text: str, home: Path, environ: Mapping[str, str], key: str, problems: list[Problem]) -> str:
    """Absolute; of a Python, a bare word ("python3.12") is left alone, to be found on PATH."""
    known = {STACKS_VARIABLE: DEFAULT_STACKS, **environ}

    def replaced(match: "re.Match[str]") -> str:
        name = match[1]
        if name not in known:
            problems.append(Problem(key, f"the variable {name} is not set", f"set {name}, or write the path out"))
        return known.get(name, match[0])

    full = re.sub(r"\$\{(\w+)\}", replaced, text)
    if full == "~" or full.startswith("~/"):
        full = environ.get("HOME", "~") + full[1:]
    return full if "/" not in full and key.endswith(".python") else _without_dots(home / full)


def _without_dots(path: Path) -> str:
    """Without "a/.." in it, for it stands on the page; as it was written where a link makes that another place."""
    short = os.path.normpath(path)
    same = "\0" in short or os.path.realpath(short) == os.path.realpath(path)
    return short if same else str(path)


def _mistakes(plan: CertifyPlan) -> Iterator[Problem]:
    """What no single key shows."""
    work = plan.workload
    for key in ("nnodes", "nproc_per_node", "steps", "timeout_s", "pairs", "deadline_s"):
        if getattr(work, key) <= 0:
            yield Problem(f"workload.{key}", f"it must be more than 0, got {getattr(work, key):g}")
    if plan.valid_days < 1:
        yield Problem("valid_days", f"it must be 1 or more, got {plan.valid_days}", "a receipt is good for days")
    if not plan.topologies:
        yield Problem("topologies", "there are none", 'name at least one: ["single-node"]')
    for topology in sorted({one.value for one in plan.topologies if plan.topologies.count(one) > 1}):
        yield Problem("topologies", f'"{topology}" stands there twice', "name it once")
    if not plan.measures:
        yield Problem("measures", "there are none", 'leave it out for all, or name some: ["memory-peak"]')
    for measure, threshold in plan.thresholds.items():
        for name in ("ratio", "absolute"):
            if (value := getattr(threshold, name)) is not None and value < 0:
                yield Problem(f"thresholds.{measure.value}.{name}", f"it must not be negative, got {value:g}")
    if plan.price is not None and plan.price.per_hour <= 0:
        yield Problem("price.per_hour", f"it must be more than 0, got {plan.price.per_hour:g}")
    if work.script is not None and not Path(work.script).is_file():
        yield Problem("workload.script", f'no such script "{work.script}"', "name it from the plan's directory")
    yield from node_mistakes(plan)
    yield from beyond_reason(plan)
    yield from image_mistakes(plan)
    yield from _stack_mistakes(plan)
    yield from ring_mistakes(plan.ring)
    if plan.rollback.expires and _date(plan.rollback.expires) is None:
        yield Problem("rollback.expires", f'"{plan.rollback.expires}" is no date', 'write it as "2027-03-31"')


def _stack_mistakes(plan: CertifyPlan) -> Iterator[Problem]:
    names = [*SIDES, *(stack.name for stack in plan.checkpoint.stack)]
    for number, stack in enumerate(plan.checkpoint.stack):
        key = f"checkpoint.stack[{number}].name"
        if not STACK_NAME.fullmatch(stack.name):
            yield Problem(key, f'"{stack.name}" is no name', 'letters, digits, ".", "_" and "-", such as "2.13"')
        elif names.count(stack.name) > 1:
            yield Problem(key, f'two stacks are called "{stack.name}"', "give each a name of its own")


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else None
    except ValueError:
        return None


def _warnings(plan: CertifyPlan) -> Iterator[str]:
    if plan.baseline == plan.candidate:
        yield "baseline and candidate are the same stack: this certifies no upgrade"
    if not plan.rollback.owner and "nccl" in plan.workload.backend:
        yield "rollback.owner is empty: a fallback that nobody owns is refused"
    if plan.rollback.expires and "nccl" not in plan.workload.backend:
        yield f"rollback.expires is not used: torch has no fallback for {plan.workload.backend} that could expire"
