"""window: in the dump of each waiting rank the operations before the stuck one are visible, not only the stuck one."""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.counts import recordable
from hangdrill.checks.evidence import absence, best_dump, expected_ranks, judged_agents
from hangdrill.checks.words import ranks_text
from hangdrill.model.diagnosis import HangVerdict, StuckOperation
from hangdrill.model.dump import Operation
from hangdrill.model.run import AgentFacts, RecordedRun
from hangdrill.model.scenario import FaultKind
from hangdrill.model.verdict import Verdict

__all__ = ["CHECK", "LEAST_OPERATIONS"]

LEAST_OPERATIONS = 3
"""So many operations before the stuck one must be visible, or all there were."""


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected or run.scenario.expect.expected_culprits == ():
        return None
    if _ran_on(run):
        return None
    stuck = run.diagnosis.stuck if run.diagnosis is not None else None
    if stuck is None:
        return Answer(verdict=Verdict.UNKNOWN, detail="no stuck operation is known, so there is nothing to look around")
    waiting = [rank for rank in stuck.waiting if rank in expected]
    if not waiting:
        return Answer(verdict=Verdict.UNKNOWN, detail="no expected rank waits in the stuck operation")
    agents = judged_agents(run)
    findings = {rank: _judge_rank(run, rank, agents.get(rank), stuck) for rank in waiting}
    place = f"{stuck.op} #{stuck.sequence} of {stuck.group.desc or stuck.group.name}"
    summary = f"what came before {place} is visible on {ranks_text(waiting)}{_frames_remark(run, waiting)}"
    return by_rank(findings, summary, "raise recorder.buffer_size, or take a road that brings the full history")


def _ran_on(run: RecordedRun) -> bool:
    """Orphans of a killed torchrun train on, so nothing is stuck: a trace may be an operation ahead of its dump."""
    orphans = run.scenario.fault.kind is FaultKind.AGENT_KILL
    return orphans and run.diagnosis is not None and run.diagnosis.verdict is not HangVerdict.HANG


def _judge_rank(run: RecordedRun, rank: int, agent: AgentFacts | None, stuck: StuckOperation) -> Finding:
    dump = best_dump(run, rank)
    if dump is None:
        return unknown(absence(run, rank))
    position = next((index for index, item in enumerate(dump.operations) if _is_stuck(item, stuck)), None)
    if position is None:
        cut = "the dump is cut before the stuck operation"
        return unknown(cut) if dump.salvaged else failed("the stuck operation itself is not in the dump")
    if position >= LEAST_OPERATIONS:
        return passed()
    if agent is None or not agent.groups:
        return unknown(f"{position} operations before the stuck one, and no agent to say whether that is all")
    before = sum(recordable(agent, group) for group in agent.groups) - 1
    if position >= min(LEAST_OPERATIONS, before):
        return passed()
    return failed(f"{position} operations before the stuck one are visible, though there were {before}")


def _is_stuck(operation: Operation, stuck: StuckOperation) -> bool:
    return (
        operation.group_name == stuck.group.name and operation.sequence == stuck.sequence and operation.p2p == stuck.p2p
    )


def _frames_remark(run: RecordedRun, waiting: list[int]) -> str:
    dumps = [dump for rank in waiting if (dump := best_dump(run, rank)) is not None]
    with_frames = any(item.frames for dump in dumps for item in dump.operations)
    return ", with stack frames" if with_frames else ", without stack frames"


CHECK = Check(
    name="window",
    claim="Each waiting rank's dump shows the 3 operations before the stuck one, or all there were.",
    judge=_judge,
)
