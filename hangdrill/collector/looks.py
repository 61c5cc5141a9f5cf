"""One look at one rank over its socket: cheap, without the GIL, and over by a deadline. Changes nothing."""

import time
from collections.abc import Mapping

import msgspec

from hangdrill.collector.control_plane import NoAnswer, RankSocket, Silence
from hangdrill.collector.sources import RecorderSource
from hangdrill.collector.traces import Health, Trace, read_health, read_trace

__all__ = ["LOOK_DEADLINE_S", "Look", "look"]

LOOK_DEADLINE_S = 0.5


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one look showed. silence None: the rank answered. took_s: how much of its time (and ours) it cost."""

    traces: tuple[Trace, ...] = ()
    health: Health | None = None
    silence: Silence | None = None
    detail: str = ""
    took_s: float = 0.0


def look(socket: RankSocket, sources: tuple[RecorderSource, ...], *, health: bool) -> Look:
    """Ask every source for its trace, and torch for its own opinion when `health`.

    A handler that this torch does not have (404) is no silence: the rank did answer.
    """
    began_s = time.monotonic()
    traces: list[Trace] = []
    opinion: Health | None = None
    try:
        for source in sources:
            body = _ask(socket, source.trace_handler, source.trace_parameters)
            if body is not None:
                traces.append(read_trace(body, source))
        if health and (body := _ask(socket, "c10d_health_check", {})) is not None:
            opinion = read_health(body)
    except NoAnswer as error:
        return Look(traces=tuple(traces), silence=error.cause, detail=str(error), took_s=time.monotonic() - began_s)
    return Look(traces=tuple(traces), health=opinion, took_s=time.monotonic() - began_s)


def _ask(socket: RankSocket, handler: str, parameters: Mapping[str, str]) -> bytes | None:
    try:
        return socket.post(handler, parameters, deadline_s=LOOK_DEADLINE_S)
    except NoAnswer as error:
        if error.cause is Silence.REFUSED:
            return None
        raise
