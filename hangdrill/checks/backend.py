"""backend: the backend that was asked for is the one that ran, and the dumps are its own.

The class of the process group proves what ran; the requested name does not (TORCH_DIST_USE_NCCL2=0 rolls "nccl" back).
"""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.counts import PREFIX_OF_CLASS, prefix_of, recordable
from hangdrill.checks.evidence import absence, dumps_of, expected_ranks, judged_agents
from hangdrill.checks.words import list_text
from hangdrill.model.dump import RankDump
from hangdrill.model.run import AgentFacts, RecordedRun

__all__ = ["CHECK"]

CLASSES_OF_REQUEST = {
    "gloo": ("ProcessGroupGloo",),
    "nccl": ("ProcessGroupNCCL2", "ProcessGroupNCCL"),
    "nccl2": ("ProcessGroupNCCL2",),
    "nccl-lazy": ("ProcessGroupNCCLLazy",),
    "nccl-legacy": ("ProcessGroupNCCL",),
}
"""The classes that may honestly stand behind a requested name."""


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    agents = judged_agents(run)
    findings = {rank: _judge_rank(run, rank, agents.get(rank)) for rank in expected}
    classes = sorted({agents[rank].backend_class for rank in expected if rank in agents})
    summary = f"{run.scenario.job.backend} was asked for, {list_text(classes)} ran and wrote the dumps"
    return by_rank(findings, summary, "set job.backend to what is to be drilled, and unset TORCH_DIST_USE_NCCL2")


def _judge_rank(run: RecordedRun, rank: int, agent: AgentFacts | None) -> Finding:
    if agent is None or not agent.backend_class:
        return unknown("no agent said which backend ran")
    allowed = _allowed_classes(run.scenario.job.backend)
    if allowed and agent.backend_class not in allowed:
        return failed(f"{agent.backend_class} ran, though {run.scenario.job.backend} was asked for")
    dumps = dumps_of(run, rank)
    if not dumps:
        return unknown(absence(run, rank))
    strangers = sorted({text for dump in dumps for text in _strange_prefixes(dump, agent)})
    if strangers:
        return failed(f"the dump has operations of {list_text(strangers)}, but {agent.backend_class} ran")
    return _judge_silent(dumps, agent)


def _judge_silent(dumps: tuple[RankDump, ...], agent: AgentFacts) -> Finding:
    """Without operations, pg_status shows that the recorder of this backend answered: a wrong one has none."""
    if any(dump.operations for dump in dumps):
        return passed()
    if any(dump.status for dump in dumps):
        return passed("no operation in the dump; its pg_status is of this backend")
    if agent.groups and not any(recordable(agent, group) for group in agent.groups):
        return passed("nothing to record yet")
    return unknown("the dump is empty, so it does not show which backend wrote it")


def _strange_prefixes(dump: RankDump, agent: AgentFacts) -> set[str]:
    """Backends of operations that are not the one that ran their group."""
    prefixes = {group.name: prefix_of(agent, group) for group in agent.groups}
    usual = prefix_of(agent)
    return {item.backend for item in dump.operations if item.backend != prefixes.get(item.group_name, usual)}


def _allowed_classes(requested: str) -> set[str]:
    """Of "gloo", "nccl" or "cpu:gloo,cuda:nccl"; empty for a backend from out of the tree, whose class is its own."""
    names = [part.rsplit(":", maxsplit=1)[-1] for part in requested.split(",")]
    if any(name not in CLASSES_OF_REQUEST for name in names):
        return set()
    return {backend_class for name in names for backend_class in CLASSES_OF_REQUEST[name]} & set(PREFIX_OF_CLASS)


CHECK = Check(
    name="backend",
    claim="The backend that ran is the one that was asked for, and it wrote the dumps.",
    judge=_judge,
)
