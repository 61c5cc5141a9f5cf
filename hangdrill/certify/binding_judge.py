"""What came of an attempt to bind ranks to GPUs, and what follows from two stacks' answers. Pure."""

from collections.abc import Sequence
from enum import Enum

import msgspec

from hangdrill.certify.canary_records import CanaryRun, RankRecord
from hangdrill.certify.cells import Claim
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.model.receipt import Difference, Line
from hangdrill.model.verdict import Verdict

__all__ = ["ATTEMPTS", "CPU_ATTEMPTS", "Answer", "Attempt", "Tried", "judge_attempt", "judge_pair"]


class Answer(Enum):
    """What the stack did with it."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    WRONG = "wrong result"
    HUNG = "hung"
    UNKNOWN = "unknown"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to try. bind, part: of hangdrill.rank.canary. wanted: what the candidate should answer; None: what the
    baseline answers, or better. alone: one process for all GPUs that it uses."""

    name: str
    claim: str
    mend: str
    bind: str = "explicit"
    part: str = ""
    wanted: Answer | None = Answer.ACCEPTED
    alone: bool = False


ATTEMPTS = (
    Attempt(
        name="explicit",
        claim="with device_id each rank works on its own GPU",
        mend='pass device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"]))',
    ),
    Attempt(
        name="derived",
        bind="derived",
        claim="with set_device alone each rank works on its own GPU",
        mend='pass device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])) to init_process_group',
    ),
    Attempt(
        name="shared",
        bind="first",
        claim="two ranks on one GPU are refused, with an error and no hang",
        mend="look at LOCAL_RANK and at CUDA_VISIBLE_DEVICES in every rank before the job starts",
        wanted=Answer.REFUSED,
    ),
    Attempt(
        name="foreign",
        bind="derived",  # with a device_id the old implementation refuses it too
        part="foreign",
        claim="without a device_id, a tensor of another GPU than the rank's is taken as before",
        mend="move it to the rank's own GPU, or declare the difference",
        wanted=None,
    ),
    Attempt(
        name="several",
        bind="derived",
        part="several",
        claim="one process works with several GPUs as before",
        mend="use one process a GPU, a group a GPU, or backend nccl-legacy as long as it is there",
        wanted=None,
        alone=True,
    ),
)
CPU_ATTEMPTS = (
    Attempt(name="explicit", claim="each rank works where its backend moves memory: on the CPU", mend="see the log"),
)
"""For a backend that uses no GPU: nothing else can go wrong."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one stack, and what was seen."""

    answer: Answer
    detail: str = ""

    @property
    def text(self) -> str:
        """In a few words."""
        return f"{self.answer.value} ({self.detail})" if self.detail else self.answer.value


def judge_attempt(attempt: Attempt, run: CanaryRun) -> Tried:
    """Over all ranks that were launched."""
    records = run.of_attempt()
    if run.missing():
        return Tried(answer=Answer.UNKNOWN, detail=run.trouble())
    ranks = [records[rank] for rank in sorted(records)]
    if attempt.part:
        return _of_part(attempt, ranks, run)
    if all("first_collective_s" in record.measures for record in ranks):
        return _of_devices(ranks)
    errors = [record.failed["init"] for record in ranks if "init" in record.failed]
    if errors:
        return Tried(answer=Answer.REFUSED, detail=_short(errors[0]))
    if run.exit_code is not None:  # a process that was aborted tells no error
        return Tried(answer=Answer.REFUSED, detail=_short(run.trouble()))
    return Tried(answer=Answer.HUNG, detail=run.trouble())


def _of_devices(ranks: Sequence[RankRecord]) -> Tried:
    """A rank's GPU is known by its host and index; the CPU is everybody's."""
    devices = [(record.facts.host, record.facts.device) for record in ranks]
    named = ", ".join(f"rank {record.rank} on {record.facts.device}" for record in ranks[:4])
    shared = len(set(devices)) < len(devices) and any(device != "cpu" for _, device in devices)
    return Tried(answer=Answer.ACCEPTED, detail=f"shared: {named}" if shared else named)


def _of_part(attempt: Attempt, ranks: Sequence[RankRecord], run: CanaryRun) -> Tried:
    """The part asks torch, and notes the answer."""
    said = {getattr(record.facts, attempt.part) for record in ranks}
    errors = [text for record in ranks if (text := getattr(record.facts, f"{attempt.part}_error"))]
    if said == {"accepted"}:
        return Tried(answer=Answer.ACCEPTED)
    if "wrong result" in said:
        return Tried(answer=Answer.WRONG)
    if "refused" in said:
        return Tried(answer=Answer.REFUSED, detail=_short(errors[0]) if errors else "")
    could_not = next((record.failed[attempt.part] for record in ranks if attempt.part in record.failed), "")
    if could_not:
        return Tried(answer=Answer.UNKNOWN, detail=_short(could_not))
    started = all("first_collective_s" in record.measures for record in ranks)
    return Tried(answer=Answer.HUNG if started else Answer.UNKNOWN, detail=run.trouble())


def judge_pair(
    claim: Claim, attempt: Attempt, old: Tried, new: Tried, *, note: str = ""
) -> tuple[Line, Difference | None]:
    """The line, and a difference when the answers are not the same. note: is added to the detail."""
    what = f"{attempt.name} ({attempt.claim})" if attempt.wanted is None else attempt.name
    difference = None
    if Answer.UNKNOWN not in (old.answer, new.answer) and old.answer is not new.answer:
        gained = new.answer is (attempt.wanted or Answer.ACCEPTED)
        difference = Difference(line=claim.id, what=what, baseline=old.text, candidate=new.text, declared=gained)
    verdict = _verdict(attempt, old, new)
    detail = f"baseline {old.text}; candidate {new.text}{note}"
    line = Line(
        id=claim.id,
        item=claim.item,
        topology=claim.topology,
        verdict=verdict,
        claim=claim.claim,
        detail=detail,
        mend=_mend(attempt, verdict, old, new),
        declarable=verdict is Verdict.FAIL and attempt.wanted is None and difference is not None,
    )
    return line, difference


def _verdict(attempt: Attempt, old: Tried, new: Tried) -> Verdict:
    """The line is of both stacks: whatever the candidate does well, without the baseline's answer it is no PASS."""
    if new.answer is Answer.UNKNOWN:
        return Verdict.UNKNOWN
    if new.answer is Answer.ACCEPTED and new.detail.startswith("shared"):
        return Verdict.FAIL  # every rank believes that the GPU is its own
    well = new.answer is (attempt.wanted or Answer.ACCEPTED)
    if attempt.wanted is not None and not well:
        return Verdict.FAIL
    if old.answer is Answer.UNKNOWN:
        return Verdict.UNKNOWN
    if well:
        return Verdict.PASS
    return Verdict.PASS if old.answer is new.answer is Answer.REFUSED else Verdict.FAIL


def _mend(attempt: Attempt, verdict: Verdict, old: Tried, new: Tried) -> str:
    if verdict is Verdict.PASS:
        return ""
    unseen = [name for name, one in ((BASELINE, old), (CANDIDATE, new)) if one.answer is Answer.UNKNOWN]
    if verdict is Verdict.UNKNOWN and unseen:
        return f"see the log of the {' and of the '.join(unseen)} beside runs.json, and run it again"
    return attempt.mend


def _short(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else ""
