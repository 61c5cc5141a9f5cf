"""The recorders a rank may have, and what to ask for each.

torch keeps one recorder a backend, and asked for the wrong one it gives a valid, empty answer. The name a job
requests is not the recorder's name either ("nccl" is nccl2's recorder in torch 2.15, and legacy's own before).
So several are asked for, and those that have something to say are kept.
"""

import re
from collections.abc import Iterable

import msgspec

__all__ = ["LEGACY", "RecorderSource", "sources_of"]


class RecorderSource(msgspec.Struct, frozen=True, kw_only=True):
    """One recorder inside a rank. legacy: ProcessGroupNCCL's own, which has handlers of its own."""

    backend: str
    legacy: bool = False

    @property
    def trace_handler(self) -> str:
        """The handler that answers in C++, without the GIL."""
        return "dump_nccl_trace_json" if self.legacy else "fr_trace_json"

    @property
    def trace_parameters(self) -> dict[str, str]:
        """What to pass to it. gloo's recorder returns finished operations too: there is no way to leave them out."""
        return {"onlyactive": "true"} if self.legacy else {"backend": self.backend}


LEGACY = RecorderSource(backend="nccl-legacy", legacy=True)

_RECORDERS: dict[str, tuple[RecorderSource, ...]] = {
    "gloo": (RecorderSource(backend="gloo"),),
    "nccl": (RecorderSource(backend="nccl2"), RecorderSource(backend="nccl"), LEGACY),
    "nccl2": (RecorderSource(backend="nccl2"), RecorderSource(backend="nccl")),
    "nccl-lazy": (RecorderSource(backend="nccl-lazy"), RecorderSource(backend="nccl2")),
    "nccl-legacy": (LEGACY,),
}
_ALL = ("gloo", "nccl", "nccl-lazy")


def sources_of(backends: Iterable[str]) -> tuple[RecorderSource, ...]:
    """The recorders to ask for, without repetition, for names as a job requests them ("cpu:gloo,cuda:nccl" too).

    Of no names at all: every built-in one.
    """
    names = [part.rpartition(":")[2] for name in backends for part in re.split(r"[,\s]+", name) if part]
    found: dict[RecorderSource, None] = {}
    for name in names or _ALL:
        found.update(dict.fromkeys(_RECORDERS.get(name, (RecorderSource(backend=name),))))
    return tuple(found)
