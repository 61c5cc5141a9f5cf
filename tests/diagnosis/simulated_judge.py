"""Whether a diagnosis may stand beside the truth of a simulated run: what is right, wrong, or merely modest."""

from program_strategies import Case
from simulated_dumps import record
from simulated_truth import Truth, truth_of

from hangdrill.model.diagnosis import Basis, Diagnosis, HangVerdict

__all__ = ["complaint", "evidence_is_complete", "lost_to_sight"]


def complaint(case: Case, diagnosis: Diagnosis, *, reported: bool = False, blurred: bool = False) -> str:
    """What is wrong with the diagnosis, or nothing.

    reported: there were reports of all processes. blurred: some evidence is missing beyond what the case says.
    """
    truth = truth_of(case.outcome)
    if lost_to_sight(case) and not reported:
        return ""
    complete = evidence_is_complete(case) and not blurred
    named = frozenset(culprit.rank for culprit in diagnosis.culprits)
    if not truth.hung:
        return _healthy(diagnosis, complete=complete)
    if innocents := named - truth.may - _excused(case, diagnosis):
        return f"names the innocent {sorted(innocents)}; the truth is {truth}"
    if _dropped_unfinished(case) and not named:
        return ""
    if diagnosis.verdict is HangVerdict.NO_HANG:
        return f"overlooks a hang; the truth is {truth}"
    if complete:
        return _exact(truth, diagnosis, named)
    sure = diagnosis.verdict is HangVerdict.HANG and not blurred
    if sure and truth.culprits and not named and not truth.untellable:
        return f"is sure, and names nobody, with evidence missing; the truth is {truth}"
    return ""


def _dropped_unfinished(case: Case) -> bool:
    """Whether a ring has dropped something unfinished. Then nobody may be named for it, but it may go unnoticed."""
    for entries in case.outcome.entries:
        recorded = [entry.pending for entry in entries for _ in range(1 + len(entry.step.parts))]
        if any(recorded[: max(0, len(recorded) - case.how.window)]):
            return True
    return False


def _healthy(diagnosis: Diagnosis, *, complete: bool) -> str:
    if diagnosis.culprits or diagnosis.verdict is HangVerdict.HANG:
        return "calls a healthy run hung"
    if diagnosis.verdict is HangVerdict.UNDECIDED and complete:
        return "doubts a healthy run although all the evidence is there"
    return ""


def _exact(truth: Truth, diagnosis: Diagnosis, named: frozenset[int]) -> str:
    kind = diagnosis.kind.value if diagnosis.kind else None
    if kind == "shape-mismatch" and "op-mismatch" in truth.kinds:
        kind = "op-mismatch"  # gloo's reduce_scatter shows as an all_reduce of another size
    if truth.untellable:
        return f"gives the kind {kind}; the truth is {truth}" if kind and kind not in truth.kinds else ""
    if diagnosis.verdict is not HangVerdict.HANG:
        return f"doubts a hang although all the evidence is there; the truth is {truth}"
    if named != truth.culprits:
        return f"names {sorted(named)}; the truth is {truth}"
    return f"gives the kind {kind}; the truth is {truth}" if kind not in truth.kinds else ""


def _excused(case: Case, diagnosis: Diagnosis) -> frozenset[int]:
    """Ranks that may be inferred although they are innocent: their dump is lost or cut and everybody else waits.

    That is what a killed rank looks like too, so nobody can tell; but if a rank is there that waits for nothing, the
    lost one may be waiting for it.
    """
    entries = case.outcome.entries
    missing = case.how.lost | case.outcome.killed | case.how.cut.keys()
    if any(not any(e.pending for e in mine) for rank, mine in enumerate(entries) if rank not in missing):
        return frozenset()
    inferred = frozenset(one.rank for one in diagnosis.culprits if one.basis is Basis.INFERRED)
    return inferred & missing


def evidence_is_complete(case: Case) -> bool:
    """Whether the dumps and what is told besides hold all that is needed for the right answer."""
    how, outcome = case.how, case.outcome
    steps = [step for steps in outcome.program.steps for step in steps]
    invisible = (how.dialect == "gloo" and any(step.p2p for step in steps)) or (
        how.dialect == "nccl2" and any(step.batched for step in steps)
    )
    entries = max(sum(1 + len(e.step.parts) for e in mine) for mine in outcome.entries)
    whole = not (how.only_active or how.lost or how.early or how.cut or how.skew_s) and entries <= how.window
    everybody = all(dump.operations for dump in record(outcome, how))
    idle_without_reason = outcome.killed and any(not any(e.pending for e in mine) for mine in outcome.entries)
    groups = how.dialect != "gloo" or case.launch_groups
    return whole and groups and everybody and not invisible and not idle_without_reason


def lost_to_sight(case: Case) -> bool:
    """Whether the recorder hides a part of the run without leaving any sign of it, so that no answer can be wrong.

    gloo does not record send and receive; only the op ids of later collectives show that there were some. nccl2 takes
    a batch for completed, so a list of active operations lacks it.
    """
    batched = any(entry.pending and entry.step.batched for entries in case.outcome.entries for entry in entries)
    if case.how.dialect == "nccl2" and case.how.only_active and batched:
        return True
    hidden = any(step.p2p for steps in case.outcome.program.steps for step in steps)
    if case.how.dialect != "gloo" or not hidden:
        return False
    operations = [operation for dump in record(case.outcome, case.how) for operation in dump.operations]
    return all(operation.op_id == operation.sequence for operation in operations)
