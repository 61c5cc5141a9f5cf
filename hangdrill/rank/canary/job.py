"""One canary job: the process group, its parts one after another, and its end. Only this module knows the order."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hangdrill.rank.canary.device import choose_device, held_bytes, peak_bytes, start_context, synchronize
from hangdrill.rank.canary.meeting import Meeting
from hangdrill.rank.canary.options import Options
from hangdrill.rank.canary.record import Record
from hangdrill.rank.canary.stores import StoreMeeting, base_store
from hangdrill.rank.canary.switch import creators, plant_too_late
from hangdrill.rank.canary.turns import IN_TURNS, Turns
from hangdrill.rank.files import wait_until
from hangdrill.rank.groups import backend_class

__all__ = ["Job", "run_job"]

FAILED = 1
GO_LIMIT_S = 300.0


@dataclass(frozen=True)
class Job:
    """What a part is given. record.measures and record.facts are for the part to fill."""

    options: Options
    record: Record
    device: Any
    meet: Callable[[str], None]
    turns: Turns

    @property
    def rank(self) -> int:
        """Global."""
        return int(dist.get_rank())

    @property
    def world_size(self) -> int:
        """Of the default group."""
        return int(dist.get_world_size())

    @property
    def large(self) -> bool:
        """Sizes for a GPU; else for a few cores."""
        return bool(self.device.type != "cpu")


def run_job(options: Options, record: Record) -> None:
    """Ends with 1 where the group could not be made or destroyed; a part that failed is in the record alone."""
    record.facts |= {
        "torch": str(torch.__version__),
        "torch_git": str(torch.version.git_version or ""),
        "cuda": torch.version.cuda or torch.version.hip,
        "backend_requested": options.backend,
        "gpus": torch.cuda.device_count(),
        "bind": options.bind,
    }
    if options.go is not None:
        _wait_for(options.go, record)
    device = choose_device(options.backend, options.bind, record.facts["local_rank"])
    again = record.attempt > 0  # started again by torchrun, after the last rank died
    turns = Turns(options.turns, options.side, rank=record.rank, limit_s=options.limit_s, patience_s=options.patience_s)
    record.waited_s = lambda: turns.waited_s
    if again:
        turns.end()
    job = Job(options, record, device, _meeting(options, record), turns)
    _part(job, "init", _init)
    if "init" in record.failed:
        turns.end()
    else:
        for part in ("recover",) if again else _with_turns(options.parts, turns, record):
            _part(job, part, partial(_measure, part))
            if part in record.failed:
                turns.leave(part)
        _part(job, "shutdown", _shutdown)
    record.mark("done")
    record.save()
    if {"init", "shutdown"} & record.failed.keys():
        os._exit(FAILED)  # a half-made group may never end by itself


def _with_turns(parts: tuple[str, ...], turns: Turns, record: Record) -> Iterator[str]:
    """The parts, one after another: before the first that is measured in turns the other job is waited for, and after
    the last one this job goes on alone."""
    last = max((at for at, part in enumerate(parts) if part in IN_TURNS), default=-1)
    joined = False
    for at, part in enumerate(parts):
        if part in IN_TURNS and not joined:
            record.mark("joined")
            turns.join()
            joined = True
        yield part
        if at == last:
            turns.part_ways()
            record.mark("alone")
        record.measures["part_turns_s"] = turns.waited_s


def _meeting(options: Options, record: Record) -> Callable[[str], None]:
    """Files that another node's ranks make may be seen late, on a network file system by a minute."""
    if options.meet == "store":
        return StoreMeeting(world_size=record.world_size, timeout_s=options.timeout_s)
    return Meeting(options.out, rank=record.rank, world_size=record.world_size, attempt=record.attempt)


def _wait_for(go: Path, record: Record) -> None:
    """The record's file says that this rank is ready."""
    record.doing = "go"
    record.save()
    if not wait_until(go.exists, limit_s=GO_LIMIT_S):
        raise SystemExit(f"hangdrill.rank.canary: {go} did not appear within {GO_LIMIT_S:g} s")


