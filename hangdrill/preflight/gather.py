"""Gather all facts for the rules: from the caller's environment, a scenario or a command, this host, and torch."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hangdrill.model.kubernetes import Kubernetes
from hangdrill.model.scenario import FaultKind, LauncherName, Scenario, Trigger
from hangdrill.model.sizes import parse_size
from hangdrill.preflight.command import assigned, job_of_command
from hangdrill.preflight.machine import look_at_machine
from hangdrill.preflight.place import look_at_place, native_prefix
from hangdrill.preflight.pods import is_empty_dir
from hangdrill.preflight.script import read_script
from hangdrill.preflight.slurm import local_root, look_at_slurm
from hangdrill.preflight.surroundings import Job, JobKind, Place, Slurm, Sockets, Surroundings, WayOut
from hangdrill.preflight.torch_probe import ask_torch
from hangdrill.preflight.variables import names_to_ask_for
from hangdrill.preflight.way_out import look_at_way_out

__all__ = ["Wishes", "gather", "job_of_scenario"]

OWN_DIRS = ("/tmp", "/var/tmp")
"""Directories that every container has in its own layer."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the user says beyond scenario and command; it wins over what is seen."""

    dump_to: Path | None = None
    backend: str | None = None
    trigger: Trigger | None = None
    timeout_s: float | None = None
    grace_s: float | None = None
    kill_after_s: float | None = None


def gather(
    *,
    python: str,
    environ: Mapping[str, str],
    cwd: Path,
    umask: int,
    scenario: Scenario | None = None,
    command: Sequence[str] = (),
    wishes: Wishes = Wishes(),  # noqa: B008  # frozen
) -> Surroundings:
    """All facts; changes nothing, and waits no longer than the look at torch may take."""
    own = scenario.job.env if scenario is not None else assigned(command)
    visible = {name: value for name, value in own.items() if name.endswith("_VISIBLE_DEVICES")}
    names = names_to_ask_for([*environ, *own])
    image = scenario.job.image if scenario is not None else ""
    torch, problem = None, f"it is in the image {image}, and nothing is started here"
    if not image:
        torch, problem = ask_torch(python, {**environ, **visible}, cwd, names=names)
    job = Job()
    if scenario is not None:
        job = job_of_scenario(scenario, environ)
    elif command:
        job = job_of_command(command, environ=environ, cwd=cwd, gpus=torch.gpus if torch is not None else None)
    job = _with_wishes(job, wishes)
    inherited = {} if image else environ  # a job in an image has none of this host's variables
    merged = {name: value for name, value in {**inherited, **job.variables}.items() if name not in job.removed}
    in_pods = scenario is not None and scenario.job.launcher is LauncherName.KUBERNETES
    pod = scenario.job.kubernetes if scenario is not None and in_pods else None
    machine = look_at_machine(environ)
    in_slurm = machine.in_slurm if scenario is None else scenario.job.launcher is LauncherName.SLURM
    slurm = look_at_slurm(environ, str(cwd / "hangdrill-runs")) if in_slurm else None
    return Surroundings(
        environ=merged,
        torch=torch,
        torch_problem=problem,
        machine=machine,
        place=_place(job, scenario, merged, wishes, cwd=cwd, umask=umask),
        job=job,
        way_out=WayOut() if scenario is None else look_at_way_out(scenario, environ, str(cwd / "hangdrill-runs")),
        sockets=_sockets(job, merged, cwd),
        pod=pod,
        slurm=slurm,
        grace_s=_grace_s(wishes, pod, slurm),
        kill_after_s=wishes.kill_after_s,
    )


def _sockets(job: Job, environ: Mapping[str, str], cwd: Path) -> Sockets | None:
    named = environ.get("HANGDRILL_SOCKETS", "")
    if job.kind is not JobKind.COMMAND or job.trigger is not Trigger.COLLECTOR or not named:
        return None
    return Sockets(directory=named, exists=os.path.isdir(cwd / named))  # noqa: PTH112  # False where it is forbidden


def _grace_s(wishes: Wishes, pod: Kubernetes | None, slurm: Slurm | None) -> float | None:
    """What the user says wins over what pod and scheduler say."""
    if wishes.grace_s is not None:
        return wishes.grace_s
    if pod is not None:
        return float(pod.grace_s)
    return slurm.kill_wait_s if slurm is not None else None


