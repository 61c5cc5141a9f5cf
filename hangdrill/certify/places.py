"""Where a job of a certification runs: on this host, or in a container of the stack's image.

The one seam between cells and containers: what a job in an image sees of this host, and what its variables are, is
decided here and in `hangdrill.launchers.image`. Whoever starts a job here ends it, and calls `remove` in any case.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hangdrill.drill.procfs import CONTROLLER_VARIABLE
from hangdrill.launchers.agent_path import rank_package
from hangdrill.launchers.box import Box, Mount, find_mounted, mounted_volumes
from hangdrill.launchers.engine import Engine
from hangdrill.launchers.image import ImageTask, start_in_image
from hangdrill.launchers.process import start_local
from hangdrill.launchers.protocol import LaunchedJob
from hangdrill.model.container import Container
from hangdrill.model.errors import MachineError
from hangdrill.model.scenario import LauncherName, Scenario, Volume

__all__ = ["HERE", "Place", "Start", "scenario_in", "start_at"]

_INTO_THE_LOG = 'exec "$@" >>"$0" 2>&1'
PATH = "PATH"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """image: the stack's, by its id, "" for this host. engine: the variables that name the engine, among others."""

    image: str = ""
    python: str = ""
    mounts: tuple[str, ...] = ()
    """ "SOURCE:TARGET[:ro]"."""
    engine: Mapping[str, str] = msgspec.field(default_factory=dict)
    gpus: bool = False


HERE = Place()


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A command to start. environ: whole; named: of what the user and the stack name, all that an image's job keeps of
    PATH. sees, writes: files and directories beside that of the log, which a job in an image has at the same paths."""

    run_id: str
    command: tuple[str, ...]
    environ: dict[str, str]
    named: Mapping[str, str]
    cwd: Path
    log: Path
    sees: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()


def start_at(place: Place, start: Start) -> LaunchedJob:
    """Start it in a session, or a container, of its own. Raises MachineError, and then nothing is left."""
    if not place.image:
        return start_local(start.command, environ=start.environ, cwd=str(start.cwd), log_path=str(start.log))
    start.log.touch(mode=0o600)
    mounts = _mounts(place, start)
    cwd = start.cwd if find_mounted(mounts, str(start.cwd)) is not None else start.log.parent
    task = ImageTask(
        image=place.image,
        run_id=start.run_id,
        controller=start.environ.get(CONTROLLER_VARIABLE, ""),
        command=("/bin/sh", "-c", _INTO_THE_LOG, str(start.log), *start.command),
        python=place.python,
        environ={name: value for name, value in start.environ.items() if name != PATH or PATH in start.named},
        cwd=str(cwd),
        box=Box(mounts=mounts, links=(), own_dirs=(), devices=()),
        gpus=place.gpus,
    )
    return start_in_image(Engine(place.engine), task)


def scenario_in(place: Place, scenario: Scenario, named: Mapping[str, str]) -> Scenario:
    """The same drill in the place's image; on this host, as it is. named: the variables of the plan and the stack."""
    if not place.image:
        return scenario
    job = msgspec.structs.replace(
        scenario.job,
        launcher=LauncherName.CONTAINER,
        container=Container(image=place.image, python=place.python),
        volumes=(*place.mounts, *scenario.job.volumes),
        env={**named, **scenario.job.env},
    )
    return msgspec.structs.replace(scenario, job=job)


def _mounts(place: Place, start: Start) -> tuple[Mount, ...]:
    """Parents before children. The user's own come last: who names a path means it."""
    found = {str(path): Mount(source=str(path), target=str(path)) for path in (rank_package(), *start.sees)}
    for path in (start.log.parent, *start.writes):
        found[str(path)] = Mount(source=str(path), target=str(path), writable=True)
    volumes = [Volume.parse(text) for text in place.mounts]
    _check(volumes)
    found |= {mount.target: mount for mount in mounted_volumes(volumes, "")}
    there = (mount for mount in found.values() if Path(mount.source).exists())
    return tuple(sorted(there, key=lambda mount: mount.target.count("/")))


def _check(volumes: Sequence[Volume]) -> None:
    for volume in volumes:
        if not Path(volume.source).exists():
            what = f"a directory that the stack's image is to have mounted does not exist: {volume.source}"
            raise MachineError(what, next_step="make it, or mend the stack's mounts in the plan")
