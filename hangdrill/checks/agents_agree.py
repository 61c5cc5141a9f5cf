"""agents-agree: all ranks ran the same software, so the drill says something about one stack."""

from collections import Counter

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import judged_agents
from hangdrill.model.run import AgentFacts, RecordedRun

__all__ = ["CHECK"]

FIELDS = (
    "python", "torch", "torch_git", "cuda", "nccl_loaded", "backend_requested", "backend_class", "placement",
)  # fmt: skip
"""What must be equal on all ranks. Host, pid and device differ by nature."""


def _judge(run: RecordedRun) -> Answer:
    agents = judged_agents(run)
    usual = {field: _most_common(agents, field) for field in FIELDS}
    findings = {rank: _judge_rank(agents.get(rank), usual) for rank in range(run.scenario.job.world_size)}
    torch, backend_class = usual["torch"] or "unknown", usual["backend_class"] or "unknown"
    wrapped = ", counted by wrapped functions" if usual["placement"] == "wrapped" else ""
    summary = f"torch {torch} with {backend_class} on all {len(findings)} ranks{wrapped}"
    return by_rank(findings, summary, "start all ranks with the same Python and the same environment")


def _judge_rank(agent: AgentFacts | None, usual: dict[str, str | None]) -> Finding:
    if agent is None:
        return unknown("no agent reported")
    if not agent.torch:
        return unknown("the agent did not say which torch it runs")
    if not agent.backend_class:
        return unknown("the agent did not say which backend ran")
    differing = [
        f"{field} {getattr(agent, field)} instead of {usual[field]}"
        for field in FIELDS
        if getattr(agent, field) != usual[field]
    ]
    return failed(", ".join(differing)) if differing else passed()


def _most_common(agents: dict[int, AgentFacts], field: str) -> str | None:
    """The value of most ranks; of the lowest rank when they tie."""
    values = Counter(getattr(agent, field) for _, agent in sorted(agents.items()))
    return values.most_common(1)[0][0] if values else None


CHECK = Check(
    name="agents-agree",
    claim="All ranks report the same Python, torch, CUDA, NCCL and backend.",
    judge=_judge,
)
