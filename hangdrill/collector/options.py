"""What the user or the controller asks of the collector, checked once at the edge."""

import os
from pathlib import Path

import msgspec

from hangdrill.delivery import DeliveryOptions, check_delivery
from hangdrill.model.errors import MachineError, UsageError

__all__ = ["CollectorOptions", "check_options"]

DEFAULT_STALL_AFTER_S = 240.0
"""For an operation without a timeout of its own, and for a job whose timeout nobody told."""

ROOT = 0


class CollectorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ranks' sockets are, where the evidence goes, and when to call it a hang.

    stall_after_s None: 0.8 x the operation's own timeout. When given, the smaller of the two counts, so that the
    evidence is always pulled before the operation gives up and raises.
    backends empty: every backend that torch is known to record is asked for, until one has something to say.
    control None: a job of the user's own, with no agent and no controller.
    contained: the ranks are in a container, so a pid that an agent tells is none of this host's; sockets tell it.
    delivery: where the evidence goes from there, and who is told of a hang.
    linger_s: how long after the last rank is gone a restart is waited for; without a parent to follow.
    """

    sockets: Path
    to: Path
    control: Path | None = None
    run_id: str = ""
    world_size: int | None = None
    backends: tuple[str, ...] = ()
    stall_after_s: float | None = None
    poll_s: float = 0.2
    settle_s: float = 0.5
    linger_s: float = 10.0
    native_prefix: str | None = None
    parent_pid: int | None = None
    contained: bool = False
    delivery: DeliveryOptions = msgspec.field(default_factory=DeliveryOptions)


def check_options(options: CollectorOptions) -> None:
    """Raise UsageError for what the user can mend, MachineError for what this machine refuses.

    Makes `sockets` with its parents, as the ranks do, and `to` without: a volume that is not mounted is told.
    """
    for name in ("poll_s", "settle_s", "linger_s", "stall_after_s"):
        value = getattr(options, name)
        if value is not None and not 0 <= value < float("inf"):
            raise UsageError(
                f"must be a number of seconds, not below 0; got {value}", where=f"--{name.replace('_', '-')}"
            )
    if options.poll_s < 0.005:
        raise UsageError(f"must be at least 0.005; got {options.poll_s}", where="--poll-s")
    if options.world_size is not None and options.world_size < 1:
        raise UsageError(f"must be at least 1; got {options.world_size}", where="--world-size")
    if options.control is not None and not options.control.is_dir():
        what = f"{options.control} is not a directory"
        raise UsageError(what, where="--control", next_step="make it before the ranks start")
    check_delivery(options.delivery)
    _make_sockets_directory(options.sockets)
    _make_evidence_directory(options.to)


def _make_sockets_directory(path: Path) -> None:
    """With its parents, as the ranks make it (`hangdrill.rank.orders`): whoever comes first."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = path.stat().st_uid
    except FileExistsError as error:
        raise UsageError(f"{path} is not a directory", where="--sockets", next_step="name a directory") from error
    except NotADirectoryError as error:
        what = f"cannot make {path}: a part of it is a file"
        raise UsageError(what, where="--sockets", next_step="name a directory") from error
    except OSError as error:
        raise MachineError(f"cannot make {path}: {error.strerror}", where="--sockets") from error
    is_shared = owner in (os.geteuid(), ROOT)  # root's own may be a volume of a pod
    needed = os.R_OK | os.X_OK | (0 if is_shared else os.W_OK)
    if not os.access(path, needed, effective_ids=True):
        what = f"{path} is somebody else's: ranks of this user cannot be watched there"
        raise MachineError(what, where="--sockets", next_step="name a directory of your own")


def _make_evidence_directory(path: Path) -> None:
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory", where="--to", next_step=f"mkdir -p {path.parent}")
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise UsageError(f"{path} is a file", where="--to", next_step="name a directory") from error
    except OSError as error:
        raise MachineError(f"cannot make {path}: {error.strerror}", where="--to") from error
