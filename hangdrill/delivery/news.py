"""What a hook is told of an incident: the diagnosis of this host's evidence, and where it was delivered."""

import hashlib
import socket
from pathlib import Path
from typing import Any

from hangdrill.delivery.orders import Line
from hangdrill.incident import diagnose
from hangdrill.model.delivery import Delivery, DeliveryState, IncidentNews
from hangdrill.model.diagnosis import Diagnosis
from hangdrill.model.errors import HangdrillError

__all__ = ["incident_key", "make_news", "read_diagnosis"]


def incident_key(run: str, attempt: int) -> str:
    """The same on every host of the run, so that a receiver can tell that two hosts mean one incident."""
    return hashlib.sha256(f"{run}\n{attempt}".encode()).hexdigest()[:32]


def read_diagnosis(evidence: Path, world_size: int | None) -> Diagnosis | str:
    """Of this host's evidence; a text that says why there is none."""
    try:
        return diagnose(evidence, world_size=world_size)
    except HangdrillError as error:
        return error.what
    except Exception as error:  # the news must go out, whatever the evidence does to its reader
        return f"{type(error).__name__}: {error}"


def make_news(
    line: Line, diagnosis: Diagnosis | str, *, evidence: Path, job: str, run: str, record: Delivery | None
) -> IncidentNews:
    """The news. The text is for a chat: what hangs, who holds it up, and where to look."""
    where = record.prefix if record is not None and record.artifacts else str(evidence)
    told = _in_words(diagnosis) if isinstance(diagnosis, Diagnosis) else f"no diagnosis: {diagnosis}"
    return IncidentNews(
        text=f"{job}: {line.notice}. {told}. Evidence: {where}",
        key=incident_key(run, line.attempt),
        job=job,
        run_id=run,
        host=record.host if record is not None else socket.gethostname(),
        attempt=line.attempt,
        noticed_ns=line.noticed_ns,
        notice=line.notice,
        diagnosis=diagnosis if isinstance(diagnosis, Diagnosis) else None,
        evidence=str(evidence),
        delivered_to=record.prefix if record is not None else None,
        complete=_is_complete(record),
        artifacts=record.artifacts if record is not None else (),
    )


def _is_complete(record: Delivery | None) -> bool:
    """A delivery of nothing is not complete: nobody finds anything there."""
    artifacts = record.artifacts if record is not None else ()
    return bool(artifacts) and all(one.state is DeliveryState.DELIVERED for one in artifacts)


def _in_words(diagnosis: Diagnosis) -> str:
    kind = diagnosis.kind.value if diagnosis.kind is not None else ""
    culprits: list[Any] = [culprit.rank for culprit in diagnosis.culprits]
    if not culprits:
        return f"{diagnosis.verdict.value}{f', {kind}' if kind else ''}: no culprit could be named"
    word = "rank" if len(culprits) == 1 else "ranks"
    return f"{diagnosis.verdict.value}, {kind}: {word} {', '.join(map(str, culprits))}"
