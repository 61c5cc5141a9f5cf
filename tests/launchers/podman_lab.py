"""A podman of the tests' own, without a service: a storage directory that is made for it and removed with all in it."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine_labs import PODMAN_CONF, PODMAN_STORAGE, _unmount

__all__ = ["podman_lab", "told", "why_no_podman"]

NEEDED = ("podman", "runc", "conmon", "catatonit")


def why_no_podman() -> str:
    """Why no pod can be played here; "" when it can be tried."""
    if os.getuid() != 0:
        return "the tests play pods as root"
    missing = [name for name in NEEDED if not (shutil.which(name) or Path("/usr/libexec/podman", name).exists())]
    return f"{missing[0]} is not installed" if missing else ""


@contextlib.contextmanager
def podman_lab() -> Iterator[dict[str, str]]:
    """The variables that name its settings."""
    lab = Path(tempfile.mkdtemp(prefix="pods-lab-"))
    (lab / "containers.conf").write_text(PODMAN_CONF)
    (lab / "storage.conf").write_text(PODMAN_STORAGE.format(lab=lab))
    environ = {
        "CONTAINERS_CONF": f"{lab}/containers.conf",
        "CONTAINERS_STORAGE_CONF": f"{lab}/storage.conf",
        "DOCKER_HOST": f"unix://{lab}/none.sock",
    }
    try:
        yield environ
    finally:
        call = {"env": os.environ | environ, "capture_output": True, "timeout": 120}
        subprocess.run(["podman", "pod", "rm", "--all", "--force", "--time", "0"], check=False, **call)
        _unmount(lab)
        shutil.rmtree(lab, ignore_errors=True)


def told(environ: dict[str, str], *words: str) -> set[str]:
    """The names that one of podman's lists gives, without its pause image: that is made once, with the first pod."""
    done = subprocess.run(
        ["podman", *words], env=os.environ | environ, check=True, capture_output=True, text=True, timeout=120
    )
    return {line for line in done.stdout.splitlines() if "podman-pause" not in line}


def images(environ: dict[str, str]) -> set[str]:
    return told(environ, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}")


def layers(environ: dict[str, str]) -> int:
    """How many layers the storage holds."""
    path = Path(environ["CONTAINERS_STORAGE_CONF"]).parent / "data/overlay-layers/layers.json"
    return len(json.loads(path.read_text())) if path.exists() else 0
