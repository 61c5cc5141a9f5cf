"""backend: the backend that was asked for is the one that ran, and the dumps are its own.

The class of the process group proves what ran; the requested name does not (TORCH_DIST_USE_NCCL2=0 rolls "nccl" back).
"""

from hangdrill.arrival import version_of
from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.counts import PREFIX_OF_CLASS, prefix_of, recordable
from hangdrill.checks.evidence import absence, dumps_of, expected_ranks, judged_agents
from hangdrill.checks.words import list_text
from hangdrill.model.dump import RankDump
from hangdrill.model.run import AgentFacts, RecordedRun

__all__ = ["CHECK"]

CLASSES_OF_REQUEST = {
    "gloo": ("ProcessGroupGloo",),
    "nccl2": ("ProcessGroupNCCL2",),
    "nccl-lazy": ("ProcessGroupNCCLLazy",),
    "nccl-legacy": ("ProcessGroupNCCL",),
}
"""The classes that may honestly stand behind a requested name; of "nccl" see `_classes_of_nccl`."""

NCCL2_IS_DEFAULT_SINCE = (2, 15)
NCCL2_IS_KNOWN_SINCE = (2, 14)
ROLLBACK = "TORCH_DIST_USE_NCCL2"
"""Only the exact value "0" rolls "nccl" back to the legacy class; a scenario that wants that sets it in job.env."""


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
    allowed = _allowed_classes(run, agent)
    if allowed and agent.backend_class not in allowed:
        return failed(
            f"{agent.backend_class} ran, though {run.scenario.job.backend} ({list_text(sorted(allowed))}) was asked for"
        )
    dumps = dumps_of(run, rank)
    if not dumps:
        return unknown(absence(run, rank))
    strangers = sorted({text for dump in dumps for text in _strange_prefixes(dump, agent)} - _halves(run))
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


def _allowed_classes(run: RecordedRun, agent: AgentFacts) -> set[str]:
    """Of "gloo", "nccl" or "cpu:gloo,cuda:nccl", where the accelerator's half counts; empty for a backend from out of
    the tree, whose class is its own."""
    names = [part.rsplit(":", maxsplit=1)[-1] for part in run.scenario.job.backend.split(",")]
    classes = {name: _classes_of_nccl(run, agent) if name == "nccl" else CLASSES_OF_REQUEST.get(name) for name in names}
    if None in classes.values():
        return set()
    found = {backend_class for group in classes.values() for backend_class in group or ()} & set(PREFIX_OF_CLASS)
    return found - {"ProcessGroupGloo"} or found


def _classes_of_nccl(run: RecordedRun, agent: AgentFacts) -> tuple[str, ...]:
    """What the name "nccl" means to the torch that ran."""
    version = version_of(agent.torch)
    if run.scenario.job.env.get(ROLLBACK) == "0" or (version and version < NCCL2_IS_KNOWN_SINCE):
        return ("ProcessGroupNCCL",)
    return ("ProcessGroupNCCL2",) if version >= NCCL2_IS_DEFAULT_SINCE else ("ProcessGroupNCCL2", "ProcessGroupNCCL")


def _halves(run: RecordedRun) -> set[str]:
    """The other half of "cpu:gloo,cuda:nccl" may write into the same dump."""
    return {"gloo"} if "cpu:gloo" in run.scenario.job.backend.split(",") else set()


CHECK = Check(
    name="backend",
    claim="The backend that ran is the one that was asked for, and it wrote the dumps.",
    judge=_judge,
)
