"""The sentence of a drill: the diagnosis's own, with how long the others waited and where the culprit stands.

"rank 1 never entered all_reduce #4 of default_pg; ranks 0, 2, 3 waited 5.0 s; held at train.py:42"
"""

from hangdrill.checks.evidence import fault_reports, hang_artifacts
from hangdrill.diagnosis import sentence
from hangdrill.model.diagnosis import HangVerdict, StuckOperation
from hangdrill.model.dump import Frame
from hangdrill.model.run import RecordedRun
from hangdrill.model.scenario import FaultKind
from hangdrill.report.own_code import own_frame

__all__ = ["drill_sentence", "operation_text", "place_text"]

WAITED = " waited"
HOLDING = {
    FaultKind.HOLD, FaultKind.HOLD_GIL, FaultKind.SPIN, FaultKind.IN_DESTROY, FaultKind.DATALOADER,
    FaultKind.GPU_KERNEL,
}  # fmt: skip
"""Faults that keep a rank where it is; the others happen there."""
DONE = {
    FaultKind.STOP: "stopped", FaultKind.KILL: "killed", FaultKind.RAISE: "raised", FaultKind.EXIT: "exited",
}  # fmt: skip


def drill_sentence(run: RecordedRun) -> str:
    """One sentence, without a full stop. What is not known is left out."""
    if run.diagnosis is None:
        return "there is no diagnosis"
    said = sentence(run.diagnosis)
    if run.scenario.fault.kind is FaultKind.AGENT_KILL and run.diagnosis.verdict is not HangVerdict.HANG:
        return "torchrun was killed on one host, and its ranks went on: no hang is to be seen in their dumps"
    if run.diagnosis.verdict is not HangVerdict.HANG:
        return said
    waited_s, place = _waited_s(run), _place_of_culprit(run)
    if waited_s is not None and said.endswith(WAITED):
        said += f" {waited_s:.1f} s"
    kind = run.scenario.fault.kind
    verb = "held" if kind in HOLDING else DONE.get(kind, kind.value)
    return f"{said}; {verb} at {place}" if place else said


def operation_text(stuck: StuckOperation) -> str:
    """ "all_reduce #4 of default_pg"."""
    return f"{stuck.op} #{stuck.sequence} of {stuck.group.desc or stuck.group.name}"


def place_text(frames: tuple[Frame, ...]) -> str:
    """ "train.py:42": the innermost frame of the user's own code; of any code when there is none of the user's."""
    found = own_frame(frames)
    return f"{found[0].filename.rsplit('/', maxsplit=1)[-1]}:{found[0].line}" if found is not None else ""


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


def _place_of_culprit(run: RecordedRun) -> str:
    """Where the first culprit's fault took, by its own report."""
    culprits = {culprit.rank for culprit in run.diagnosis.culprits} if run.diagnosis is not None else set()
    reports = [report for report in fault_reports(run) if report.rank in culprits and report.frames]
    return place_text(reports[0].frames) if reports else ""
