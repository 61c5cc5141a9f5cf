"""A diagnosis in one sentence, as the terminal, result.json and JUnit say it.

"rank 1 never entered all_reduce #4 of default_pg; ranks 0, 2, 3 waited 5.0 s; held at train.py:42"
"""

from hangdrill.checks.evidence import fault_reports, hang_artifacts
from hangdrill.checks.words import ranks_text
from hangdrill.model.diagnosis import Basis, Diagnosis, HangKind, HangVerdict, StuckOperation
from hangdrill.model.dump import Frame
from hangdrill.model.run import RecordedRun

__all__ = ["diagnosis_sentence", "drill_sentence", "operation_text", "place_text"]


def drill_sentence(run: RecordedRun) -> str:
    """The sentence of a drill: with how long the others waited and where the faulted rank stands, by its own report."""
    if run.diagnosis is None:
        return "there is no diagnosis"
    return diagnosis_sentence(run.diagnosis, waited_s=_waited_s(run), held_at=_held_at(run))


def diagnosis_sentence(diagnosis: Diagnosis, *, waited_s: float | None = None, held_at: str = "") -> str:
    """One sentence, without a full stop. waited_s and held_at are left out when they are not known."""
    match diagnosis.verdict:
        case HangVerdict.NO_HANG:
            return "no hang: nothing is pending"
        case HangVerdict.UNDECIDED:
            reason = f": {diagnosis.notes[0].rstrip('.')}" if diagnosis.notes else ""
            return f"cannot tell whether there was a hang{reason}"
        case HangVerdict.HANG:
            return _hang_sentence(diagnosis, waited_s, held_at)


def operation_text(stuck: StuckOperation) -> str:
    """ "all_reduce #4 of default_pg"."""
    return f"{stuck.op} #{stuck.sequence} of {stuck.group.desc or stuck.group.name}"


def place_text(frames: tuple[Frame, ...]) -> str:
    """ "train.py:42": the innermost frame of the user's own code; of any code when there is none of the user's."""
    own = [frame for frame in frames if _is_users(frame.filename)]
    frame = next(iter(own or frames), None)
    return f"{frame.filename.rsplit('/', maxsplit=1)[-1]}:{frame.line}" if frame is not None else ""


def _is_users(filename: str) -> bool:
    """Neither torch nor the agent; the workloads that ship with the agent stand for the user's code."""
    inside_agent = "/hangdrill/rank/" in filename and "/hangdrill/rank/workloads/" not in filename
    return not inside_agent and "/torch/" not in filename and not filename.startswith("<")


def _hang_sentence(diagnosis: Diagnosis, waited_s: float | None, held_at: str) -> str:
    culprits = [culprit.rank for culprit in diagnosis.culprits]
    stuck = diagnosis.stuck
    if stuck is None:
        kind = f" ({diagnosis.kind.value})" if diagnosis.kind is not None else ""
        return f"a hang{kind}, " + (f"{ranks_text(culprits)} named" if culprits else "nobody can be named")
    if not culprits:
        return _nobody_sentence(diagnosis, stuck)
    parts = [f"{ranks_text(culprits)} {_deed(diagnosis, stuck)}"]
    waiting = [rank for rank in stuck.waiting if rank not in culprits]
    if waiting:
        parts.append(f"{ranks_text(waiting)} waited" + (f" {waited_s:.1f} s" if waited_s is not None else ""))
    return "; ".join([*parts, f"held at {held_at}"] if held_at else parts)


def _nobody_sentence(diagnosis: Diagnosis, stuck: StuckOperation) -> str:
    if diagnosis.kind is HangKind.ALL_JOINED:
        return f"{ranks_text(stuck.waiting)} all entered {operation_text(stuck)} and nobody finished"
    return f"{ranks_text(stuck.waiting)} wait in {operation_text(stuck)}, and the dumps cannot say for whom"


def _deed(diagnosis: Diagnosis, stuck: StuckOperation) -> str:
    operation = operation_text(stuck)
    match diagnosis.kind:
        case HangKind.OP_MISMATCH:
            return f"called another operation than {operation}"
        case HangKind.SHAPE_MISMATCH:
            return f"entered {operation} with another size"
        case HangKind.DTYPE_MISMATCH:
            return f"entered {operation} with another dtype"
        case HangKind.P2P_UNMATCHED:
            return f"never answered {operation}"
        case HangKind.ORDER_INVERSION:
            return f"entered operations in another order around {operation}"
        case HangKind.RANK_ABSENT | HangKind.ALL_JOINED | None:
            inferred = all(culprit.basis is Basis.INFERRED for culprit in diagnosis.culprits)
            return f"never entered {operation}" + (", inferred by the absence of a dump" if inferred else "")


def _waited_s(run: RecordedRun) -> float | None:
    """How long the first waiting rank had been in the stuck operation when the evidence of the last was pulled."""
    stuck = run.diagnosis.stuck if run.diagnosis is not None else None
    if stuck is None:
        return None
    key = (stuck.group.name, stuck.sequence, stuck.p2p)
    since_ns = [
        operation.created_ns
        for rank in stuck.waiting
        for dump in run.dumps.get(rank, ())
        for operation in dump.operations
        if (operation.group_name, operation.sequence, operation.p2p) == key
    ]
    pulled_ns = [artifact.pulled_ns for rank in stuck.waiting for artifact in hang_artifacts(run, rank)]
    if not since_ns or not pulled_ns:
        return None
    return max(0.0, (max(pulled_ns) - min(since_ns)) / 1e9)


def _held_at(run: RecordedRun) -> str:
    """Where the first faulted culprit stands."""
    culprits = {culprit.rank for culprit in run.diagnosis.culprits} if run.diagnosis is not None else set()
    reports = [report for report in fault_reports(run) if report.rank in culprits and report.frames]
    return place_text(reports[0].frames) if reports else ""
