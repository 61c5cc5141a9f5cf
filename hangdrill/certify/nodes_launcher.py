"""Starts the node process of a drill on every node of a plan, by the plan's own words. It watches and ends nothing."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hangdrill.certify.nodes import NodeCommand, node_commands, travelling
from hangdrill.certify.nodes_plan import NODE
from hangdrill.drill.procfs import CONTROLLER_VARIABLE
from hangdrill.launchers.hosts import node_environ
from hangdrill.launchers.process import LocalJob, start_local
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.launchers.torchrun import TorchrunLauncher
from hangdrill.model.certify_plan import NodesPlan
from hangdrill.model.run import Leftover
from hangdrill.model.scenario import Teardown

__all__ = ["NodesLauncher"]

SLURM = "slurm"
"""As `python -m hangdrill.node` takes its number from the scheduler, where one command starts all nodes."""


class NodesLauncher:
    """node 0 is the first name; where one command starts all nodes, each takes its number from Slurm."""

    def __init__(self, nodes: NodesPlan, *, named: Sequence[str] = ()) -> None:
        """named: the variables that the plan sets."""
        self._nodes, self._named = nodes, tuple(named)
        self._torchrun = TorchrunLauncher()

    def check(self, request: LaunchRequest) -> None:
        """MachineError when the ranks' Python or its torch is missing on this host; the nodes were asked before."""
        self._torchrun.check(msgspec.structs.replace(request, nnodes=1))

    def command(self, request: LaunchRequest) -> tuple[str, ...]:
        """What starts the first node, or all."""
        return self._commands(request)[0].words

    def start(self, request: LaunchRequest) -> "JobOnNodes":
        """Start all; MachineError when this host refuses, and then those before it are ended."""
        environ = node_environ(request.environ, request.set_environ)
        parts: list[LocalJob] = []
        try:
            for command in self._commands(request):
                parts.append(
                    start_local(command.words, environ=environ, cwd=request.run_dir, log_path=request.log_path)
                )
        except BaseException:
            JobOnNodes(parts).signal(signal.SIGKILL)
            raise
        return JobOnNodes(parts)

    def _commands(self, request: LaunchRequest) -> tuple[NodeCommand, ...]:
        environ = node_environ(request.environ, request.set_environ)
        variables = travelling(environ, (*self._named, "PYTHONPATH"))
        marks = ("env", "-u", CONTROLLER_VARIABLE, "-C", request.run_dir)
        words = (*marks, *(f"{name}={value}" for name, value in variables.items()), sys.executable)
        words = (*words, "-m", "hangdrill.node", "--run", request.run_dir, "--node")
        if not any(NODE in word for word in self._nodes.run):
            return node_commands(self._nodes, (*words, SLURM))
        return tuple(
            node_commands(self._nodes, (*words, str(number)))[number] for number in range(len(self._nodes.names))
        )


class JobOnNodes:
    """The processes of this host that started the nodes: over when all are."""

    def __init__(self, parts: Sequence[LocalJob]) -> None:
        self._parts = tuple(parts)

    def poll(self) -> int | None:
        """The first code that is not 0; None while one of them runs."""
        codes = [part.poll() for part in self._parts]
        if any(code is None for code in codes):
            return None
        return next((code for code in codes if code), 0)

    def signal(self, number: signal.Signals) -> None:
        """To each."""
        for part in self._parts:
            part.signal(number)

    def pids(self) -> tuple[int, ...]:
        """Each a session of its own."""
        return tuple(pid for part in self._parts for pid in part.pids())

    def close(self) -> None:
        """Reap what is over."""
        for part in self._parts:
            part.close()

    def remove(self) -> None:
        """There is no container."""

    def undergo(self, teardown: Teardown) -> None:
        """A job of plain processes has no teardown of its own."""

    def locate(self, path: str) -> Path | None:
        """The run directory is shared; for everything else there is this host."""
        return Path(path)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Processes only: those here are the supervisor's, those of a node its node process's."""
        return ()
