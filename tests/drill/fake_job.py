"""A job and a road without processes: they write the files that agents and collector would have written."""

import struct
import time
from pathlib import Path

import msgspec

from hangdrill.drill.control import OPS_MAGIC
from hangdrill.drill.layout import write_json
from hangdrill.drill.roads import Notice
from hangdrill.model.run import (
    AgentFacts,
    Artifact,
    ArtifactKind,
    FaultReport,
    GroupCount,
    Manifest,
    PullReason,
    RankPull,
    RankState,
)  # fmt: skip
from hangdrill.model.scenario import Scenario

SLOTS = 256


def scenario(**tables):
    """A small valid scenario; each keyword is a table laid over it."""
    base = {
        "title": "a drill for tests",
        "job": {"nproc_per_node": 2, "workload": "all-reduce", "timeout_s": 1.0},
        "fault": {"kind": "hold", "rank": 1, "before": {"op": "all_reduce", "nth": 4}},
        "expect": {"culprit": 1, "within_s": 5.0},
    }
    for name, table in tables.items():
        base[name] = {**base.get(name, {}), **table} if table is not None else {}
    return msgspec.convert(base, Scenario)


HEALTHY = {"fault": None, "expect": {"culprit": None, "culprits": []}}


def write_ops(path: Path, *counts: tuple[int, int]) -> None:
    """counts: (collectives, p2p) of each group."""
    now = time.time_ns()
    slots = [*counts, *[(0, 0)] * (SLOTS - len(counts))]
    raw = struct.pack("<8Q", OPS_MAGIC, 8, SLOTS, 3, 0, now, 0, 0)
    raw += b"".join(struct.pack("<8Q", collectives, p2p, 0, now, 0, 0, 0, 0) for collectives, p2p in slots)
    path.write_bytes(raw)


def write_rank(control: Path, rank: int, *, attempt: int = 0, collectives: int = 3, pid: int = 0) -> None:
    """What a healthy agent leaves."""
    group = GroupCount(name="0", desc="default_pg", ranks=(0, 1), backend_class="ProcessGroupGloo")
    facts = AgentFacts(rank=rank, attempt=attempt, pid=pid, torch="2.15.0", groups=(group,), backend_requested="gloo")
    write_json(control / f"rank_{rank}.a{attempt}.facts.json", facts)
    write_ops(control / f"rank_{rank}.a{attempt}.ops", (collectives, 0))


def write_fault(control: Path, rank: int, kind: str = "hold") -> None:
    report = FaultReport(rank=rank, kind=kind, time_ns=time.time_ns(), group="default_pg", op="all_reduce", sequence=4)
    write_json(control / f"rank_{rank}.a0.fault.json", report)


def control_of(request) -> Path:
    return Path(request.environ["HANGDRILL_AGENT"]).parent


class FakeRoad:
    """Notices and completes as told. seen: what the drill did, in order, with what stood in control/ at that time."""

    def __init__(self, layout, *, notices=True, completes=True, on=None, notice=None):
        self.layout = layout
        self.notices = notices
        self.completes = completes
        self.on = on or {}
        self.notice = notice
        self.finished = 0

    def _happen(self, name):
        self.on.get(name, lambda: None)()

    def start(self, environ):
        self._happen("start")
        return ()

    def noticed(self):
        self._happen("noticed")
        if self.notice is not None:
            return self.notice(self)
        return Notice(by="collector", why="all_reduce #4 pending") if self.notices else None

    def is_complete(self, *, job_over):
        self._happen("is_complete")
        if self.completes:
            write_manifest(self.layout)
        return self.completes

    def finish(self, waiter, deadline_s):
        self.finished += 1
        self._happen("finish")
        return ""


def write_manifest(layout, *, noticed=True):
    artifacts = []
    for rank in (0, 1):
        path = layout.evidence / f"rank_{rank}.a0.handler.pickle"
        path.write_bytes(b"no dump at all")
        artifacts.append(
            Artifact(
                rank=rank,
                kind=ArtifactKind.DUMP,
                road="handler",
                path=path.name,
                bytes=14,
                sha256="0" * 64,
                pulled_ns=time.time_ns(),
                reason=PullReason.STALL,
            )
        )
    write_json(
        layout.manifest,
        Manifest(
            noticed_ns=time.time_ns() if noticed else None,
            notice="all_reduce #4 pending",
            complete=True,
            ranks=tuple(RankPull(rank=rank, state=RankState.RUNNING, answered=True) for rank in (0, 1)),
            artifacts=tuple(artifacts),
        ),
    )
