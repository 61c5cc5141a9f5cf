"""Builders of fingerprints and receipts for the tests of this room: complete, small, and the same each time."""

from typing import Any

import msgspec

from hangdrill.model.fingerprint import Extension, Fingerprint, Gpu, Package
from hangdrill.model.receipt import (
    CellRecord,
    CheckpointOutcome,
    CheckpointPair,
    Control,
    Difference,
    Item,
    Line,
    PlanRecord,
    RankProof,
    Receipt,
    RollbackRecord,
    RollbackRoad,
    StackRecord,
    Unresolved,
    Work,
)
from hangdrill.model.verdict import Verdict

PLAN = 'title = "2.14 to 2.15"\n[baseline]\npython = "a"\n[candidate]\npython = "b"\n'


def fingerprint(torch: str = "2.15.0+cu132", **changed: Any) -> Fingerprint:
    """A stack with two GPUs."""
    whole = Fingerprint(
        python="3.12.4",
        executable="/stacks/a/bin/python",
        libc="glibc 2.36",
        torch=torch,
        torch_git="d0f2af8b66b2",
        wheel=f"torch-{torch}-cp312-cp312-manylinux_2_28_x86_64",
        build="cuda",
        cuda="13.2",
        nccl="2.30.7",
        nccl_file="/stacks/a/libnccl.so.2",
        driver="580.95",
        gpus=tuple(Gpu(index=at, name="NVIDIA H200", memory_bytes=150_000_000_000, nvlinks=18) for at in range(2)),
        host="node-1",
        environment={"NCCL_DEBUG": "WARN"},
        packages=(
            Package(name="numpy", version="2.3.1", files_digest="aa"),
            Package(name="torch", version=torch, files_digest="bb"),
        ),
        packages_digest="cc",
    )
    return msgspec.structs.replace(whole, **changed)


def extension(**changed: Any) -> Extension:
    """One that was built for torch 2.15 and loads."""
    whole = Extension(
        name="flash-attn", version="2.9.0", files=("flash_attn.so",), built_with="2.15", stable_abi=False, loads=True
    )
    return msgspec.structs.replace(whole, **changed)


def line(name: str = "canary/dp/init-time/worse", verdict: Verdict = Verdict.PASS, **changed: Any) -> Line:
    """One of the canary matrix, with samples."""
    whole = Line(
        id=name,
        item=Item.WORK,
        topology="dp",
        verdict=verdict,
        claim="init_process_group takes no longer",
        detail="as fast",
        mend="" if verdict is Verdict.PASS else "look at the log",
        unit="s",
        baseline=(1.0, 1.1, 1.2),
        candidate=(1.1, 1.2, 1.3),
        ratio=1.09,
        interval=(0.98, 1.2),
        rule="worse when the median ratio is more than 1.1",
        evidence=("cells/canary/dp/init-time/samples.json",),
    )
    return msgspec.structs.replace(whole, **changed)


def record(name: str, stack: Fingerprint | None) -> StackRecord:
    """Of a stack that is there, or is not."""
    if stack is None:
        return StackRecord(name=name, python=f"/stacks/{name}/bin/python", missing="there is no Python")
    return StackRecord(name=name, python=f"/stacks/{name}/bin/python", fingerprint=stack, digest=stack.digest)


def receipt(**changed: Any) -> Receipt:
    """One that passes, with a row in every table."""
    whole = Receipt(
        id="2026-11-29T23:40:00Z-0011aabb",
        title="2.14 to 2.15",
        verdict=Verdict.PASS,
        sentence="all 2 lines pass",
        plan=PlanRecord(path="plan.toml", sha256="12" * 32, text=PLAN),
        baseline=record("baseline", fingerprint("2.14.1+cu130")),
        candidate=record("candidate", fingerprint()),
        who="kim@node-1",
        host="node-1",
        hangdrill="0.1.0",
        began_at="2026-11-29T22:40:00Z",
        made_at="2026-11-29T23:40:00Z",
        valid_until="2026-12-29T23:40:00Z",
        ring="benchmark-cluster",
        cells=(CellRecord(id="canary/dp/init-time", topology="dp", verdict=Verdict.PASS, ran=True, wall_s=61.5),),
        lines=(line(), line("canary/dp/throughput/worse", unit="steps/s", claim="as many steps a second")),
        differences=(
            Difference(
                line="differences/declared",
                what="torch",
                baseline="2.14.1+cu130",
                candidate="2.15.0+cu132",
                declared=True,
            ),
            Difference(
                line="canary/dp/memory/worse",
                what="GPU memory before the first step",
                baseline="0 MB",
                candidate="460 MB",
            ),
        ),
        checkpoint_pairs=(
            *(_pair(one, one) for one in ("baseline", "candidate")),
            _pair("baseline", "candidate"),
            _pair("candidate", "baseline", outcome=CheckpointOutcome.REFUSED, one_way=True),
        ),
        rollback=RollbackRecord(
            owner="Kim",
            where="job template",
            verify="hangdrill certify rollback.toml",
            expires="2027-03-31",
            verdict=Verdict.PASS,
            detail="both roads",
            roads=(
                RollbackRoad(
                    name="TORCH_DIST_USE_NCCL2=0",
                    verdict=Verdict.PASS,
                    ranks=tuple(RankProof(rank=at, backend_class="ProcessGroupNCCL", value="0") for at in range(2)),
                ),
            ),
        ),
        controls=(Control(name="controls/recorder-off", claim="empty dumps are found empty", got=Verdict.FAIL),),
        work=(
            Work(
                stack="candidate",
                topology="dp",
                steps=200,
                wall_s=100.0,
                steps_per_hour=7200.0,
                steps_per_price=1440.0,
                currency="USD",
            ),
        ),
        unresolved=(
            Unresolved(
                line="canary/dp/memory/worse", what="GPU memory: 0 MB -> 460 MB", next_step="lower the batch, or accept"
            ),
        ),
    )
    return msgspec.structs.replace(whole, **changed)


def _pair(saver: str, reader: str, **changed: Any) -> CheckpointPair:
    whole = CheckpointPair(
        saved_by=saver, restored_by=reader, mode="sync", layout="fsdp2", outcome=CheckpointOutcome.EQUAL
    )
    return msgspec.structs.replace(whole, **changed)
