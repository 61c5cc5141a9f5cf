"""Surroundings with which nothing is wrong, and a way to plant one fact in them."""

from typing import Any

import msgspec

from hangdrill.model.scenario import Trigger
from hangdrill.preflight import examine
from hangdrill.preflight.surroundings import (
    InitCall,
    Job,
    JobKind,
    Machine,
    Place,
    Script,
    Surroundings,
    Torch,
)

TORCH = Torch(version="2.15.0+cu132", gpus=8, nccl=(2, 30, 7))
MACHINE = Machine(ptrace_scope=1, can_trace=True, py_spy="/usr/bin/py-spy", clock_synchronised=True)
PLACE = Place(
    prefix="/data/dumps/fr_",
    directory="/data/dumps",
    chosen_by="TORCH_FR_DUMP_TEMP_FILE",
    file_system="ext4",
    mount_point="/data",
    free_bytes=10**12,
)
SCRIPT = Script(path="train.py", inits=(InitCall(line=10, backends=("nccl",), has_device_id=True, timeout_s=600.0),))
JOB = Job(
    kind=JobKind.COMMAND,
    launcher="torchrun",
    trigger=Trigger.COLLECTOR,
    nnodes=1,
    nproc_per_node=8,
    max_restarts=0,
    script=SCRIPT,
)


def good(
    *,
    torch: dict[str, Any] | None = None,
    machine: dict[str, Any] | None = None,
    place: dict[str, Any] | None = None,
    job: dict[str, Any] | None = None,
    script: dict[str, Any] | None = None,
    init: dict[str, Any] | None = None,
    **top: Any,
) -> Surroundings:
    """8 ranks of nccl on torch 2.15, a script that binds its GPU, the collector, a disk of one's own; then the facts
    that are planted: of a part by its name, of the whole by `top` (environ, grace_s, ...)."""
    call = msgspec.structs.replace(SCRIPT.inits[0], **(init or {}))
    text = msgspec.structs.replace(SCRIPT, **{"inits": (call,), **(script or {})})
    facts = Surroundings(
        torch=msgspec.structs.replace(TORCH, **(torch or {})),
        machine=msgspec.structs.replace(MACHINE, **(machine or {})),
        place=msgspec.structs.replace(PLACE, **(place or {})),
        job=msgspec.structs.replace(JOB, **{"script": text, **(job or {})}),
    )
    return msgspec.structs.replace(facts, **top)


def ids(facts: Surroundings) -> list[str]:
    """The findings' ids, the worst first."""
    return [finding.id for finding in examine(facts).findings]
