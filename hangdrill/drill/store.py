"""Reading a run directory back into a RecordedRun, a week later or at once. The layout is in `layout.py`.

Tolerant: a file that is missing or damaged is missing evidence, never an exception. Only a directory without a readable
plan is no run at all.
"""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from hangdrill.delivery.record import CALLS
from hangdrill.drill.clocks import by_one_clock
from hangdrill.drill.control import ControlReader
from hangdrill.drill.evidence import ReadDumps, read_artifacts
from hangdrill.drill.inspection import Inspection
from hangdrill.drill.layout import RunLayout
from hangdrill.drill.node_files import read_in_place
from hangdrill.drill.plan_values import Plan
from hangdrill.drill.roads import read_manifest
from hangdrill.model.delivery import Delivered, HookCalls
from hangdrill.model.dump import Frame, RankDump
from hangdrill.model.errors import UsageError
from hangdrill.model.run import AgentFacts, Artifact, ArtifactKind, JournalEvent, NodeStatus, RecordedRun
from hangdrill.recorder.stacks import main_thread_frames

__all__ = ["load_run"]

T = TypeVar("T")

MOST_STACKS_BYTES = 1 << 20


def load_run(run_dir: Path) -> RecordedRun:
    """Read everything back, without a diagnosis, all times by the controller's clock. UsageError when it is no run."""
    layout = RunLayout(run_dir.absolute())
    plan = _read_plan(layout)
    journal = _read_journal(layout.journal)
    control = ControlReader(layout.control)
    agents, earlier = _by_attempt(control.facts().values())
    manifest = read_manifest(layout)
    inspection = _read(layout.inspection, Inspection) or Inspection()
    artifacts = manifest.artifacts if manifest is not None else ()
    evidence = read_artifacts(layout.evidence, artifacts)
    run = RecordedRun(
        scenario_name=plan.name,
        scenario=plan.scenario,
        run_id=plan.run_id,
        uid=plan.uid,
        started_ns=plan.created_ns,
        ended_ns=journal[-1].time_ns if journal else plan.created_ns,
        # A run directory that was moved or unpacked elsewhere is judged where it is now.
        dump_prefix=_moved(plan.dump_prefix, plan, layout),
        evidence_dir=str(layout.evidence),
        run_dir=str(layout.root),
        journal=journal,
        agents=agents,
        earlier_agents=earlier,
        faults=control.faults(),
        manifest=manifest,
        artifacts=artifacts,
        files=tuple(
            msgspec.structs.replace(facts, path=_moved(facts.path, plan, layout)) for facts in inspection.files
        ),
        dumps=_dumps_by_rank(evidence.dumps),
        unreadable=_unreadable_by_rank(evidence),
        stacks=_stacks_by_rank(layout.evidence, artifacts),
        job_exit_code=_exit_code(journal),
        leftovers=inspection.leftovers,
        delivered=_read(layout.delivered, Delivered),
        hook_calls=_hook_calls(layout),
        nodes=_nodes(layout),
        places=tuple(msgspec.structs.replace(one, path=_moved(one.path, plan, layout)) for one in inspection.places),
        clocks=inspection.clocks,
        memory=inspection.memory,
    )
    return by_one_clock(run)


def _stacks_by_rank(directory: Path, artifacts: Iterable[Artifact]) -> dict[int, tuple[Frame, ...]]:
    """Of each rank's first stacks: later ones show how it was ended."""
    found: dict[int, tuple[Frame, ...]] = {}
    for artifact in artifacts:
        if artifact.kind is ArtifactKind.STACKS and artifact.rank not in found:
            with contextlib.suppress(OSError):
                text = (directory / artifact.path).read_bytes()[:MOST_STACKS_BYTES].decode(errors="replace")
                found[artifact.rank] = main_thread_frames(text)
    return found


def _nodes(layout: RunLayout) -> tuple[NodeStatus, ...]:
    """Of a job on several hosts."""
    found = (read_in_place(path, NodeStatus) for path in sorted(layout.nodes.glob("*.json")))
    return tuple(sorted((status for status in found if status is not None), key=lambda status: status.node))


def _hook_calls(layout: RunLayout) -> HookCalls | None:
    """Of all collectors: one, or one a host."""
    places = (layout.evidence, *sorted(path for path in layout.evidence.glob("*") if path.is_dir()))
    found = [calls for place in places if (calls := _read(place / CALLS, HookCalls)) is not None]
    return HookCalls(calls=tuple(call for calls in found for call in calls.calls)) if found else None


def _read_plan(layout: RunLayout) -> Plan:
    where, next_step = str(layout.plan), "name a directory that `hangdrill run` has made"
    try:
        return msgspec.json.decode(layout.plan.read_bytes(), type=Plan)
    except OSError as error:
        raise UsageError(
            "this is not a run directory: it has no plan.json", where=where, next_step=next_step
        ) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"the plan is damaged: {error}", where=where, next_step=next_step) from error


def _read_journal(path: Path) -> tuple[JournalEvent, ...]:
    """Every whole line; the last one may be cut when the controller was killed."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return ()
    events: list[JournalEvent] = []
    for line in lines:
        try:
            events.append(msgspec.json.decode(line, type=JournalEvent))
        except msgspec.DecodeError:
            continue
    return tuple(events)


def _read(path: Path, shape: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except (OSError, msgspec.DecodeError):
        return None


def _by_attempt(facts: Iterable[AgentFacts]) -> tuple[dict[int, AgentFacts], tuple[AgentFacts, ...]]:
    """Each rank's last attempt, and all earlier ones in order."""
    ordered = sorted(facts, key=lambda agent: (agent.attempt, agent.rank))
    last = {agent.rank: agent for agent in ordered}
    return dict(sorted(last.items())), tuple(agent for agent in ordered if last[agent.rank] is not agent)


def _dumps_by_rank(dumps: Iterable[RankDump]) -> Mapping[int, tuple[RankDump, ...]]:
    """The richest first: a full history before active operations, an unbroken one before a cut one, a longer one."""
    found: dict[int, list[RankDump]] = {}
    for dump in dumps:
        found.setdefault(dump.rank, []).append(dump)
    for own in found.values():
        own.sort(key=lambda dump: (dump.only_active, dump.salvaged, -len(dump.operations), dump.path))
    return {rank: tuple(own) for rank, own in sorted(found.items())}


def _unreadable_by_rank(evidence: ReadDumps) -> Mapping[int, tuple[str, ...]]:
    found: dict[int, list[str]] = {}
    for item in evidence.unreadable:
        if item.rank is not None:
            found.setdefault(item.rank, []).append(f"{item.file}: {item.error}")
    return {rank: tuple(texts) for rank, texts in sorted(found.items())}


def _exit_code(journal: Iterable[JournalEvent]) -> int | None:
    codes = [event.detail.get("exit_code") for event in journal if event.name == "job-ended"]
    return codes[-1] if codes and isinstance(codes[-1], int) else None


def _moved(path: str, plan: Plan, layout: RunLayout) -> str:
    inside = path == plan.run_dir or path.startswith(plan.run_dir + "/")
    return str(layout.root) + path[len(plan.run_dir) :] if inside else path
