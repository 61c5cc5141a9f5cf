"""The words that start a job's part on each node. Pure: starts nothing.

ssh brings no environment along, so the variables travel as words: `env NAME=VALUE ... COMMAND`. What travels is what
makes a stack (the variables of torch, NCCL and the network, as in its fingerprint), the plan's own, and hangdrill's.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from hangdrill.certify.nodes_plan import COMMAND, NODE
from hangdrill.drill.procfs import CONTROLLER_VARIABLE, RUN_ID_VARIABLE
from hangdrill.model.certify_plan import NodesPlan

__all__ = ["ALL_NODES", "TRAVELS", "NodeCommand", "node_commands", "on_node_words", "torchrun_words", "travelling"]

TRAVELS = (
    "TORCH", "PYTORCH_", "NCCL_", "RCCL_", "CUDA_", "HIP_", "ROCR_", "HSA_", "GLOO_", "UCX_", "FI_", "OFI_", "NVSHMEM_",
    "OMP_", "MKL_", "KMP_", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHASHSEED", "MALLOC_", "CUBLAS_",
)  # fmt: skip
"""Beginnings of names, as the fingerprint takes them; without what says which devices of one host are meant."""
OWN = ("PYTHONUNBUFFERED", "PET_LOG_DIR", RUN_ID_VARIABLE)
ALL_NODES = "all nodes"
_OF_ONE_HOST = re.compile(r"_VISIBLE_DEVICES$|TOKEN|SECRET|PASSWORD|CREDENTIAL|(^|_)KEY($|_)")
JOIN_S = 300.0
CONNECT_S = 60.0


class NodeCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command of this host that starts the job's part on one node, or on all."""

    name: str
    words: tuple[str, ...]


def node_commands(nodes: NodesPlan, command: Iterable[str]) -> tuple[NodeCommand, ...]:
    """One for each node; without {node} one for all."""
    words = tuple(command)
    if not any(NODE in word for word in nodes.run):
        return (NodeCommand(name=ALL_NODES, words=_started(nodes.run, words)),)
    return tuple(
        NodeCommand(name=name, words=_started(tuple(word.replace(NODE, name) for word in nodes.run), words))
        for name in nodes.names
    )


def _started(prefix: tuple[str, ...], command: tuple[str, ...]) -> tuple[str, ...]:
    """{command} is one word for a shell on the other side; without it the words follow as they are."""
    if not any(COMMAND in word for word in prefix):
        return (*prefix, *command)
    return tuple(word.replace(COMMAND, shlex.join(command)) for word in prefix)


def travelling(environ: Mapping[str, str], named: Iterable[str]) -> dict[str, str]:
    """The variables that go along. named: those that the plan sets itself, whatever they are."""
    wanted = {name for name in environ if name.startswith(TRAVELS) and not _OF_ONE_HOST.search(name)}
    wanted |= {name for name in (*named, *OWN) if name in environ}
    return {name: environ[name] for name in sorted(wanted)}


def on_node_words(
    nodes: NodesPlan,
    *,
    python: str,
    variables: Mapping[str, str],
    directory: Path,
    lease: Path,
    lease_s: float,
    command: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """The part on a node: in the job's directory, which shows at once whether the node sees it.

    The controller's mark does not go along: it is a process of this host, and another host's might bear its number.
    """
    interface = ("--interface", nodes.interface) if nodes.interface else ()
    own = ("-m", "hangdrill.rank.canary.on_node", "--lease", str(lease), "--limit-s", f"{lease_s:g}")
    own = (*own, "--endpoint", nodes.endpoint, *interface)
    marks = ("env", "-u", CONTROLLER_VARIABLE, "-C", str(directory))
    return (*marks, *(f"{name}={value}" for name, value in variables.items()), python, *own, "--", *command)


def torchrun_words(
    nodes: NodesPlan,
    *,
    python: str,
    run_id: str,
    nnodes: int,
    nproc_per_node: int,
    max_restarts: int,
    program: tuple[str, ...],
) -> tuple[str, ...]:
    """torchrun as each node starts it; {address} and {holds} are filled in there."""
    return (
        *(python, "-m", "torch.distributed.run"),
        *("--nnodes", str(nnodes), "--nproc-per-node", str(nproc_per_node), "--max-restarts", str(max_restarts)),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", nodes.endpoint, "--rdzv-id", run_id),
        *("--rdzv-conf", f"is_host={{holds}},join_timeout={JOIN_S:.0f},read_timeout={CONNECT_S:.0f}"),
        *("--local-addr", "{address}"),
        *("-m", "hangdrill.rank", "-m", *program),
    )
