"""A dask.distributed cluster that somebody has started: dask://HOST:PORT of its scheduler (extra `fleet`).

The workers open the files themselves, so they need the same file system, and hangdrill of the same version. dask's own
log is kept quiet: what ends a reading is said once, in an error of ours.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from pkgutil import resolve_name
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hangdrill.model.errors import MachineError, UsageError
from hangdrill.readers.batches import Batch, Read, read_batch
from hangdrill.recorder import Outcome

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Cluster", "connected"]

CONNECT_DEADLINE_S = 10.0
WORKERS_DEADLINE_S = 10.0
"""For the first worker to be there, and for all to say what hangdrill they have."""
RETURN_DEADLINE_S = 30.0
"""For a worker to come back when none is left: a nanny starts a dead one anew."""
CLOSE_DEADLINE_S = 5.0
OUR_VERSION = "hangdrill:__version__"
SILENCE = (OSError, TimeoutError, asyncio.TimeoutError)
"""What dask raises when nobody answers; before Python 3.11 asyncio's is no TimeoutError."""
LOGGERS = ("distributed", "tornado", "asyncio")
DASK_SETTINGS = {"distributed.admin.large-graph-warning-threshold": "1 GiB"}
"""A batch of an archive carries its bytes; dask would advise the user to do otherwise."""


class Cluster:
    """An engine of a client's workers."""

    def __init__(self, client: "Client", address: str) -> None:
        self.client = client
        self.address = address
        self.executor: Executor = client.get_executor(pure=False)
        self.workers = max(1, sum(self._threads().values()))
        self._alone_since_s: float | None = None

    def submit(self, read: Read, batch: Batch) -> Future[tuple[Outcome, ...]]:
        """On some worker."""
        if self.client.status != "running":
            raise self.gone()
        try:
            return self.executor.submit(read_batch, read, batch)
        except Exception as problem:  # dask's words for a client that has just lost its scheduler differ by version
            raise self.gone() from problem

    def cancel(self, future: Future[tuple[Outcome, ...]]) -> None:
        """Unless it has been read."""
        future.cancel()

    def renew(self) -> bool:
        """A client that was closed stays closed."""
        raise self.gone()

    def check(self) -> None:
        """Raise MachineError when the scheduler or, for RETURN_DEADLINE_S, every worker is gone."""
        if self.client.status != "running":
            raise self.gone()
        if self._threads():
            self._alone_since_s = None
            return
        self._alone_since_s = self._alone_since_s or time.monotonic()
        if time.monotonic() - self._alone_since_s > RETURN_DEADLINE_S:
            raise MachineError(
                f"no worker has been there for {RETURN_DEADLINE_S:g} s",
                where=self.address,
                next_step="look at the workers' logs, start them again, or leave --executor out",
            )

    def gone(self) -> MachineError:
        """The scheduler, most likely: dask cancels everything when it loses it."""
        return MachineError(
            "the scheduler is gone, and what it had not handed out is lost",
            where=self.address,
            next_step="look at its log and start it again, or leave --executor out to read on this machine",
        )

    def _threads(self) -> dict[str, int]:
        try:
            found: dict[str, int] = self.client.sync(self.client.nthreads, callback_timeout=CONNECT_DEADLINE_S)
        except (*SILENCE, RuntimeError) as problem:
            raise self.gone() from problem
        return found


@contextmanager
def connected(spec: str) -> Iterator[Cluster]:
    """The cluster whose scheduler listens there. Raises UsageError (no address), MachineError (no cluster to use)."""
    address = _address(spec)
    try:
        import dask
        import distributed
    except ImportError as missing:
        raise MachineError(
            f"dask.distributed is not installed: {missing}", where=spec, next_step="pip install 'hangdrill[fleet]'"
        ) from missing
    with _quiet(), dask.config.set(DASK_SETTINGS):
        client = _client(distributed.Client, address, spec)
        try:
            _check_workers(client, spec)
            yield Cluster(client, spec)
        finally:
            with suppress(Exception):  # what can fail here has been said already, or does not matter any more
                client.close(timeout=CLOSE_DEADLINE_S)


def _address(spec: str) -> str:
    """HOST:PORT of dask://HOST:PORT."""
    try:
        parts = urlsplit(spec)
        is_one = parts.scheme == "dask" and parts.hostname and parts.port and not (parts.path or parts.query)
    except ValueError:  # a port that is no number, or beyond 65535
        is_one = False
    if not is_one or "@" in parts.netloc:
        raise UsageError(
            f"not the address of a dask scheduler: {spec!r}",
            where="--executor",
            next_step="give dask://HOST:PORT, as in dask://login-1:8786",
        )
    return parts.netloc


def _client(make: "type[Client]", address: str, spec: str) -> "Client":
    """In a thread of its own: dask bounds the connection, but not the wait for a stranger who accepts it in silence."""
    answers: SimpleQueue[Client | Exception] = SimpleQueue()

    def connect() -> None:
        try:
            answers.put(make(address, timeout=CONNECT_DEADLINE_S, set_as_default=False, name="hangdrill"))
        except Exception as problem:  # handed on to the one who waits
            answers.put(problem)

    Thread(target=connect, name="hangdrill-connect", daemon=True).start()
    try:
        answer = answers.get(timeout=CONNECT_DEADLINE_S + 1)
    except Empty as silence:
        answer = silence
    if not isinstance(answer, Exception):
        return answer
    if not isinstance(answer, (*SILENCE, ValueError, Empty)):
        raise answer
    raise MachineError(
        f"no dask scheduler answers within {CONNECT_DEADLINE_S:g} s",
        where=spec,
        next_step="check the address, and that `dask scheduler` runs there",
    ) from answer


def _check_workers(client: "Client", spec: str) -> None:
    """Every worker has this hangdrill: one call, by a function that each Python has."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_DEADLINE_S)
    except SILENCE as problem:
        raise MachineError(
            f"the scheduler has no worker within {WORKERS_DEADLINE_S:g} s",
            where=spec,
            next_step="start some: dask worker HOST:PORT",
        ) from problem
    try:
        answers = client.sync(
            client.run,
            resolve_name,
            OUR_VERSION,
            on_error="return",
            callback_timeout=WORKERS_DEADLINE_S,
        )
    except SILENCE as problem:
        raise MachineError(
            f"not every worker said within {WORKERS_DEADLINE_S:g} s which hangdrill it has",
            where=spec,
            next_step="look at the workers' logs",
        ) from problem
    ours = resolve_name(OUR_VERSION)
    for worker, answer in sorted(answers.items()):
        if answer != ours:
            has = f"cannot import hangdrill ({answer})" if isinstance(answer, Exception) else f"has hangdrill {answer}"
            raise MachineError(
                f"the worker {worker} {has}, and this is hangdrill {ours}",
                where=spec,
                next_step=f"install hangdrill=={ours} where the workers run, and start them again",
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """dask's loggers say nothing meanwhile. Each has a handler of its own, so each is switched off."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in LOGGERS]
    loud = [one for one in map(logging.getLogger, names) if not one.disabled]
    for one in loud:
        one.disabled = True
    try:
        yield
    finally:
        for one in loud:
            one.disabled = False
