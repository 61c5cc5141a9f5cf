"""Which launcher a scenario means, and what it plainly lacks on this machine."""

import shutil
from collections.abc import Mapping

from hangdrill.launchers.bwrap import BwrapLauncher
from hangdrill.launchers.container import ContainerLauncher
from hangdrill.launchers.engine import Engine
from hangdrill.launchers.hosts import HostsLauncher
from hangdrill.launchers.kubernetes import kubernetes_launcher
from hangdrill.launchers.podman import Podman
from hangdrill.launchers.protocol import Launcher
from hangdrill.launchers.slurm import SlurmLauncher
from hangdrill.launchers.slurm_commands import Slurm
from hangdrill.launchers.torchrun import TorchrunLauncher
from hangdrill.model.scenario import LauncherName, Scenario

__all__ = ["launcher_for", "missing_launcher"]


def launcher_for(scenario: Scenario) -> Launcher:
    """The launcher that the scenario names."""
    match scenario.job.launcher:
        case LauncherName.TORCHRUN:
            return HostsLauncher() if scenario.job.on_nodes else TorchrunLauncher()
        case LauncherName.BWRAP:
            return BwrapLauncher()
        case LauncherName.CONTAINER:
            return ContainerLauncher()
        case LauncherName.KUBERNETES:
            return kubernetes_launcher(scenario.job.kubernetes)
        case LauncherName.SLURM:
            return SlurmLauncher()


def missing_launcher(scenario: Scenario, environ: Mapping[str, str]) -> str:
    """What the scenario's launcher plainly lacks on this machine, in a sentence; "" when nothing. Starts nothing."""
    match scenario.job.launcher:
        case LauncherName.TORCHRUN if scenario.job.on_nodes:
            return f"the job is on {scenario.job.nnodes} hosts: `hangdrill run --node-rank` is started on each"
        case LauncherName.BWRAP if shutil.which("bwrap", path=environ.get("PATH")) is None:
            return "bubblewrap (bwrap) is not installed"
        case LauncherName.CONTAINER if not Engine(environ).answers():
            return "no container engine answers, or docker-py is not installed"
        case LauncherName.SLURM if not Slurm(environ).answers():
            return "no Slurm answers: its commands are missing, or its controller is"
        case LauncherName.KUBERNETES if scenario.job.kubernetes.engine == "podman" and not Podman(environ).is_there():
            return "podman is not installed"
        case _:
            return ""
