"""What really runs in this rank: versions, backend classes, devices and groups; for facts.json and the handler."""

import os
import platform
import socket
import time
from typing import Any

import torch

from hangdrill.rank.groups import GroupBook
from hangdrill.rank.orders import Identity
from hangdrill.rank.plane import recorder_of
from hangdrill.rank.record import Record

__all__ = ["Facts"]


class Facts:
    """Collected once, completed as groups are made. The keys are those of AgentFacts."""

    def __init__(self, who: Identity, *, backend: str, placement: str) -> None:
        self.backend_requested = backend
        self.device_id: Any = None
        self.notes: list[str] = []
        self._placement = placement
        self._fixed: dict[str, Any] = {
            "rank": who.rank,
            "attempt": who.attempt,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "torch_git": str(torch.version.git_version or ""),
            "cuda": torch.version.cuda,
            "started_ns": time.time_ns(),
        }

    def without_counts(self, book: GroupBook) -> dict[str, Any]:
        """The content of facts.json; groups[i] is slot i of the ops file."""
        default = book.groups[0] if book.groups else None
        backend_class = default.backend_class if default else ""
        return {
            **self._fixed,
            "written_ns": time.time_ns(),
            "nccl_loaded": _nccl_version() if "NCCL" in backend_class else None,
            "backend_requested": self.backend_requested,
            "backend_class": backend_class,
            "recorder": recorder_of(backend_class, self.backend_requested),
            "device_binding": self._device_binding(backend_class),
            "placement": self._placement,
            "notes": [*self.notes, *book.notes],
            "groups": [
                {"name": group.name, "desc": group.desc, "ranks": group.ranks, "backend_class": group.backend_class}
                for group in book.groups
            ],
        }

    def with_counts(self, book: GroupBook, record: Record) -> dict[str, Any]:
        """What the handler hangdrill_facts answers."""
        facts = self.without_counts(book)
        for slot, group in enumerate(facts["groups"]):
            group["collectives"], group["p2p"] = record.counts(slot)
        return {**facts, "steps": record.steps}

    def _device_binding(self, backend_class: str) -> str:
        """Where the group's operations run: "cuda:1 (NVIDIA H200), explicit device_id", or "derived", or "cpu"."""
        if self.device_id is not None:
            return f"{_name(self.device_id)}{_model()}, explicit device_id"
        if backend_class in ("", "ProcessGroupGloo"):
            return "cpu"
        return f"{current}{_model()}, derived" if (current := _current_device()) else "derived"


def _name(device: Any) -> str:
    """A device_id as a user may give it: an index, a text or a torch.device."""
    return f"cuda:{device}" if isinstance(device, int) else str(device)


def _model() -> str:
    return f" ({torch.cuda.get_device_name()})" if torch.cuda.is_available() else ""


def _current_device() -> str:
    if torch.cuda.is_available():
        return f"cuda:{torch.cuda.current_device()}"
    xpu = getattr(torch, "xpu", None)  # not tested: there was no such device
    return f"xpu:{xpu.current_device()}" if xpu is not None and xpu.is_available() else ""


def _nccl_version() -> str | None:
    """The version of the NCCL that is loaded, which need not be the one torch was built with; on ROCm it is RCCL's."""
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except (AttributeError, RuntimeError):
        return None
