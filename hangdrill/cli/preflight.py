"""`hangdrill preflight`: would this environment leave evidence? It looks, says what to mend, and changes nothing."""

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangdrill.cli.output import console, print_json, python_of

if TYPE_CHECKING:
    from hangdrill.model.scenario import Scenario

__all__ = ["preflight"]

COMMAND = "hangdrill.job_command"
LAUNCHER = re.compile(r"(.*/)?(torchrun|python[0-9.]*)")


class PreflightCommand(click.Command):
    """Keeps what follows `--` apart: it is the job's command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut at the first `--`."""
        cut = args.index("--") if "--" in args else len(args)
        ctx.meta[COMMAND] = tuple(args[cut + 1 :])
        own = args[:cut]
        try:
            return super().parse_args(ctx, list(own))  # click takes its list apart
        except click.UsageError as error:
            at = _launcher_at(own)
            if at is None:
                raise
            hint = f"put -- before your command: hangdrill preflight -- {shlex.join(own[at:])}"
            raise click.UsageError(f"{error.format_message()}\n{hint}", ctx) from error


def _launcher_at(words: list[str]) -> int | None:
    """Where a job's command begins that was given without `--`; the value of --python is none."""
    launchers = (at for at, word in enumerate(words) if LAUNCHER.fullmatch(word) and words[:at][-1:] != ["--python"])
    return next(launchers, None)


@click.command(cls=PreflightCommand, short_help="Would this environment leave evidence? Nothing is started.")
@click.argument("scenario", required=False, metavar="[SCENARIO | -- COMMAND...]")
@click.option("--python", help="Python of the ranks; default: HANGDRILL_PYTHON, or this one.")
@click.option(
    "--dump-to",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Look at this directory for dumps.  [default: what the variables say]",
)
@click.option("--backend", help="Backend of the job, where the script does not say.")
@click.option(
    "--trigger",
    type=click.Choice(["native", "debug-server", "collector"]),
    help="The evidence's road.  [default: what the job says, else native]",
)
@click.option("--timeout-s", type=float, help="Timeout of the process group, where the script does not say.")
@click.option("--grace-s", type=float, help="From TERM to KILL of the pod or the scheduler.")
@click.option("--kill-after-s", type=float, help="A silent job is ended from outside after this.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, hangdrill.preflight/1.")
@click.pass_context
def preflight(
    context: click.Context,
    /,
    scenario: str | None,
    *,
    python: str | None,
    dump_to: Path | None,
    backend: str | None,
    trigger: str | None,
    timeout_s: float | None,
    grace_s: float | None,
    kill_after_s: float | None,
    as_json: bool,
) -> int:
    """Would this environment leave evidence? Says what would lose it, each with its mend.

    Looks at the environment, torch, this host, and a scenario or your own job's command line, whose script is parsed
    and never run: hangdrill preflight -- torchrun --nproc-per-node 8 train.py. Nothing is started or written.
    """
    from hangdrill.model.scenario import Trigger
    from hangdrill.preflight import Wishes, examine, gather
    from hangdrill.report.preflight import print_preflight

    command = context.meta[COMMAND]
    if scenario is not None and command:
        raise click.UsageError("give a scenario or a command, not both.")
    wishes = Wishes(
        dump_to=dump_to,
        backend=backend,
        trigger=None if trigger is None else Trigger(trigger),
        timeout_s=timeout_s,
        grace_s=grace_s,
        kill_after_s=kill_after_s,
    )
    facts = gather(
        python=python_of(python, os.environ),
        environ=dict(os.environ),
        cwd=Path.cwd(),
        umask=_umask(),
        scenario=None if scenario is None else _scenario(scenario),
        command=command,
        wishes=wishes,
    )
    found = examine(facts)
    if as_json:
        print_json(found)
    else:
        print_preflight(console(), found)
    return int(found.verdict.exit_code)


def _scenario(reference: str) -> "Scenario":
    from hangdrill.drill.scenario_file import load

    return load(reference).scenario


def _umask() -> int:
    """Of this process; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
