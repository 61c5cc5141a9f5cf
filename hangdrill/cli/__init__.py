"""The command `hangdrill`. Each command's module imports what it needs when it runs, so that `--help` is quick.

`os.environ` and the clock are read here and handed on. No module of the controller imports torch.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from hangdrill import __version__
from hangdrill.cli.certify import certify
from hangdrill.cli.checkpoint import checkpoint
from hangdrill.cli.compare import compare
from hangdrill.cli.deliver import deliver
from hangdrill.cli.exits import Commands, drop_output, exit_code_of, forget_interrupt, open_streams
from hangdrill.cli.incident import collect, diagnose
from hangdrill.cli.keys import keygen, sign, verify
from hangdrill.cli.look import list_command, schema, show
from hangdrill.cli.manifest import manifest
from hangdrill.cli.past import check, clean
from hangdrill.cli.preflight import preflight
from hangdrill.cli.report import report
from hangdrill.cli.retention import retention
from hangdrill.cli.run import run
from hangdrill.cli.signals import end_by_interrupt
from hangdrill.cli.stack import stack
from hangdrill.model.errors import ExitCode

__all__ = ["cli", "main", "run_command"]

EPILOG = (
    "Exit codes: 0 pass, 1 fail or hang, 2 cannot tell, 64 bad arguments, 70 bug, 75 this machine, 130 interrupted."
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="hangdrill")
def cli() -> None:
    """Prove, before you need it, that a hung PyTorch job leaves the evidence that names the culprit."""


for command in (
    run,
    list_command,
    show,
    check,
    diagnose,
    report,
    preflight,
    collect,
    deliver,
    retention,
    manifest,
    clean,
    schema,
    stack,
    certify,
    verify,
    sign,
    keygen,
    compare,
    checkpoint,
):
    cli.add_command(command)


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command line to its exit code, without leaving the process."""
    words = None if arguments is None else list(arguments)
    return exit_code_of(lambda: cli.main(args=words, prog_name="hangdrill", standalone_mode=False))


def main() -> NoReturn:
    """The entry point: run the command line of this process, and exit with its code."""
    open_streams()
    end_by_interrupt()
    code = run_command()
    if code == ExitCode.INTERRUPTED:
        drop_output()
        forget_interrupt()
    sys.exit(code)
