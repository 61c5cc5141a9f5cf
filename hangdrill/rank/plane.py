"""torch's control plane of this rank, on a Unix socket that only its owner can reach, and the agent's two handlers.

The socket's path may be longer than the 107 bytes a Unix address holds, so it is bound through an open descriptor of
its directory: /proc/self/fd/<n>/rank_0.a0.sock. (Whoever connects to a deep path does the same.)
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch._C._distributed_c10d as c10d

__all__ = ["ControlPlane", "dump_history", "recorder_of"]

RECORDERS = {
    "ProcessGroupGloo": "gloo",
    "ProcessGroupNCCL2": "nccl2",
    "ProcessGroupNCCLLazy": "nccl-lazy",
    "ProcessGroupNCCL": "nccl-legacy",
}
"""Backend class -> the name its flight recorder answers to."""


def recorder_of(backend_class: str, requested: str) -> str:
    """The recorder's name for a backend; an out-of-tree backend's is its own name."""
    return RECORDERS.get(backend_class, requested)


def dump_history(backend: str, *, stacks: bool) -> bytes:
    """The full history of one backend's recorder, as torch's pickle."""
    if backend in ("nccl-legacy", "") or not hasattr(c10d, "_dump_fr_trace"):
        legacy = c10d._dump_nccl_trace  # type: ignore[attr-defined]  # torch is not typed here
        return bytes(legacy(includeCollectives=True, includeStackTraces=stacks, onlyActive=False))
    try:
        return bytes(c10d._dump_fr_trace(True, stacks, False, backend))
    except TypeError:  # before torch 2.14 there is one such recorder only, gloo's
        return bytes(c10d._dump_fr_trace(True, stacks, False))


class ControlPlane:
    """Serves until the process ends, also while the main thread is inside C++."""

    def __init__(self, sockets: Path, name: str) -> None:
        """Listen on sockets/name. Raises OSError or RuntimeError."""
        self.path = sockets / name
        self.path.unlink(missing_ok=True)
        directory = os.open(sockets, os.O_RDONLY | os.O_DIRECTORY)
        before = os.umask(0o077)
        try:
            self._server = c10d._WorkerServer(f"/proc/self/fd/{directory}/{name}")
        finally:
            os.umask(before)
            os.close(directory)

    def serve(self, *, facts: Callable[[], Mapping[str, Any]], default_backend: Callable[[], str]) -> None:
        """Register hangdrill_dump and hangdrill_facts."""

        def hangdrill_dump(request: Any, response: Any) -> None:
            backend = request.get_param("backend") or default_backend()
            dump = dump_history(backend, stacks=request.get_param("stacks") == "1")
            response.set_content(dump, "application/octet-stream")
            response.set_status(200)

        def hangdrill_facts(request: Any, response: Any) -> None:
            response.set_content(json.dumps(facts()), "application/json")
            response.set_status(200)

        c10d._register_handler("hangdrill_dump", hangdrill_dump)
        c10d._register_handler("hangdrill_facts", hangdrill_facts)

    def remove_socket(self) -> None:
        """Take the socket's name away; the process is about to end."""
        self.path.unlink(missing_ok=True)

    def shutdown(self) -> None:
        """Before a teardown of the interpreter, which aborts while the server lives. Only where nobody asks handlers of
        Python: it waits for one that is under way, and does not let go of the GIL meanwhile."""
        self._server.shutdown()