def _part(job: Job, name: str, function: Callable[[Job], None]) -> None:
    limit_s = job.options.limit_s * (2 if job.turns.together else 1)  # as long again for the other job's turns
    with job.record.part(name, limit_s=limit_s):
        function(job)


def _measure(part: str, job: Job) -> None:
    _function_of(part)(job)
    job.record.measures["peak_bytes"] = peak_bytes(job.device)


def _init(job: Job) -> None:
    """Make the default group; what it takes before any work is the difference on both sides of one call."""
    options, record, device = job.options, job.record, job.device
    start_context(device)
    job.meet("begin")
    record.facts["creators"] = creators(dist.Backend)
    plant_too_late(options.plants, os.environ)
    record.facts["switch"]["at_group"] = os.environ.get("TORCH_DIST_USE_NCCL2")
    record.save()  # if the ranks do not agree, one of the next calls never returns
    store = _store(options)
    job.meet("store")
    before_bytes, began_s = held_bytes(device), time.perf_counter()
    explicit = options.bind in ("explicit", "first") and device.type != "cpu"
    dist.init_process_group(
        options.backend,
        timeout=timedelta(seconds=options.timeout_s),
        store=store,
        rank=record.rank,
        world_size=record.world_size,
        device_id=device if explicit else None,
    )
    synchronize(device)
    record.measures["init_s"] = time.perf_counter() - began_s
    job.meet("init")  # ranks that share a GPU would see each other's half of it
    record.measures["init_bytes"] = max(0, held_bytes(device) - before_bytes)
    group = dist.distributed_c10d._get_default_group()
    record.facts["backend_class"] = backend_class(group)
    record.facts["nccl_loaded"] = _nccl_version() if "NCCL" in record.facts["backend_class"] else None
    record.facts["device"] = str(device)
    record.facts["bound_device"] = str(getattr(group, "bound_device_id", None))
    record.save()
    record.measures["first_collective_s"] = _first_collective(device)
    record.measures["start_s"] = record.measures["init_s"] + record.measures["first_collective_s"]
    record.measures["before_step_bytes"] = max(0, held_bytes(device) - before_bytes)
    record.measures["peak_bytes"] = peak_bytes(device)  # until a part has its own


def _store(options: Options) -> Any:
    """As init_process_group makes it, and before it is timed: a rank that comes before rank 0 listens sleeps for up to
    a second, by chance, which says nothing of a stack."""
    return dist.PrefixStore("default_pg", base_store(options.timeout_s))


def _first_collective(device: Any) -> float:
    began_s = time.perf_counter()
    one = torch.ones(1, device=device)
    dist.all_reduce(one)
    if int(one.item()) != dist.get_world_size():
        raise RuntimeError(f"an all_reduce of ones gave {one.item()} in a world of {dist.get_world_size()}")
    return time.perf_counter() - began_s


def _function_of(part: str) -> Callable[[Job], None]:
    """Late, since some parts import what takes a second."""
    if part in ("groups", "latency", "p2p"):
        from hangdrill.rank.canary import communication

        return {"groups": communication.groups, "latency": communication.latency, "p2p": communication.p2p}[part]
    if part in ("checkpoint", "recover"):
        from hangdrill.rank.canary import saving

        return {"checkpoint": saving.checkpoint, "recover": saving.recover}[part]
    if part in ("foreign", "several"):
        from hangdrill.rank.canary import devices

        return {"foreign": devices.foreign, "several": devices.several}[part]
    from hangdrill.rank.canary import training

    return training.PARTS[part]


def _nccl_version() -> str | None:
    """Of the NCCL (on ROCm RCCL) that is loaded, which need not be the one torch was built with."""
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except (AttributeError, RuntimeError):
        return None


def _shutdown(job: Job) -> None:
    job.meet("shutdown")
    job.record.mark("leaving")
    began_s = time.perf_counter()
    dist.destroy_process_group()
    job.record.measures["destroy_s"] = time.perf_counter() - began_s
    base_store.cache_clear()
