"""Checks of plain values: the right type, within bounds, or a DumpError that says at which key it was not."""

from typing import Any, NoReturn

from hangdrill.recorder.errors import DamagedDumpError, DumpError
from hangdrill.recorder.printable import printable

__all__ = ["MAX_TEXT", "PlainReader", "show"]

MAX_TEXT = 4096
"""Of one name or path; longer text is cut short, since a name of megabytes only serves to fill the reader's memory."""


class PlainReader:
    """Takes values of one file apart. where: the file, for messages; `at` is always the key."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.texts: dict[str, str] = {}

    def mapping(self, value: object, at: str) -> list[tuple[str, Any]]:
        if value is None:
            return []
        if type(value) is not dict:
            self.fail(at, f"expected a dict, got {show(value)}")
        return list(value.items())

    def items(self, value: object, at: str) -> list[Any] | tuple[Any, ...]:
        if value is None:
            return ()
        if type(value) is not list and type(value) is not tuple:
            self.fail(at, f"expected a list, got {show(value)}")
        items: list[Any] | tuple[Any, ...] = value
        return items

    def text(self, value: object, at: str) -> str:
        if type(value) is not str:
            self.fail(at, f"expected text, got {show(value)}")
        if value not in self.texts:
            self.texts[value] = printable(value if len(value) <= MAX_TEXT else value[:MAX_TEXT])
        return self.texts[value]

    def number(self, value: object, at: str) -> int:
        """An integer of 64 bits; the JSON of the control plane writes some as text."""
        if type(value) is str and len(value) <= 20:
            try:
                value = int(value)
            except ValueError:
                self.fail(at, f"expected an integer, got {show(value)}")
        if type(value) is not int or not -(2**63) <= value < 2**64:
            self.fail(at, f"expected an integer, got {show(value)}")
        return value

    def count(self, value: object, at: str) -> int:
        number = self.number(value, at)
        if number < 0:
            self.fail(at, f"expected an integer from 0, got {number}")
        return number

    def moment(self, value: object, at: str) -> int | None:
        """A time in ns; None and 0 both mean that the recorder did not see it."""
        return (self.count(value, at) or None) if value is not None else None

    def at_key(self, at: str) -> str:
        return f"{at} ({self.where})" if at else self.where

    def fail(self, at: str, what: str, next_step: str = "check that this file is a flight-recorder dump") -> NoReturn:
        raise DumpError(what, where=self.at_key(at), next_step=next_step)

    def damaged(self, what: str) -> NoReturn:
        raise DamagedDumpError(what, where=self.at_key(""), next_step="use another dump of this rank, if there is one")


def show(value: object) -> str:
    """A value for a message: short, and never the inside of a container (which may be endless)."""
    if type(value) is str:
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if value is None or type(value) in (bool, float):
        return repr(value)
    if type(value) is int:
        return str(value) if abs(value) < 10**20 else "an integer beyond 64 bits"
    return f"a {type(value).__name__}"
