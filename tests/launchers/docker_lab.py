"""A Docker engine of the tests' own: started by the test that needs it, and ended by it, with all that it wrote."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.engine import Engine

__all__ = ["docker_lab", "why_no_docker"]

START_S, END_S = 60.0, 30.0


def why_no_docker() -> str:
    """Why no engine can be started here; "" when it can be tried."""
    if os.getuid() != 0:
        return "a Docker engine needs root"
    missing = [name for name in ("dockerd", "containerd", "runc") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    return "" if importlib.util.find_spec("docker") else "docker-py is not installed"


@contextlib.contextmanager
def docker_lab() -> Iterator[dict[str, str]]:
    """The variables that name the engine. RuntimeError, with dockerd's last words, when it does not come up.

    It has no bridge and no iptables rules, so it changes nothing of the host's network.
    """
    lab = Path(tempfile.mkdtemp(prefix="docker-lab-"))  # short: a socket's path may have 107 bytes only
    command = [
        "dockerd", f"--data-root={lab}/data", f"--exec-root={lab}/exec", f"--pidfile={lab}/docker.pid",
        f"--host=unix://{lab}/docker.sock", "--exec-opt=native.cgroupdriver=cgroupfs", "--bridge=none",
        "--iptables=false",
    ]  # fmt: skip
    environ = {"DOCKER_HOST": f"unix://{lab}/docker.sock"}
    with (lab / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
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


def _unmount(lab: Path) -> None:
    """What dockerd leaves mounted when it ends: its data directory, bound onto itself, and a name of the network."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    for place in sorted((line.split()[4] for line in lines if str(lab) in line.split()[4]), reverse=True):
        subprocess.run(["umount", "--lazy", place], check=False)
