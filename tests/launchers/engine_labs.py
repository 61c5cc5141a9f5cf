"""Container engines of the tests' own: started by the test that needs one, and ended by it, with all that it wrote."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.engine import Engine

__all__ = ["ENGINES", "engine_lab", "lab_of", "layers_of", "why_no_engine"]

START_S, END_S = 60.0, 30.0
ENGINES = ("docker", "podman")
NEEDED = {"docker": ("dockerd", "containerd", "runc"), "podman": ("podman", "runc", "conmon")}
PODMAN_CONF = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
[network]
network_backend = "netavark"
"""
PODMAN_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{lab}/data"
runroot = "{lab}/exec"
"""


def why_no_engine(name: str) -> str:
    """Why this engine cannot be started here; "" when it can be tried."""
    if os.getuid() != 0:
        return f"the tests start {name} as root"
    missing = [program for program in NEEDED[name] if shutil.which(program) is None]
    if missing:
        return f"{missing[0]} is not installed"
    return "" if importlib.util.find_spec("docker") else "docker-py is not installed"


@contextlib.contextmanager
def engine_lab(name: str) -> Iterator[dict[str, str]]:
    """The variables that name the engine. RuntimeError, with its last words, when it does not come up."""
    lab = Path(tempfile.mkdtemp(prefix=f"{name}-lab-"))  # short: a socket's path may have 107 bytes only
    environ = {"DOCKER_HOST": f"unix://{lab}/engine.sock"}
    command, settings = _docker(lab) if name == "docker" else _podman(lab)
    with (lab / "log").open("wb") as log:
        daemon = subprocess.Popen(
            command, env=os.environ | settings, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        ready = Waiter().until(
            lambda: Engine(environ).answers() or daemon.poll() is not None or None, deadline_s=START_S, poll_s=0.2
        )
        if not ready or daemon.poll() is not None:
            raise RuntimeError((lab / "log").read_text()[-2000:])
        yield environ
    finally:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(END_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        _unmount(lab)
        shutil.rmtree(lab, ignore_errors=True)


def lab_of(environ: dict[str, str]) -> Path:
    """The directory of the engine that the variables name."""
    return Path(environ["DOCKER_HOST"].removeprefix("unix://")).parent


def layers_of(environ: dict[str, str]) -> set[str]:
    """The names of all layers that the engine keeps."""
    data = lab_of(environ) / "data"
    return {path.name for kind in ("overlay2", "overlay") for path in (data / kind).glob("[0-9a-f]*")}


def _docker(lab: Path) -> tuple[Sequence[str], dict[str, str]]:
    """Without a bridge and iptables rules it changes nothing of the host's network."""
    words = [
        "dockerd", f"--data-root={lab}/data", f"--exec-root={lab}/exec", f"--pidfile={lab}/engine.pid",
        f"--host=unix://{lab}/engine.sock", "--exec-opt=native.cgroupdriver=cgroupfs", "--bridge=none",
        "--iptables=false",
    ]  # fmt: skip
    return words, {}


def _podman(lab: Path) -> tuple[Sequence[str], dict[str, str]]:
    (lab / "containers.conf").write_text(PODMAN_CONF)
    (lab / "storage.conf").write_text(PODMAN_STORAGE.format(lab=lab))
    settings = {"CONTAINERS_CONF": f"{lab}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{lab}/storage.conf"}
    return ["podman", "system", "service", "--time=0", f"unix://{lab}/engine.sock"], settings


def _unmount(lab: Path) -> None:
    """What an engine leaves mounted when it ends: its data directory, bound onto itself, and a name of the network."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    for place in sorted((line.split()[4] for line in lines if str(lab) in line.split()[4]), reverse=True):
        subprocess.run(["umount", "--lazy", place], check=False)
