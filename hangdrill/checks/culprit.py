"""culprit: the diagnosis names exactly the ranks that the fault was placed on, and no innocent one.

"Cannot tell" is UNKNOWN: better than an innocent rank, but no proof that the evidence suffices.
"""

from hangdrill.checks.base import Answer, Check
from hangdrill.checks.evidence import fault_took
from hangdrill.checks.hosts import node_of
from hangdrill.checks.words import ranks_text
from hangdrill.model.diagnosis import Basis, Diagnosis, HangVerdict
from hangdrill.model.run import RecordedRun
from hangdrill.model.scenario import FaultKind
from hangdrill.model.verdict import Verdict

__all__ = ["CHECK"]

MEND = (
    "look at the dumps with `hangdrill diagnose`; a wrong name is a bug in hangdrill: report it with the run directory"
)


def _judge(run: RecordedRun) -> Answer | None:
    expect = run.scenario.expect
    if expect.expected_culprits is None and expect.kind is None and not run.scenario.fault.on_host:
        return None
    if run.diagnosis is None:
        return _unknown("there is no diagnosis")
    if not fault_took(run):
        return _unknown("the fault was never confirmed, so there was no culprit to find")
    if run.scenario.fault.on_host and (answer := _judge_host(run, run.diagnosis)) is not None:
        return answer
    return _judge_no_hang(run.diagnosis) if expect.expected_culprits == () else _judge_hang(run, run.diagnosis)


def _judge_host(run: RecordedRun, diagnosis: Diagnosis) -> Answer | None:
    """Of a fault of a host no rank is to be named; None when that is so, and the scenario expects more."""
    if innocent := _innocent(run, diagnosis):
        detail = f"{ranks_text(innocent)} named, though the fault was one of a host"
        return Answer(verdict=Verdict.FAIL, ranks=dict.fromkeys(innocent, Verdict.FAIL), detail=detail, mend=MEND)
    if run.scenario.expect.expected_culprits is not None or run.scenario.expect.kind is not None:
        return None
    return Answer(verdict=Verdict.PASS, detail="the fault was one of a host, and no innocent rank is named")


def _innocent(run: RecordedRun, diagnosis: Diagnosis) -> list[int]:
    """The ranks that are named although only their host, or the network, was at fault; those that died with their host
    are rightly missed by the others."""
    fault = run.scenario.fault
    named = sorted(culprit.rank for culprit in diagnosis.culprits)
    if fault.kind is not FaultKind.HOST_DEATH:
        return named
    return [rank for rank in named if (node := node_of(run, rank)) is None or node.node != fault.host_node]


def _judge_no_hang(diagnosis: Diagnosis) -> Answer:
    match diagnosis.verdict:
        case HangVerdict.NO_HANG:
            return Answer(verdict=Verdict.PASS, detail="no hang, as expected")
        case HangVerdict.UNDECIDED:
            return _unknown(_with_notes("the evidence cannot tell whether there was a hang", diagnosis))
        case HangVerdict.HANG:
            named = ranks_text(culprit.rank for culprit in diagnosis.culprits)
            return Answer(
                verdict=Verdict.FAIL, detail=f"a hang is reported ({named} named), but there was none", mend=MEND
            )


def _judge_hang(run: RecordedRun, diagnosis: Diagnosis) -> Answer:
    if diagnosis.verdict is HangVerdict.NO_HANG:
        return Answer(verdict=Verdict.FAIL, detail="no hang is reported, but there was one", mend=MEND)
    if diagnosis.verdict is HangVerdict.UNDECIDED:
        return _unknown(_with_notes("the evidence cannot tell who it was", diagnosis))
    expected = run.scenario.expect.expected_culprits
    if expected is None:
        return _judge_kind(run, diagnosis, "")
    return _judge_names(run, diagnosis, frozenset(expected))


def _judge_names(run: RecordedRun, diagnosis: Diagnosis, expected: frozenset[int]) -> Answer:
    named = frozenset(culprit.rank for culprit in diagnosis.culprits)
    if not named:
        return _unknown(_with_notes("a hang, but the evidence cannot tell who it was", diagnosis))
    ranks = {rank: Verdict.PASS if rank in expected & named else Verdict.FAIL for rank in expected | named}
    if named != expected:
        wrong = [f"{ranks_text(named - expected)} named, though innocent"] if named - expected else []
        wrong += [f"{ranks_text(expected - named)} not named"] if expected - named else []
        return Answer(verdict=Verdict.FAIL, ranks=ranks, detail=", ".join(wrong), mend=MEND)
    answer = _judge_kind(run, diagnosis, f"{ranks_text(named)} named, {_basis(diagnosis)}")
    return Answer(verdict=answer.verdict, ranks=ranks, detail=answer.detail, mend=answer.mend)


def _judge_kind(run: RecordedRun, diagnosis: Diagnosis, named: str) -> Answer:
    kind = run.scenario.expect.kind
    if kind is None or diagnosis.kind is kind:
        said = f"kind {diagnosis.kind.value}" if diagnosis.kind is not None else ""
        return Answer(verdict=Verdict.PASS, detail=", ".join(part for part in (named, said) if part))
    said = diagnosis.kind.value if diagnosis.kind is not None else "none"
    return Answer(verdict=Verdict.FAIL, detail=f"kind {said} instead of {kind.value}", mend=MEND)


def _basis(diagnosis: Diagnosis) -> str:
    inferred = [culprit.rank for culprit in diagnosis.culprits if culprit.basis is Basis.INFERRED]
    return f"{ranks_text(inferred)} inferred by absence" if inferred else "observed in the dumps"


def _with_notes(text: str, diagnosis: Diagnosis) -> str:
    return "; ".join([text, *diagnosis.notes[:2]])


def _unknown(detail: str) -> Answer:
    return Answer(verdict=Verdict.UNKNOWN, detail=detail)


CHECK = Check(
    name="culprit",
    claim="The diagnosis names exactly the ranks the fault was placed on, or reports no hang where there was none.",
    judge=_judge,
)
