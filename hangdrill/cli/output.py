"""What the commands share: where results go, and how they are written for people and for programs."""

import os
import secrets
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from hangdrill.model.run import DrillResult
    from hangdrill.model.summary import Summary

__all__ = [
    "RUNS",
    "console",
    "default_out_dir",
    "print_json",
    "python_of",
    "refuse_empty",
    "show_result",
    "write_file",
    "write_reports",
]

PYTHON_VARIABLE = "HANGDRILL_PYTHON"
RUNS = "hangdrill-runs"
PIPED_COLUMNS = 120


def console(*, stderr: bool = False) -> "Console":
    """The terminal, or plain text when piped; rich reads NO_COLOR and the like by itself. Nothing is markup.

    A log has no width of its own: its tables get PIPED_COLUMNS, its sentences a line each, however long. With COLUMNS
    set, a pipe is as wide as that.
    """
    from rich.console import Console

    has_no_width = not (sys.stderr if stderr else sys.stdout).isatty() and not _columns()
    return Console(
        stderr=stderr,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=has_no_width,
        width=PIPED_COLUMNS if has_no_width else _columns(),
    )


def _columns() -> int | None:
    """COLUMNS, where it is set to a width."""
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None


def refuse_empty(**options: str | None) -> None:
    """click.UsageError for an option that was given as "": mostly a variable of a shell that is not set, and its
    default would be another Python, or this host instead of an image."""
    for name, text in options.items():
        if text is not None and not text.strip():
            raise click.UsageError(f"--{name} is empty: give it a value, or leave it out.")


def python_of(option: str | None, environ: Mapping[str, str]) -> str:
    """The Python of the ranks: the option, HANGDRILL_PYTHON, or the one that runs hangdrill."""
    refuse_empty(python=option)
    return option or environ.get(PYTHON_VARIABLE) or sys.executable


def default_out_dir(cwd: Path, now_s: float) -> Path:
    """./hangdrill-runs/20261129T174300Z-3f9c: sorted by time, and never the same twice."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    return cwd / RUNS / f"{stamp}-{secrets.token_hex(2)}"


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def show_result(screen: "Console", result: "DrillResult", run_dir: Path) -> None:
    """All of one drill, with what its record says beside the result where there is one."""
    from hangdrill.drill.store import load_run
    from hangdrill.model.errors import UsageError
    from hangdrill.report.terminal import print_result

    try:
        run = load_run(run_dir)
    except UsageError:  # a drill that could not begin has left no record
        run = None
    print_result(screen, result, run_dir, run)


def write_reports(summary: "Summary", out_dir: Path, junit: Path | None) -> None:
    """summary.json and junit.xml in the out directory, and the JUnit file once more where it was asked for.

    A drill that could not begin has no result.json of its own yet, and gets one: who reads it finds every drill.
    """
    import msgspec

    from hangdrill.report.junit import junit_xml
    from hangdrill.report.summary import summary_json

    out_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    xml = junit_xml(summary)
    write_file(out_dir / "summary.json", summary_json(summary))
    for result in summary.results:
        own = out_dir / result.scenario / "result.json"
        if not own.exists():
            write_file(own, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    for path in (out_dir / "junit.xml", junit):
        if path is not None:
            write_file(path, xml)


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole: under another name first, then renamed; a device or a pipe as it is. Raises MachineError."""
    from hangdrill.model.errors import MachineError

    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a file in the place of /dev/null would be there for everybody
            path.write_bytes(content)
            return
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        hint = "name another file, or free its disk"
        raise MachineError(f"cannot write: {error.strerror}", where=str(path), next_step=hint) from error
    finally:
        with suppress(OSError):  # it has its own name now, or is not whole
            temporary.unlink()
