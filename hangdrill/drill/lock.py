"""Keeping drills apart that would disturb each other: one lock a resource of this host, for as long as a drill runs.

Most CPU drills need none and run side by side. The kernel drops a lock when its holder dies, so no lock outlives a
SIGKILL; the file beside it that says who holds it may, and `hangdrill clean` removes it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import msgspec

from hangdrill.drill.layout import write_json
from hangdrill.drill.waiting import Waiter
from hangdrill.model.errors import MachineError
from hangdrill.model.scenario import Scenario

__all__ = ["Holder", "held_resources", "holder_of", "holding", "resources_of", "stale_holders"]

POLL_S = 0.1


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a resource."""

    resource: str
    run_id: str
    name: str
    pid: int


def resources_of(scenario: Scenario) -> tuple[str, ...]:
    """What the drill needs for itself alone, sorted, so that two drills never wait for each other in a circle.

    GPUs are shared: a rank takes about a gigabyte, and drills mostly wait. The debug server takes a free port.
    """
    found: set[str] = set()
    if "MASTER_PORT" in scenario.job.env:
        found.add(f"port-{scenario.job.env['MASTER_PORT']}")
    return tuple(sorted(found))


@contextlib.contextmanager
def holding(
    root: Path,
    resources: tuple[str, ...],
    *,
    run_id: str,
    name: str,
    waiter: Waiter,
    deadline_s: float,
    note: Callable[[str], None],
) -> Iterator[None]:
    """Hold all resources. MachineError, naming the holder, when one is not free within `deadline_s`."""
    with contextlib.ExitStack() as stack:
        for resource in resources:
            lock = _lock(root, resource)
            _acquire(lock, root, resource, waiter=waiter, deadline_s=deadline_s, note=note)
            stack.callback(lock.release)
            holder_path = _holder_path(root, resource)
            write_json(holder_path, Holder(resource=resource, run_id=run_id, name=name, pid=os.getpid()))
            stack.callback(_remove, holder_path)
        yield


def holder_of(root: Path, resource: str) -> Holder | None:
    """Who said that it holds the resource; None when nobody did."""
    try:
        return msgspec.json.decode(_holder_path(root, resource).read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def held_resources(root: Path) -> tuple[str, ...]:
    """The resources that a living process holds now."""
    held: list[str] = []
    for path in sorted(root.glob("lock-*.lock")):
        resource = path.name.removeprefix("lock-").removesuffix(".lock")
        lock = _lock(root, resource)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            held.append(resource)
        else:
            lock.release()
    return tuple(held)


def stale_holders(root: Path) -> tuple[Path, ...]:
    """Files that name a holder of a lock that nobody holds."""
    held = set(held_resources(root))
    return tuple(
        path
        for path in sorted(root.glob("lock-*.holder.json"))
        if path.name.removeprefix("lock-").removesuffix(".holder.json") not in held
    )


def _acquire(
    lock: filelock.BaseFileLock,
    root: Path,
    resource: str,
    *,
    waiter: Waiter,
    deadline_s: float,
    note: Callable[[str], None],
) -> None:
    told = False

    def probe() -> bool | None:
        nonlocal told
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            if not told:
                note(f"waiting for {resource}: {_describe(holder_of(root, resource))}")
                told = True
            return None
        return True

    if waiter.until(probe, deadline_s=deadline_s, poll_s=POLL_S) is None:
        raise MachineError(
            f"{resource} was not free within {deadline_s:g} s: {_describe(holder_of(root, resource))}",
            where=str(root),
            next_step="wait for that drill to end, or run `hangdrill clean` if its controller is gone",
        )


def _describe(holder: Holder | None) -> str:
    if holder is None:
        return "another process holds it"
    return f"drill {holder.name} (process {holder.pid}, run {holder.run_id}) holds it"


def _lock(root: Path, resource: str) -> filelock.BaseFileLock:
    return filelock.FileLock(root / f"lock-{resource}.lock", mode=0o600)


def _holder_path(root: Path, resource: str) -> Path:
    return root / f"lock-{resource}.holder.json"


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
