"""Every error hangdrill raises on purpose, and the exit code each one ends the program with.

An error says what is wrong, where, and what to do next. Only `hangdrill.cli.main` turns it into an exit.
"""

from enum import IntEnum
from typing import ClassVar

__all__ = ["ExitCode", "HangdrillError", "InternalError", "Interrupted", "MachineError", "UsageError"]


class ExitCode(IntEnum):
    """The exit codes of every command. They are a contract: a change is a new major version."""

    PASS = 0
    FAIL = 1
    UNKNOWN = 2
    USAGE = 64
    INTERNAL = 70
    MACHINE = 75
    INTERRUPTED = 130


class HangdrillError(Exception):
    """Base of all errors raised on purpose.

    what: the mistake, in one sentence without a full stop at the end.
    where: the file and key, rank or option it was found at; empty when `what` says it.
    next_step: what the user does now; empty when there is nothing to do.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        self.what = what
        self.where = where
        self.next_step = next_step
        super().__init__(what, where, next_step)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  next: {self.next_step}" if self.next_step else text


class UsageError(HangdrillError):
    """Bad arguments, a bad scenario or a bad input file: the user mends it (exit code 64)."""

    exit_code = ExitCode.USAGE


class InternalError(HangdrillError):
    """A bug in hangdrill itself (exit code 70)."""

    exit_code = ExitCode.INTERNAL


class MachineError(HangdrillError):
    """This machine cannot do it: no GPU, no torch, port taken, out of memory or disk (exit code 75)."""

    exit_code = ExitCode.MACHINE


class Interrupted(HangdrillError):
    """The user or a signal ended the command; everything it started has been ended too (exit code 130)."""

    exit_code = ExitCode.INTERRUPTED
