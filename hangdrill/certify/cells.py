"""One cell of the matrix: what it promises, what it needs, and what it came to.

A cell promises its lines beforehand (`claims`): what it does not deliver, because a stack or a GPU is missing or it
crashed, becomes an UNKNOWN line with the next step. So nothing that was planned can go unmentioned.

`run` is called once, with a private directory of its own, which is empty unless the cell goes on (`GoesOn`). It raises
Interrupted when the user stops it, and must then have ended what it started; MachineError, or any other exception,
makes its lines UNKNOWN and the others go on. It must be deterministic given its samples, and start ranks only through
`hangdrill.drill` or a process group of its own that it ends in a `finally`.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import msgspec

from hangdrill.certify.places import HERE, Place
from hangdrill.certify.stacks import Stack
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.receipt import (
    CheckpointPair,
    Control,
    Difference,
    EvidenceFile,
    Item,
    Line,
    RollbackRecord,
    Unresolved,
    Work,
)
from hangdrill.model.verdict import Verdict
from hangdrill.report.progress import Listener

__all__ = ["Cell", "CellContext", "CellResult", "Claim", "GoesOn", "Needs", "evidence_file", "unknown_lines"]

CHUNK_BYTES = 1 << 20


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a cell promises. id: the cell's id, a slash, and a word; claim: what PASS means, in a sentence."""

    id: str
    item: Item
    claim: str
    topology: str = ""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What must be there before a cell can run. stacks: names that must work; gpus: of this host."""

    stacks: tuple[str, ...] = ("baseline", "candidate")
    gpus: int = 0
    programs: tuple[str, ...] = ()
    """Programs that must be found on PATH ("srun")."""


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell came to; `OUT/cells/<id>.json` holds it. samples: by measure, then by stack, in the order taken."""

    schema: Literal["hangdrill.cell/1"] = "hangdrill.cell/1"
    id: str
    topology: str = ""
    lines: tuple[Line, ...] = ()
    differences: tuple[Difference, ...] = ()
    samples: dict[str, dict[str, tuple[float, ...]]] = msgspec.field(default_factory=dict)
    checkpoint_pairs: tuple[CheckpointPair, ...] = ()
    rollback: RollbackRecord | None = None
    controls: tuple[Control, ...] = ()
    work: tuple[Work, ...] = ()
    unresolved: tuple[Unresolved, ...] = ()
    artifacts: tuple[EvidenceFile, ...] = ()
    ran: bool = True
    """False: the cell could not begin; its lines are UNKNOWN."""
    why_not: str = ""
    wall_s: float = 0.0
    began_at: str = ""
    """When its first measurement began (RFC 3339, UTC); `run.py` sets it. The receipt is good from the oldest on."""
    key: str = ""
    """Of the plan and the stacks that it was measured with; `run.py` sets it. `--resume` wants it to be the same."""
    seal: str = ""
    """sha256 of everything above, so that a result that was edited by hand is not taken for a measured one."""

    def sealed(self) -> "CellResult":
        """With its seal."""
        bare = msgspec.structs.replace(self, seal="")
        return msgspec.structs.replace(bare, seal=hashlib.sha256(msgspec.json.encode(bare)).hexdigest())


class CellContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a running cell is given.

    cell_dir: OUT/cells/<id>/, private, and empty unless the cell goes on (`GoesOn`); the cell's files and run
    directories go there.
    plan_dir: where relative paths in the plan start, and the user's own command lines run.
    environ: of hangdrill; a job of a stack gets `stack.environ(context.environ)`, with the plan's workload.env in it.
    """

    plan: CertifyPlan
    stacks: Mapping[str, Stack]
    out_dir: Path
    cell_dir: Path
    environ: Mapping[str, str]
    interrupt: Interrupt
    listener: Listener
    plan_dir: Path = msgspec.field(default_factory=Path.cwd)

    def job_environ(self, name: str) -> dict[str, str]:
        """The environment of a job on the named stack: hangdrill's, the workload's over it, the stack's over both. An
        image has its own variables in the place of hangdrill's."""
        stack = self.stacks[name]
        return stack.environ({**({} if stack.image else self.environ), **self.plan.workload.env})

    def place_of(self, name: str) -> Place:
        """Where a job of the named stack runs; a cell that passes it on to every job says `takes_images = True`."""
        stack = self.stacks[name]
        if not stack.image:
            return HERE
        gpus = bool(stack.fingerprint is not None and stack.fingerprint.gpus)
        return Place(
            image=stack.image_id, python=stack.python, mounts=stack.mounts, engine=dict(self.environ), gpus=gpus
        )

    def evidence(self, *paths: Path) -> tuple[EvidenceFile, ...]:
        """The files as the receipt names them: relative to OUT, with size and sha256. Raises OSError."""
        return tuple(evidence_file(path, self.out_dir) for path in paths)


class Cell(Protocol):
    """One cell. All attributes are known without running anything: `--dry-run` prints them."""

    @property
    def id(self) -> str:
        """Unique, a path of lower-case words: "canary/dp/throughput"."""

    @property
    def topology(self) -> str:
        """A value of Topology, or empty."""

    @property
    def title(self) -> str:
        """What is done, in a few words."""

    @property
    def needs(self) -> Needs:
        """What must be there."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The lines that it promises; ids begin with the cell's."""

    @property
    def estimate_s(self) -> float:
        """How long it takes, roughly, on an idle machine."""

    def run(self, context: CellContext) -> CellResult:
        """Measure."""


@runtime_checkable
class GoesOn(Protocol):
    """A cell that finds in its `cell_dir` what an interrupted run of it has left there, and goes on after that."""

    goes_on: bool


def unknown_lines(claims: tuple[Claim, ...], why: str, next_step: str) -> tuple[Line, ...]:
    """The promised lines as UNKNOWN, each with why and what to do."""
    return tuple(
        Line(
            id=claim.id,
            item=claim.item,
            topology=claim.topology,
            verdict=Verdict.UNKNOWN,
            claim=claim.claim,
            detail=why,
            mend=next_step,
        )
        for claim in claims
    )


def evidence_file(path: Path, out_dir: Path) -> EvidenceFile:
    """Size and sha256 of a file below OUT. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return EvidenceFile(path=str(path.relative_to(out_dir)), bytes=size, sha256=digest.hexdigest())
