"""torchrun on several hosts, each started there by a node process of hangdrill's (`python -m hangdrill.node`).

The launcher starts the node process of this host, node 0; the user, or a scheduler, starts the others. What a node
process runs in turn is `node_command`.
"""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from hangdrill.launchers.process import start_local
from hangdrill.launchers.protocol import LaunchedJob, LaunchRequest
from hangdrill.launchers.torchrun import TorchrunLauncher

__all__ = ["ADDRESS_VARIABLE", "ENDPOINT_VARIABLE", "HostsLauncher", "node_command", "node_environ"]

ADDRESS_VARIABLE = "HANGDRILL_ADDRESS"
"""The address of this host that the others reach it by."""
ENDPOINT_VARIABLE = "HANGDRILL_RDZV_ENDPOINT"
"""HOST:PORT at which the nodes meet, instead of a free port of node 0."""
_MARK = "HANGDRILL_"


class HostsLauncher:
    """Starts node 0."""

    def __init__(self) -> None:
        self._torchrun = TorchrunLauncher()

    def check(self, request: LaunchRequest) -> None:
        """MachineError when the ranks' Python or its torch is missing on this host; the others look for themselves."""
        self._torchrun.check(msgspec.structs.replace(request, nnodes=1))

    def command(self, request: LaunchRequest) -> tuple[str, ...]:
        """The node process of this host."""
        words = [sys.executable, "-m", "hangdrill.node", "--run", request.run_dir, "--node", "0"]
        for option, variable in (("--address", ADDRESS_VARIABLE), ("--rdzv-endpoint", ENDPOINT_VARIABLE)):
            if value := request.environ.get(variable):
                words += [option, value]
        return tuple(words)

    def start(self, request: LaunchRequest) -> LaunchedJob:
        """Start it in a session of its own; MachineError when the system refuses."""
        environ = node_environ(request.environ, request.set_environ)
        return start_local(self.command(request), environ=environ, cwd=request.cwd, log_path=request.log_path)


def node_environ(environ: Mapping[str, str], for_ranks: Collection[str] = ()) -> dict[str, str]:
    """The caller's environment and the run's marks, and hangdrill where it is found. What is set for the ranks is left
    out: the node process sets it for them, and a variable of the scenario must not change how hangdrill itself runs."""
    own = {
        key: value
        for key, value in environ.items()
        if key not in for_ranks or key.startswith(_MARK) or key == "PYTHONPATH"
    }
    package_parent = str(Path(__file__).resolve().parent.parent.parent)
    return {**own, "PYTHONPATH": ":".join(filter(None, (package_parent, own.get("PYTHONPATH", ""))))}


def node_command(request: LaunchRequest, *, node: int, endpoint: str, address: str, log_dir: str) -> tuple[str, ...]:
    """torchrun for one node. log_dir: where it makes a directory of its own, which it never removes."""
    backend = request.rendezvous
    return (
        request.python,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        str(request.nnodes),
        "--node-rank",
        str(node if backend == "static" else 0),
        "--nproc-per-node",
        str(request.nproc_per_node),
        "--rdzv-backend",
        backend,
        "--rdzv-endpoint",
        endpoint,
        "--rdzv-id",
        request.run_id,
        "--local-addr",
        address,
        "--log-dir",
        log_dir,
        "--max-restarts",
        str(request.max_restarts),
        *(("--rdzv-conf", f"is_host={int(node == 0)}") if backend == "c10d" else ()),
        "-m",
        "hangdrill.rank",
        request.target,
        *request.args,
    )
