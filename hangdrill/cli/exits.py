"""Turn everything that can end a command into an exit code and a text on stderr. The only place that does.

The codes are those of hangdrill.model.errors.ExitCode; docs/reference/exit-codes.md explains them.
"""

import errno
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click

from hangdrill.model.errors import ExitCode, HangdrillError, MachineError

__all__ = ["Commands", "drop_output", "exit_code_of", "forget_interrupt", "open_streams"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, *_FULL})


class OutputGone(Exception):
    """The reader of our output went away (`| head`). click and rich would exit with 1, which says FAIL here."""


class Stopped(Exception):
    """INT, TERM or HUP. click would first write a line, which fails when the terminal is gone with the HUP."""


class Commands(click.Group):
    """A group whose commands do not end with click's own answers to a broken pipe, an interrupt and an end of file."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; click must see no BrokenPipeError, KeyboardInterrupt or EOFError."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Stopped from error
        except BrokenPipeError as error:
            raise OutputGone from error
        except EOFError as error:  # of a prompt click makes an Abort itself
            raise RuntimeError(f"EOFError: {error}") from error
        except SystemExit as error:
            if isinstance(error.__context__, BrokenPipeError):  # rich's answer to it
                raise OutputGone from error
            raise


def exit_code_of(command: Callable[[], object]) -> int:
    """Run a command to its exit code. Lets no exception out, SystemExit of click included."""
    try:
        return _flushed(_ended(command))
    except (OutputGone, BrokenPipeError):
        drop_output()
        return int(ExitCode.INTERRUPTED)
    except KeyboardInterrupt:
        return _interrupted()


def _ended(command: Callable[[], object]) -> int:
    try:
        answer = command()
    except (OutputGone, BrokenPipeError):
        raise
    except (HangdrillError, click.ClickException) as error:
        return _told(error)
    except (Stopped, KeyboardInterrupt, click.Abort):
        return _interrupted()
    except click.exceptions.Exit as error:
        return error.exit_code
    except Exception as error:
        refused = _refused(error)
        return _bug(error) if refused is None else _told(refused)
    return int(answer) if isinstance(answer, int) else int(ExitCode.PASS)


def _interrupted() -> int:
    """Say so, where there is still somebody to tell; behind the ^C of a terminal on a line of its own."""
    with suppress(OSError):
        click.echo("\n" * sys.stderr.isatty() + "hangdrill: interrupted", err=True)
    return int(ExitCode.INTERRUPTED)


def _told(error: HangdrillError | click.ClickException) -> int:
    """An error that was raised on purpose: its own text, its own code."""
    if isinstance(error, HangdrillError):
        click.echo(f"hangdrill: {error}", err=True)
        return int(error.exit_code)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
    else:
        error.show()
    return int(ExitCode.USAGE)


def _refused(error: Exception) -> MachineError | None:
    """What the system refuses about a file is no bug of hangdrill's."""
    if not isinstance(error, OSError) or error.errno not in _REFUSALS:
        return None
    if error.errno in _FULL and error.filename is None:  # a write says no name: mostly that of the output
        return MachineError(
            (error.strerror or "the disk is full").lower(), next_step="free some space, also for stdout"
        )
    if not isinstance(error.filename, str):
        return None
    what = (error.strerror or "refused").lower()
    return MachineError(what, where=error.filename, next_step="look at its owner, its mode and its disk")


def _flushed(code: int) -> int:
    """Flush while an error can still be answered; at the interpreter's exit it would be a second one. Not after an
    interrupt: it may have come because a reader that reads no more made us wait."""
    try:
        if code != ExitCode.INTERRUPTED:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        if code != ExitCode.MACHINE:
            return _told(MachineError(f"cannot write the output: {error.strerror}", next_step="look at its disk"))
    return code


def open_streams() -> None:
    """Let a standard stream that was closed before we began (`>&-`) lead nowhere: else the first file that is opened
    takes its number, and gets what is printed."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def drop_output() -> None:
    """Let the interpreter's last flush, and what it still holds, go nowhere. Only when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def forget_interrupt() -> None:
    """Python notes an interrupt that comes out of code that is text (a namedtuple's, at an import), although it is
    answered later, and would end itself by INT at its end: not with our code. The next such code takes the note away.
    """
    exec("")


def _bug(error: Exception) -> int:
    """Keep the traceback in a file, and say what to report."""
    from hangdrill import __version__

    about = f"hangdrill {__version__}, Python {platform.python_version()}, {platform.platform()}\n{sys.argv}\n\n"
    text = about + "".join(traceback.format_exception(type(error), error, error.__traceback__))
    click.echo(f"hangdrill: bug in hangdrill: {type(error).__name__}: {error}", err=True)
    click.echo(f"  next: report it with {_keep(text)}, and with the run directory if there is one", err=True)
    return int(ExitCode.INTERNAL)


def _keep(text: str) -> str:
    try:
        handle, name = tempfile.mkstemp(prefix="hangdrill-bug-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        click.echo(text, err=True)
        return "the traceback above"
    return str(Path(name))
