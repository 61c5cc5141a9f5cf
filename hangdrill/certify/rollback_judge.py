"""Did every rank really run the old implementation, and may this fallback be relied on? Pure.

The proof is the class of the rank's process group; before the group is made it is the function that torch has
registered under the backend's name, which no later setting changes. The name that was asked for proves nothing.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import date

import msgspec

from hangdrill.certify.canary_records import CanaryRun, RankRecord, SwitchFacts
from hangdrill.checks.words import ranks_text
from hangdrill.model.certify_plan import RollbackPlan
from hangdrill.model.receipt import RankProof
from hangdrill.model.verdict import Verdict, merge

__all__ = [
    "LAST_RELEASE",
    "NEW_DEFAULT_SINCE",
    "ROADS",
    "Proven",
    "Road",
    "judge_rank",
    "judge_road",
    "record_problems",
    "release_of",
]

OLD_CLASS, OLD_CREATOR = "ProcessGroupNCCL", "_create_nccl_process_group"
SWITCH = "TORCH_DIST_USE_NCCL2"
LAST_RELEASE = (2, 15)
"""The last release of torch that has a fallback."""
NEW_DEFAULT_SINCE = (2, 15)
"""From this release on "nccl" is the new implementation; in 2.14 it had to be asked for (seen in both)."""


class Road(msgspec.Struct, frozen=True, kw_only=True):
    """One way back. name: as the receipt calls it. backend: that the job asks for. variables: that it is given."""

    name: str
    backend: str
    variables: dict[str, str] = msgspec.field(default_factory=dict)


ROADS: dict[str, Road] = {
    "variable": Road(name=f"{SWITCH}=0", backend="nccl", variables={SWITCH: "0"}),
    "backend": Road(name="nccl-legacy", backend="nccl-legacy"),
}
"""By their names in a plan."""


class Proven(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one road, over the ranks that were launched."""

    verdict: Verdict
    detail: str
    ranks: tuple[RankProof, ...] = ()


def judge_road(road: Road, run: CanaryRun) -> Proven:
    """Every rank that was launched must have run the old implementation; one of which nothing is known is UNKNOWN."""
    records = run.of_attempt()
    judged = {rank: judge_rank(road, rank, records.get(rank)) for rank in range(run.world_size)}
    verdict = merge(each for each, _ in judged.values())
    proofs = tuple(proof for _, proof in judged.values())
    telling: dict[str, list[int]] = {}
    for each, proof in judged.values():
        if each is verdict:
            telling.setdefault(proof.detail, []).append(proof.rank)
    detail = f"all {run.world_size} ranks ran {OLD_CLASS}"
    if verdict is not Verdict.PASS:
        detail = "; ".join(f"{ranks_text(ranks)}: {why}" for why, ranks in list(telling.items())[:4])
    return Proven(verdict=verdict, detail=detail, ranks=proofs)


def judge_rank(road: Road, rank: int, record: RankRecord | None) -> tuple[Verdict, RankProof]:
    """FAIL as soon as one of class and registered function is not the old one; PASS needs the class."""
    if record is None:
        return Verdict.UNKNOWN, RankProof(rank=rank, backend_class="", detail="it left no record")
    facts = record.facts
    creator = facts.creators.get(road.backend, "")
    verdict, detail = _judged(road, facts.backend_class, creator, facts.switch, facts.creators)
    return verdict, RankProof(
        rank=rank,
        backend_class=facts.backend_class,
        value=facts.switch.at_import,
        detail=detail,
    )


def _judged(
    road: Road, backend_class: str, creator: str, switch: SwitchFacts, creators: Mapping[str, str]
) -> tuple[Verdict, str]:
    tried = "NCCL" in backend_class  # a gloo group was made only to bring the ranks together
    if creators and not creator:
        return Verdict.FAIL, f"this torch has no backend {road.backend}: there is no fallback"
    if creator and creator != OLD_CREATOR:
        return Verdict.FAIL, f"{_why(road, switch)}: {creator.removeprefix('_create_')} would make the group"
    if tried and backend_class != OLD_CLASS:
        return Verdict.FAIL, f"{_why(road, switch)}: {backend_class} ran"
    if tried:
        return Verdict.PASS, f"{OLD_CLASS} ran" + (", and was registered before the group was made" if creator else "")
    if creator:
        return Verdict.UNKNOWN, "the old implementation is registered, but no NCCL group was made: no GPU"
    return Verdict.UNKNOWN, "this torch was built without NCCL, so nothing shows which implementation would run"


def _why(road: Road, switch: SwitchFacts) -> str:
    """Why the setting did not take, as far as the rank's variables tell."""
    if road.backend != "nccl":
        return f"the name {road.backend} stands for another implementation"
    if switch.at_import is None and switch.at_group == "0":
        return f"{SWITCH}=0 was set too late: torch had looked before"
    if switch.at_import is None:
        return f"{SWITCH} is not set in this rank"
    if switch.at_import != "0":
        return f'{SWITCH}="{switch.at_import}" is a wrong value: only the exact value 0 rolls back'
    return f"{SWITCH}=0 was set and did not take"


def record_problems(plan: RollbackPlan, today: date) -> Iterator[tuple[str, str]]:
    """(what is wrong, what to do) of the fallback's record. It expires at the beginning of its day."""
    missing = {"owner": "who may pull it", "where": "where the setting lives", "verify": "how to see that it took"}
    for key, meaning in missing.items():
        if not getattr(plan, key).strip():
            yield f"no {key}: nobody knows {meaning}", f"write it into [rollback] {key}"
    if not plan.expires:
        yield "no date on which it expires", 'write [rollback] expires = "YYYY-MM-DD", before torch drops the fallback'
    elif date.fromisoformat(plan.expires) <= today:
        yield f"it expired on {plan.expires}", "move to the new default, or renew the fallback and drill it again"


def release_of(torch: str) -> tuple[int, int] | None:
    """(2, 15) of "2.15.0+cu132"."""
    found = re.match(r"(\d+)\.(\d+)", torch)
    return (int(found[1]), int(found[2])) if found is not None else None
