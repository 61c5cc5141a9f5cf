"""How the controller and the node processes of a job on several hosts talk: two small files on the shared file system.

`control/controller_beat` holds all orders, `nodes/<k>.json` all that node k has to say. Each has one writer, and is
rewritten in place: a network file system shows a host that opens a file its newest bytes, but may keep from it for a
minute that a name is new or was renamed over. A reader that comes in the middle finds no JSON and looks again.
"""

import contextlib
import os
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from hangdrill.model.errors import MachineError

__all__ = ["ControllerOrders", "make_empty", "read_in_place", "show_new_names", "write_in_place"]

T = TypeVar("T")
MOST_BYTES = 1 << 20


class ControllerOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller wants of the nodes. `beat` grows as long as the controller lives."""

    schema: Literal["hangdrill.orders/1"] = "hangdrill.orders/1"
    beat: int = 0
    start: bool = False
    """Every node is there: start the ranks."""
    endpoint: str = ""
    """HOST:PORT at which the nodes meet, as node 0 told it."""
    asked: dict[str, int] = msgspec.field(default_factory=dict)
    """By node: how often its collector was asked to pull at once."""
    released: bool = False
    teardown: bool = False
    end: Literal["", "end", "kill"] = ""
    """End every process of the job: with INT, TERM and KILL, or with KILL at once."""
    hurry: bool = False
    """The user interrupted the drill: wait for no store that hangs."""
    die: tuple[int, ...] = ()
    """The nodes that are to be lost without a word."""


def make_empty(path: Path) -> None:
    """Make the file that another host will write. MachineError when the disk refuses."""
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise MachineError(f"cannot write: {error.strerror}", where=str(path), next_step="check the rights") from error


def write_in_place(path: Path, value: Any) -> None:  # noqa: ANN401 - any struct that msgspec can encode
    """Write `value` over what was there. OSError when the disk refuses."""
    data = msgspec.json.encode(value) + b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_in_place(path: Path, shape: type[T]) -> T | None:
    """What stands there; None when there is nothing, or it is being written."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MOST_BYTES), type=shape)
    except (OSError, msgspec.DecodeError):
        return None


def show_new_names(directory: Path) -> None:
    """Make a network file system look at a directory again: whoever changes one gets its newest names."""
    mark = directory / f".look.{os.getpid()}"
    with contextlib.suppress(OSError):
        mark.touch(mode=0o600)
        mark.unlink()