def job_of_scenario(scenario: Scenario, environ: Mapping[str, str]) -> Job:
    """The job that `hangdrill run` would start. Its settings of the recorder win over the caller's."""
    job, recorder = scenario.job, scenario.recorder
    set_by_hangdrill = {"TORCH_FR_BUFFER_SIZE": str(recorder.buffer_size), "TORCH_FR_DUMP_ON_TIMEOUT": "1"}
    if recorder.dump_to is not None:
        set_by_hangdrill["TORCH_FR_DUMP_TEMP_FILE"] = f"{recorder.dump_to}/fr_"
    old = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    return Job(
        kind=JobKind.SCENARIO,
        launcher=job.launcher.value,
        variables={**set_by_hangdrill, **job.env},
        removed=tuple(name for name in old if name not in job.env),
        backend=job.backend,
        trigger=recorder.trigger,
        fault=FaultKind.HOLD if scenario.fault.kind is FaultKind.NONE else scenario.fault.kind,
        debug_interval_s=recorder.debug_server_interval_s,
        nnodes=job.nnodes,
        nproc_per_node=job.nproc_per_node,
        max_restarts=job.max_restarts,
        timeout_s=job.timeout_s,
        memory_bytes=None if job.memory is None else parse_size(job.memory),
        script=read_script(Path(job.script)) if job.script is not None else None,
    )


def _with_wishes(job: Job, wishes: Wishes) -> Job:
    trigger = wishes.trigger or job.trigger
    if wishes.trigger is None and trigger is Trigger.NATIVE and job.script is not None and job.script.debug_servers:
        trigger = Trigger.DEBUG_SERVER
    return msgspec.structs.replace(
        job,
        backend=wishes.backend or job.backend,
        trigger=trigger,
        timeout_s=wishes.timeout_s if wishes.timeout_s is not None else job.timeout_s,
    )


def _place(
    job: Job, scenario: Scenario | None, environ: Mapping[str, str], wishes: Wishes, *, cwd: Path, umask: int
) -> Place:
    prefix, chosen_by = native_prefix(environ)
    made_by_hangdrill = False
    if wishes.dump_to is not None:
        prefix, chosen_by = str(cwd / wishes.dump_to / "fr_"), "--dump-to"
    elif scenario is not None and "TORCH_FR_DUMP_TEMP_FILE" not in job.variables:
        prefix, chosen_by, made_by_hangdrill = str(cwd / "hangdrill-runs" / "fr_"), "the run directory", True
    elif scenario is not None and scenario.job.launcher is LauncherName.SLURM:
        directory = str(Path(prefix).parent)
        if root := local_root(directory):  # a node's own: its node process makes it, and nobody sees it from here
            return Place(
                prefix=prefix,
                directory=directory,
                chosen_by=chosen_by,
                made_by_hangdrill=True,
                file_system="a node's own",
                mount_point=root,
            )
    elif scenario is not None and scenario.job.contained:
        return _contained_place(scenario, prefix, chosen_by, cwd=cwd, umask=umask)
    place = look_at_place(prefix, chosen_by, cwd=cwd, umask=umask, made_by_hangdrill=made_by_hangdrill)
    return msgspec.structs.replace(place, in_empty_dir=is_empty_dir(Path(place.directory)))


def _contained_place(scenario: Scenario, prefix: str, chosen_by: str, *, cwd: Path, umask: int) -> Place:
    """On a volume: as this host has it; a named one is made in the run directory. Else as the mount table in the
    container will show it."""
    volume = scenario.job.volume_of(prefix)
    directory = str(Path(prefix).parent)
    made = "TORCH_FR_DUMP_TEMP_FILE" not in scenario.job.env or directory in (
        volume.target if volume else "",
        *OWN_DIRS,
    )
    empty_dir = scenario.job.kubernetes.empty_dir_of(directory)
    if scenario.job.launcher is LauncherName.KUBERNETES and empty_dir is not None:
        return Place(
            prefix=prefix,
            directory=directory,
            chosen_by=chosen_by,
            file_system="emptyDir",
            mount_point=empty_dir,
            in_empty_dir=True,
        )
    if volume is None or volume.in_memory:
        return Place(
            prefix=prefix,
            directory=directory,
            chosen_by=chosen_by,
            exists=made,
            is_directory=made,
            file_system="overlay" if volume is None else "tmpfs",
            mount_point="/" if volume is None else volume.target,
            free_bytes=None if volume is None else volume.size_bytes,
        )
    source = cwd / "hangdrill-runs" / volume.source / Path(prefix).relative_to(volume.target)
    place = look_at_place(str(source), "job.volumes", cwd=cwd, umask=umask, made_by_hangdrill=made)
    return msgspec.structs.replace(place, writable=False) if volume.read_only else place
