"""`hangdrill stack`: the fingerprint of a software environment, as a certification records it."""

import math
import os

import click

from hangdrill.cli.output import console, print_json, python_of, refuse_empty

__all__ = ["stack"]


@click.command(short_help="Print the fingerprint of a software environment.")
@click.argument("python", required=False, metavar="[PYTHON]")
@click.option("--image", help="The stack is this container image; PYTHON is then in it.  [default there: python3]")
@click.option("--mount", "mounts", multiple=True, metavar="SOURCE:TARGET[:ro]", help="For an image; may be repeated.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set for this stack; may be repeated.")
@click.option(
    "--deadline-s",
    type=click.FloatRange(min=1, max=86_400),
    default=180.0,
    show_default=True,
    help="Longest answer.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, hangdrill.fingerprint/1, with every package.")
def stack(
    python: str | None,
    *,
    image: str | None,
    mounts: tuple[str, ...],
    variables: tuple[str, ...],
    deadline_s: float,
    as_json: bool,
) -> int:
    """Print the fingerprint of a stack: its torch, commit, wheel, driver, NCCL, network, GPUs, extensions, packages.

    PYTHON is the Python of the environment, VENV/bin/python, or any program that runs one; default: HANGDRILL_PYTHON,
    or this one. With --image it is read in a container of that image, which is removed. Nothing is installed there.
    """
    from hangdrill.certify.fingerprints import read_stack
    from hangdrill.drill.waiting import Interrupt, handling_signals
    from hangdrill.model.errors import MachineError
    from hangdrill.report.stack import print_stack

    if math.isnan(deadline_s):
        raise click.UsageError("--deadline-s nan: it must be a number of seconds")
    refuse_empty(image=image)
    if python is not None and not python.strip():
        raise click.UsageError("PYTHON is empty: name the Python of an environment, or leave it out.")
    env = dict(_pair(text) for text in variables)
    if mounts and not image:
        raise click.UsageError("--mount is for --image: a Python of this host sees its files.")
    for text in mounts:
        _check_mount(text)
    with Interrupt() as interrupt, handling_signals(interrupt):
        found = read_stack(
            "stack",
            python or "" if image else python_of(python, os.environ),
            env=env,
            environ=os.environ,
            interrupt=interrupt,
            deadline_s=deadline_s,
            image=image or "",
            mounts=mounts,
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


def _check_mount(text: str) -> None:
    from hangdrill.model.scenario import Volume

    try:
        absolute = Volume.parse(text).source.startswith("/")
    except ValueError as error:
        raise click.UsageError(f"--mount {text}: {error}") from error
    if not absolute:
        raise click.UsageError(f"--mount {text}: the source must be a path of this host")


def _builtins(value: object) -> dict[str, object]:
    import msgspec

    found: dict[str, object] = msgspec.to_builtins(value)
    return found
