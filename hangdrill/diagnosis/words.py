"""How a diagnosis is said to people. No judgement here."""

from collections.abc import Iterable

from hangdrill.model.diagnosis import Basis, Diagnosis, HangKind, HangVerdict, StuckOperation

__all__ = ["name_operation", "name_ranks", "sentence"]

SHOWN_RANKS = 8


def name_ranks(ranks: Iterable[int], *, capital: bool = False) -> str:
    """ "rank 3", "ranks 0, 2, 3", "ranks 0-2, 5, ... (64 of them)"."""
    numbers = sorted(set(ranks))
    word = "rank" if len(numbers) == 1 else "ranks"
    if not numbers:
        text = "no rank"
    elif len(numbers) <= SHOWN_RANKS:
        text = f"{word} {', '.join(map(str, numbers))}"
    else:
        runs = _runs(numbers)
        shown = ", ".join(runs[:SHOWN_RANKS])
        text = f"{word} {shown}" if len(runs) <= SHOWN_RANKS else f"{word} {shown}, ... ({len(numbers)} of them)"
    return text[0].upper() + text[1:] if capital else text


def _runs(numbers: list[int]) -> list[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def name_operation(op: str, sequence: int, group: str) -> str:
    """ "all_reduce #4 of default_pg"."""
    return f"{op} #{sequence} of {group}"


def _stuck(stuck: StuckOperation) -> str:
    return name_operation(stuck.op, stuck.sequence, stuck.group.desc or stuck.group.name or "its group")


def sentence(diagnosis: Diagnosis) -> str:
    """The diagnosis in one sentence: "rank 1 never entered all_reduce #4 of default_pg; ranks 0, 2, 3 waited"."""
    if diagnosis.verdict is HangVerdict.NO_HANG:
        return "no hang: no operation is pending"
    named = name_ranks(culprit.rank for culprit in diagnosis.culprits)
    stuck = diagnosis.stuck
    if diagnosis.verdict is HangVerdict.UNDECIDED:
        return _undecided(diagnosis)
    if stuck is None:
        return f"{named} held up the others" if diagnosis.culprits else "the job hung; the dumps name nobody"
    return _hang(diagnosis.kind, named, stuck, diagnosis)


def _hang(  # noqa: PLR0911 - one sentence a kind
    kind: HangKind | None, named: str, stuck: StuckOperation, diagnosis: Diagnosis
) -> str:
    where, waiting = _stuck(stuck), name_ranks(stuck.waiting)
    match kind:
        case HangKind.OP_MISMATCH:
            return f"{named} called another operation than the others in {where}"
        case HangKind.SHAPE_MISMATCH:
            return f"{named} entered {where} with another shape than the others"
        case HangKind.DTYPE_MISMATCH:
            return f"{named} entered {where} with another dtype than the others"
        case HangKind.ALL_JOINED:
            return f"all entered {where} and nobody finished: the recorder cannot name a culprit"
        case HangKind.ORDER_INVERSION:
            return f"{name_ranks({*stuck.waiting, *stuck.absent})} wait for each other, in {where} among others"
        case HangKind.P2P_UNMATCHED:
            verb = "never posted the other side of" if diagnosis.culprits else "nobody posted the other side of"
            return f"{named} {verb} {where}; {waiting} waited" if diagnosis.culprits else f"{verb} {where}"
        case _:
            inferred = all(culprit.basis is Basis.INFERRED for culprit in diagnosis.culprits)
            verb = "left no sign of having entered" if inferred else "never entered"
            culprits = {culprit.rank for culprit in diagnosis.culprits}
            absent = name_ranks(culprits & {*stuck.absent}) if culprits & {*stuck.absent} else named
            beside = f"; {name_ranks(culprits - {*stuck.absent})} stood still too" if culprits - {*stuck.absent} else ""
            return f"{absent} {verb} {where}; {waiting} waited{beside}"


def _undecided(diagnosis: Diagnosis) -> str:
    because = f": {diagnosis.notes[0]}" if diagnosis.notes else ""
    if diagnosis.stuck is None:
        return f"cannot tell whether there was a hang{because}"
    return f"{_stuck(diagnosis.stuck)} is stuck, and the evidence does not say by whom{because}"
