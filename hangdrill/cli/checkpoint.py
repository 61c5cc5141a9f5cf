"""`hangdrill checkpoint pairs|look|duplicate`: which stack restores whose checkpoints, and what the files are."""

import os
import re
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from hangdrill.cli.output import console, default_out_dir, print_json, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hangdrill.certify.checkpoint_attempts import DrillStack
    from hangdrill.certify.checkpoint_look import Look
    from hangdrill.drill.waiting import Interrupt

__all__ = ["checkpoint"]

PROBE_DEADLINE_S = 60.0
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group(short_help="Which stack restores whose checkpoints? Is one whole?")
def checkpoint() -> None:
    """Checkpoints and versions: which stack restores whose, and whether a checkpoint is whole."""


@checkpoint.command()
@click.argument("pythons", nargs=-1, required=True, metavar="[NAME=]PYTHON...")
@click.option("--out", type=FOLDER, help="Where checkpoints, notes and logs go.  [default: hangdrill-runs/TIME]")
@click.option(
    "--layout", "layouts", multiple=True, type=click.Choice(["plain", "fsdp2"]), help="plain is DDP.  [default: both]"
)
@click.option(
    "--mode", "modes", multiple=True, type=click.Choice(["sync", "async"]), help="How to save.  [default: both]"
)
@click.option("--save", default="", metavar="COMMAND", help="Also your own script: saves to {checkpoint}.")
@click.option("--restore", default="", metavar="COMMAND", help="Restores from {checkpoint}.")
@click.option("--nproc", type=click.IntRange(min=1), default=2, show_default=True, help="Ranks.")
@click.option("--backend", default="gloo", show_default=True, help="Backend of the process group.")
@click.option(
    "--limit-s", type=float, default=120.0, show_default=True, help="The longest one save or restore may take."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON list of rows, as in a receipt.")
def pairs(
    pythons: tuple[str, ...],
    *,
    out: Path | None,
    layouts: tuple[Literal["plain", "fsdp2"], ...],
    modes: tuple[Literal["sync", "async"], ...],
    as_json: bool,
    **how: Any,  # noqa: ANN401 - each option has its own type
) -> int:
    """Save with each PYTHON and restore with each, in fresh processes; print which restores whose, bit-equal.

    PYTHON is the interpreter of a stack, as venv/bin/python; NAME defaults to its version of torch.
    """
    import msgspec

    from hangdrill.certify.checkpoint_attempts import DrillOptions
    from hangdrill.certify.checkpoint_pairs import PairDrill, drill_pairs
    from hangdrill.certify.checkpoints import check_drill, variants_of
    from hangdrill.drill.waiting import Interrupt, handling_signals
    from hangdrill.model.certify_plan import CheckpointPlan
    from hangdrill.report.checkpoint_table import print_pairs

    plan = CheckpointPlan(
        layouts=tuple(dict.fromkeys(layouts)) or ("plain", "fsdp2"),
        modes=tuple(dict.fromkeys(modes)) or ("sync", "async"),
        limit_s=how["limit_s"],
        save=how["save"],
        restore=how["restore"],
    )
    check_drill(plan)
    options = DrillOptions(
        variants=variants_of(plan),
        cwd=Path.cwd(),
        ranks=how["nproc"],
        backend=how["backend"],
        limit_s=plan.limit_s,
        save=plan.save,
        restore=plan.restore,
    )
    out_dir = (out or default_out_dir(Path.cwd(), time.time())).absolute()
    screen = console(stderr=True)
    with Interrupt() as interrupt, handling_signals(interrupt):
        stacks = _stacks(pythons, interrupt)
        with _own(out_dir):
            drill = PairDrill(options, work_dir=out_dir, out_dir=out_dir, interrupt=interrupt, tell=screen.print)
            table = drill_pairs(drill, stacks)
    write_file(out_dir / "pairs.json", msgspec.json.format(msgspec.json.encode(table.pairs), indent=2))
    if as_json:
        print_json(table.pairs)
    else:
        print_pairs(console(), table.pairs)
        click.echo(f"evidence: {out_dir}")
    return _exit_code(table.pairs)


@checkpoint.command()
@click.argument("directory", type=FOLDER)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def look(directory: Path, *, as_json: bool) -> int:
    """Say whether a checkpoint's files are whole, partial or damaged, and which torch reads them. Needs no torch."""
    from hangdrill.certify.checkpoint_look import CheckpointState
    from hangdrill.certify.checkpoint_look import look as look_at
    from hangdrill.model.errors import ExitCode, UsageError

    found = look_at(directory)
    if found.state is CheckpointState.ELSE:
        raise UsageError(
            "no checkpoint of torch.distributed.checkpoint",
            where=str(directory),
            next_step="name the directory that holds .metadata",
        )
    if as_json:
        print_json(found)
    else:
        _print_look(found)
    codes = {CheckpointState.WHOLE: ExitCode.PASS, CheckpointState.UNKNOWN: ExitCode.UNKNOWN}
    return int(codes.get(found.state, ExitCode.FAIL))


@checkpoint.command("duplicate")
@click.argument("source", type=FOLDER)
@click.argument("to", type=FOLDER)
def duplicate_command(source: Path, to: Path) -> None:
    """Copy a checkpoint, read the copy back, compare each sha256. TO appears whole or not at all.

    Do this with the first checkpoint that a new stack wrote, before an older one is deleted.
    """
    from hangdrill.certify.checkpoint_files import duplicate
    from hangdrill.certify.checkpoint_look import CheckpointState
    from hangdrill.certify.checkpoint_look import look as look_at
    from hangdrill.model.errors import UsageError

    def require_whole(directory: Path, what: str, next_step: str) -> None:
        found = look_at(directory)
        if found.state is CheckpointState.UNKNOWN:
            why = f"not copied: nobody can tell whether {what} is whole: {found.problems[0]}"
            raise UsageError(why, where=str(source), next_step=found.next_step)
        if not found.is_whole:
            why = f"not copied: {what} is {found.state.value}: {found.problems[0]}"
            raise UsageError(why, where=str(source), next_step=next_step)

    require_whole(source, "the checkpoint", "name a whole checkpoint")
    again = "copy it again when nobody writes to it"
    copied = duplicate(source, to, prove=lambda copy: require_whole(copy, "its copy", again))
    size = sum(file.bytes for file in copied.files)
    click.echo(f"{to}: {len(copied.files)} files, {size} bytes, each sha256 equal")


def _stacks(words: tuple[str, ...], interrupt: "Interrupt") -> "list[DrillStack]":
    """By name; a Python that cannot run a job has the reason with it, and the others go on."""
    from hangdrill.certify.checkpoint_attempts import DrillStack

    stacks: list[DrillStack] = []
    for word in words:
        given, is_named, rest = word.partition("=")
        # After NAME= no shell replaces "~"; Path.expanduser would raise for a user that is not there.
        python = os.path.expanduser(rest if is_named else word)  # noqa: PTH111 - a text
        version, missing = _torch_of(python, interrupt)
        name = given if is_named else version.partition("+")[0] or Path(python).name
        taken = [stack.name for stack in stacks]
        number = 2
        while name in taken:
            name, number = f"{name.partition('#')[0]}#{number}", number + 1
        stacks.append(DrillStack(name=_checked(name), python=python, environ=dict(os.environ), missing=missing))
    return stacks


def _checked(name: str) -> str:
    """It is the name of a directory too."""
    from hangdrill.model.errors import UsageError

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._#-]{0,60}", name):
        raise UsageError("not a name of a stack", where=name, next_step="use letters, digits, dots and dashes")
    return name


def _torch_of(python: str, interrupt: "Interrupt") -> tuple[str, str]:
    """Its version of torch, from metadata, and why there is none."""
    import shutil

    from hangdrill.certify.fingerprints import hear

    found = shutil.which(python)
    if found is None:
        return "", f"{python} does not exist or may not be executed"
    script = "import importlib.metadata as m; print(m.version('torch'))"
    try:
        heard = hear(
            str(Path(found).absolute()), [script], os.environ, interrupt=interrupt, deadline_s=PROBE_DEADLINE_S
        )
    except OSError as error:
        return "", f"{python} does not work: {error.strerror}"
    if heard.code is None:
        return "", f"{python} gave no answer within {PROBE_DEADLINE_S:g} s"
    lines = heard.output.decode(errors="replace").split()
    return (lines[-1], "") if heard.code == 0 and lines else ("", f"{python} has no torch")


@contextmanager
def _own(out_dir: Path) -> "Iterator[None]":
    """New or empty, since nothing is overwritten, and nobody else's meanwhile. Raises UsageError, MachineError."""
    from hangdrill.certify.out import locked
    from hangdrill.drill.layout import make_directory

    _require_empty(out_dir)
    make_directory(out_dir)
    with locked(out_dir):
        _require_empty(out_dir)
        yield


def _require_empty(out_dir: Path) -> None:
    from hangdrill.certify.out import LOCK
    from hangdrill.model.errors import UsageError

    if out_dir.is_dir() and any(path.name != LOCK for path in out_dir.iterdir()):
        raise UsageError("not empty", where=str(out_dir), next_step="name a new directory with --out")


def _print_look(found: "Look") -> None:
    click.echo(found.state.value)
    for problem in found.problems:
        click.echo(f"  {problem}")
    if found.next_step:
        click.echo(f"  next: {found.next_step}")
    if found.form:
        readers = "torch 2.15 and newer alone" if found.form == "2.15" else "torch 2.14 and older too"
        click.echo(f"  {found.parts} tensors and values, written in a form that can be read by {readers}")
    if found.unproven:
        click.echo(f"  {found.unproven} of them have no checksum: only their size was looked at")


def _exit_code(rows: Any) -> int:  # noqa: ANN401 - a late import has the type
    """FAIL when one is not equal, UNKNOWN when one is not known."""
    from hangdrill.model.receipt import CheckpointOutcome
    from hangdrill.model.verdict import Verdict, merge

    known = {CheckpointOutcome.EQUAL: Verdict.PASS, CheckpointOutcome.UNKNOWN: Verdict.UNKNOWN}
    return int(merge(known.get(row.outcome, Verdict.FAIL) for row in rows).exit_code)
