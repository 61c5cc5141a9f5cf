"""Run one cell so that nothing it promised goes unmentioned, whatever becomes of it."""

import errno
import hashlib
import shutil
import traceback
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hangdrill import __version__
from hangdrill.certify.cells import Cell, CellContext, CellResult, unknown_lines
from hangdrill.certify.checkpoint_kept import key_of_files
from hangdrill.certify.stacks import Stack
from hangdrill.model.certify_plan import CertifyPlan, Topology
from hangdrill.model.errors import HangdrillError, Interrupted
from hangdrill.model.receipt import Item

__all__ = ["LEFT_OUT", "RUN_IT_TOO", "blocked_by", "key_of", "left_out", "run_cell"]

REFUSALS = frozenset(
    {
        errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
        errno.EIO, errno.ESTALE,
    }
)  # fmt: skip
"""What the system refuses is no bug of hangdrill's."""
LEFT_OUT = "left out by --only"
RUN_IT_TOO = "run it too: the same command with --resume and without --only"


def key_of(cell: Cell, plan: CertifyPlan, stacks: Mapping[str, Stack]) -> str:
    """Of everything that a cell's result depends on. What is declared, the ring, how long the receipt is good and the
    like are not part of it: they may be mended without measuring again."""
    parts: list[object] = [cell.id, plan.workload, plan.seed, plan.topologies, plan.thresholds, plan.price]
    parts += [plan.measures, __version__, cell.claims]  # another hangdrill may measure and judge in another way
    parts.append(_digest_of(plan.workload.script))
    if cell.topology == Topology.MULTI_NODE.value:
        parts.append(plan.nodes)
    items = {claim.item for claim in cell.claims}
    if Item.CHECKPOINT in items:
        parts += [plan.checkpoint, key_of_files(Path(plan.checkpoint.known_good)) if plan.checkpoint.known_good else ""]
    if Item.ROLLBACK in items:
        parts.append(plan.rollback)
    others = {stack.name for stack in plan.checkpoint.stack} if Item.CHECKPOINT in items else set()
    for name in sorted({*cell.needs.stacks, *others}):
        stack = stacks.get(name)
        found = stack.fingerprint if stack is not None else None
        parts.append((name, found.digest if found is not None else "", stack.env if stack is not None else {}))
        parts.append(stack.mounts if stack is not None else ())
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def _digest_of(script: str | None) -> str:
    """Of the script's text: an edited one is another workload."""
    if script is None:
        return ""
    try:
        return hashlib.sha256(Path(script).read_bytes()).hexdigest()
    except OSError:
        return "unreadable"


def left_out(cell: Cell) -> CellResult:
    """The result of a cell that `--only` does not name."""
    return _unable(cell, LEFT_OUT, RUN_IT_TOO)


def blocked_by(cell: Cell, stacks: Mapping[str, Stack], environ: Mapping[str, str]) -> CellResult | None:
    """The result of a cell that cannot begin, since something that it needs is not there; None when it can."""
    for name in cell.needs.stacks:
        stack = stacks.get(name)
        if stack is None:
            return _unable(cell, f"the plan has no stack {name}", "add it to the plan")
        if stack.missing:
            return _unable(cell, f"{name}: {stack.missing}", stack.next_step)
        if stack.image and not getattr(cell, "takes_images", False):
            hint = f"measure it with an environment of this host: name its Python for the {name}"
            return _unable(cell, f"{name} is a container image, and this is not run in one yet", hint)
        gpus = len(stack.fingerprint.gpus) if stack.fingerprint is not None else 0
        if gpus < cell.needs.gpus:
            hint = f"run it on a host with {cell.needs.gpus} GPUs, or take {cell.topology or 'it'} out of the plan"
            return _unable(cell, f"it needs {cell.needs.gpus} GPUs, and {name} has {gpus} here", hint)
    for program in cell.needs.programs:
        if shutil.which(program, path=environ.get("PATH")) is None:
            return _unable(cell, f"there is no {program} on this host", f"run it where {program} is")
    return None


def run_cell(cell: Cell, context: CellContext) -> CellResult:
    """Run it. What it does not deliver becomes UNKNOWN; only Interrupted is let out."""
    try:
        result = cell.run(context)
    except Interrupted:
        raise
    except HangdrillError as error:
        context.interrupt.check()
        return _unable(cell, error.what if not error.where else f"{error.where}: {error.what}", error.next_step)
    except Exception as error:  # one cell's failure must not end the others
        context.interrupt.check()
        if isinstance(error, OSError) and error.errno in REFUSALS:
            why = f"the system refused: {error.strerror}{f': {error.filename}' if error.filename else ''}"
            return _unable(cell, why, "mend that, and add --resume")
        file = context.cell_dir / "error.txt"
        file.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        why = f"the cell failed: {type(error).__name__}: {error}"
        hint = f"this is a bug in hangdrill: report it with {file.relative_to(context.out_dir)}"
        return msgspec.structs.replace(_unable(cell, why, hint), artifacts=context.evidence(file))
    return _completed(cell, result)


def _completed(cell: Cell, result: CellResult) -> CellResult:
    """With an UNKNOWN line for every claim that the cell did not answer."""
    told = {line.id for line in result.lines}
    silent = tuple(claim for claim in cell.claims if claim.id not in told)
    why, hint = "the cell ended without an answer to it", "this is a bug in hangdrill: report it"
    lines = (*result.lines, *unknown_lines(silent, why, hint))
    return msgspec.structs.replace(result, id=cell.id, topology=cell.topology, lines=lines)


def _unable(cell: Cell, why: str, next_step: str) -> CellResult:
    return CellResult(
        id=cell.id,
        topology=cell.topology,
        lines=unknown_lines(cell.claims, why, next_step),
        ran=False,
        why_not=why,
    )
