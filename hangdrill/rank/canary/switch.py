"""TORCH_DIST_USE_NCCL2 as this rank sees it, before torch is imported; and the mistakes with it, made on purpose.

Imports no torch. torch reads the variable once, when the backend's name is first asked for: what is set later does
nothing, and only the exact value 0 means anything.
"""

import contextlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["SWITCH", "creators", "plant_before_import", "plant_too_late", "switch_facts"]

SWITCH = "TORCH_DIST_USE_NCCL2"
NAMES = ("nccl", "nccl-legacy", "nccl-lazy", "nccl2")


def switch_facts(environ: Mapping[str, str]) -> dict[str, Any]:
    """at_exec: as the process was started, which a script cannot change any more; at_import: now."""
    return {"at_exec": _at_exec(), "at_import": environ.get(SWITCH)}


def creators(backend_registry: Any) -> dict[str, str]:
    """Which function torch would make a group of each name with: `_create_nccl_process_group` is the old one's.

    backend_registry: torch.distributed.Backend. Asking registers the names, as making a group does; so ask right before
    that, and not earlier.
    """
    ensure = getattr(backend_registry, "_ensure_backend_registered", None)
    if ensure is not None:
        for name in NAMES:
            with contextlib.suppress(Exception):  # a build without it; making a group would say why
                ensure(name)
    plugins = getattr(backend_registry, "_plugins", {})
    return {name: plugins[name.upper()].creator_fn.__name__ for name in NAMES if name.upper() in plugins}


def plant_before_import(plants: Sequence[str], environ: MutableMapping[str, str]) -> None:
    """The planted rank has no setting, or a wrong value; one that will come too late is not there yet."""
    for kind, value in _plants_of(plants, environ):
        environ.pop(SWITCH, None)
        if kind == "value":
            environ[SWITCH] = value


def plant_too_late(plants: Sequence[str], environ: MutableMapping[str, str]) -> None:
    """Set it right, once torch has looked."""
    if any(kind == "late" for kind, _ in _plants_of(plants, environ)):
        environ[SWITCH] = "0"


def _plants_of(plants: Sequence[str], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(kind, value) of this rank's."""
    for plant in plants:
        kind, _, rest = plant.partition(":")
        rank, _, value = rest.partition("=")
        if rank == environ.get("RANK"):
            yield kind, value


def _at_exec() -> str | None:
    """None: not set, or not to be seen."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{SWITCH}=".encode()
    return next((entry[len(prefix) :].decode(errors="replace") for entry in entries if entry.startswith(prefix)), None)
