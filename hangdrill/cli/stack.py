"""`hangdrill stack`: the fingerprint of a software environment, as a certification records it."""

import os

import click

from hangdrill.cli.output import console, print_json, python_of

__all__ = ["stack"]


@click.command()
@click.argument("python", required=False, metavar="[PYTHON]")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set for this stack; may be repeated.")
@click.option("--deadline-s", type=click.FloatRange(min=1), default=180.0, show_default=True, help="Longest answer.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, hangdrill.fingerprint/1, with every package.")
def stack(python: str | None, *, variables: tuple[str, ...], deadline_s: float, as_json: bool) -> int:
    """Print the fingerprint of a stack: its torch, commit, wheel, driver, NCCL, network, GPUs, extensions, packages.

    PYTHON is the Python of the environment, VENV/bin/python, or any program that runs one (a script around
    `docker run -i IMAGE python "$@"`); default: HANGDRILL_PYTHON, or this one. Nothing is installed there.
    """
    from hangdrill.certify.fingerprints import read_stack
    from hangdrill.drill.waiting import Interrupt, handling_signals
    from hangdrill.model.errors import MachineError
    from hangdrill.report.stack import print_stack

    env = dict(_pair(text) for text in variables)
    with Interrupt() as interrupt, handling_signals(interrupt):
        found = read_stack(
            "stack",
            python_of(python, os.environ),
            env=env,
            environ=os.environ,
            interrupt=interrupt,
            deadline_s=deadline_s,
        )
    if found.fingerprint is not None:
        if as_json:
            print_json({**_builtins(found.fingerprint), "digest": found.fingerprint.digest})
        else:
            print_stack(console(), found.fingerprint)
    if found.missing:
        raise MachineError(found.missing, next_step=found.next_step)
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.UsageError(f"--env {text}: it must be NAME=VALUE")
    return name, value


def _builtins(value: object) -> dict[str, object]:
    import msgspec

    found: dict[str, object] = msgspec.to_builtins(value)
    return found
