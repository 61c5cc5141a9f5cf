"""Ending what drills left behind whose controller was killed: processes, containers, files, registrations, holders.

A process is touched only when it belongs to a run whose controller is proven dead: by the registration of the drill, or
by the controller's pid and start time in the process's own environment. Everything else is left alone.
"""

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hangdrill.drill.inspection import leftover_files
from hangdrill.drill.layout import RunLayout
from hangdrill.drill.lock import stale_holders
from hangdrill.drill.procfs import ProcessId, is_alive, parse_id, pid_inside, scan
from hangdrill.drill.registry import (
    Registration,
    open_runtime_dir,
    registrations,
    runtime_root,
    unregister,
)  # fmt: skip
from hangdrill.drill.supervise import Grace, Supervisor
from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.engine import Engine
from hangdrill.launchers.image import STREAMS
from hangdrill.launchers.podman import Podman
from hangdrill.launchers.slurm import controller_of
from hangdrill.launchers.slurm_commands import Slurm
from hangdrill.launchers.slurm_job import GONE_S
from hangdrill.model.errors import MachineError
from hangdrill.model.run import Leftover

__all__ = ["clean"]

GRACE = Grace(int_s=0, term_s=0, kill_s=10.0)
"""No evidence is to be saved any more: a stopped rank, or one in C++, takes SIGKILL at once."""


def clean(*, dry_run: bool, environ: Mapping[str, str] | None = None) -> tuple[Leftover, ...]:
    """End and remove all that dead controllers left; what it was. dry_run: only find it.

    Raises MachineError when a process survives SIGKILL, or when the directory of running drills is not ours alone.
    """
    environ = os.environ if environ is None else environ
    root = open_runtime_dir(environ) if runtime_root(environ).exists() else None
    known = registrations(root) if root is not None else ()
    dead = tuple(registration for registration in known if not is_alive(registration.controller))
    living = {registration.run_id for registration in known} - {registration.run_id for registration in dead}
    orphans = {registration.run_id: registration.controller for registration in dead} | _orphaned_runs()
    found: list[Leftover] = []
    for run_id, controller in sorted(orphans.items()):
        if run_id not in living:
            found += _end_processes(run_id, controller, dry_run=dry_run)
    found += _cancel_jobs(set(orphans) - living, living, environ, dry_run=dry_run)
    found += _remove_containers(set(orphans) - living, living, environ, dry_run=dry_run)
    found += _remove_streams(dry_run=dry_run)
    for registration in dead:
        found += _remove_files(registration, dry_run=dry_run)
        if root is not None and not dry_run:
            unregister(root, registration.run_id)
    return (*found, *(_remove_holders(root, dry_run=dry_run) if root is not None else ()))


def _orphaned_runs() -> dict[str, ProcessId]:
    """Runs whose processes name a controller that is dead, also of drills that are registered elsewhere."""
    marks = {process.run_id: process.controller for process in scan() if process.run_id and process.alive}
    return {
        run_id: controller
        for run_id, controller in marks.items()
        if run_id and controller is not None and not is_alive(controller) and not _lives_in_a_namespace(controller)
    }


def _lives_in_a_namespace(controller: ProcessId) -> bool:
    """Whether a process in another pid namespace is the controller: its processes name it by its number there."""
    return any(
        found.alive
        and found.id.started_ticks == controller.started_ticks
        and pid_inside(found.id.pid) == controller.pid
        for found in scan()
    )


def _cancel_jobs(orphans: set[str], living: set[str], environ: Mapping[str, str], *, dry_run: bool) -> list[Leftover]:
    """Jobs of Slurm, of runs whose controller was on this host and is proven dead: by registration or by the job."""
    slurm = Slurm(environ)
    queued = slurm.jobs() if slurm.answers() else ()
    for job in queued:
        host, process = controller_of(job.comment)
        named = parse_id(process) if host == socket.gethostname() else None
        if job.run_id not in living and named is not None and not is_alive(named):
            orphans = orphans | {job.run_id}
    found = [job for job in queued if job.run_id in orphans]
    if found and not dry_run:
        slurm.cancel(*(job.job for job in found))
        cancelled = {job.job for job in found}

        def gone() -> bool | None:
            return True if not cancelled & {job.job for job in slurm.jobs()} else None

        if Waiter().until(gone, deadline_s=GONE_S, poll_s=0.5) is None:
            raise MachineError(
                f"jobs do not leave Slurm's queue: {', '.join(sorted(cancelled))}",
                next_step="look at squeue: a node may be down, or its processes stuck in the kernel",
            )
    return [Leftover(what="job", name=f"{job.job} ({job.state})") for job in found]


def _end_processes(run_id: str, controller: ProcessId, *, dry_run: bool) -> list[Leftover]:
    supervisor = Supervisor(run_id, controller)
    found = [Leftover(what="process", name=f"{item.name} ({item.id.pid})") for item in supervisor.processes()]
    if not dry_run:
        supervisor.end(GRACE).require_none_left(f"run {run_id}")
    return found


def _remove_containers(
    orphans: set[str], living: set[str], environ: Mapping[str, str], *, dry_run: bool
) -> list[Leftover]:
    """Pods, and containers with their images, of runs whose controller is proven dead: by registration or by their own
    label. Pods first: their containers bear the label too."""
    engine, podman = Engine(environ), Podman(environ)
    pods = podman.runs() if podman.answers() else ()
    made = [*pods, *(engine.runs() if engine.answers() else [])]
    for run_id, _, controller in made:
        named = parse_id(controller)
        if run_id in living or named is None or is_alive(named) or _lives_in_a_namespace(named):
            continue
        orphans = orphans | {run_id}
    if not dry_run:
        for run_id in sorted({run_id for run_id, _, _ in pods} & orphans):
            podman.remove(run_id)
        for run_id in sorted({run_id for run_id, _, _ in made} & orphans):
            if engine.answers():
                engine.remove(run_id)
    return [Leftover(what="container", name=name) for run_id, name, _ in made if run_id in orphans]


def _remove_streams(*, dry_run: bool) -> list[Leftover]:
    """What a program in an image said to a controller that is dead: in a directory that names it."""
    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{STREAMS}*")):
        pid, _, rest = path.name.removeprefix(STREAMS).partition("-")
        controller = parse_id(f"{pid}:{rest.partition('-')[0]}")
        with contextlib.suppress(OSError):
            own = path.lstat().st_uid == os.getuid() and path.is_dir() and not path.is_symlink()
            if controller is None or not own or is_alive(controller) or _lives_in_a_namespace(controller):
                continue
            found.append(Leftover(what="file", name=str(path)))
            if not dry_run:
                shutil.rmtree(path)
    return found


def _remove_files(registration: Registration, *, dry_run: bool) -> list[Leftover]:
    """Sockets, FIFOs and hold files, of a run directory that still is one."""
    layout = RunLayout(Path(registration.run_dir))
    found = leftover_files(layout)
    if not dry_run and layout.plan.is_file():
        for leftover in found:
            with contextlib.suppress(OSError):
                Path(leftover.name).unlink()
    return list(found)


def _remove_holders(root: Path, *, dry_run: bool) -> list[Leftover]:
    stale = stale_holders(root)
    for path in () if dry_run else stale:
        with contextlib.suppress(OSError):
            path.unlink()
    return [Leftover(what="lock", name=str(path)) for path in stale]
