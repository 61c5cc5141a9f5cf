"""Looks itself at what was delivered and at what deletes it: for the controller, who takes nobody's word.

In a process of its own, since a store may hang: `ask` starts it, bounded, and `answer` is what runs in it. One JSON
each way, over standard input and output.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from hangdrill.delivery.opening import open_store
from hangdrill.delivery.problems import meaning_of
from hangdrill.delivery.record import address_of, find_records, read_record
from hangdrill.delivery.retention import What, look_at_place
from hangdrill.delivery.secrets import Redactor
from hangdrill.delivery.stores import Store
from hangdrill.model.delivery import Delivered, DeliveredArtifact, Delivery, KeptPlace, ObjectFacts

__all__ = ["Question", "answer", "ask", "look_at"]

_AT_ONCE = 4


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """evidence: its delivery records are followed; "" for none. kept: places to ask how long they keep things.
    look: only see whether a target can be reached."""

    evidence: str = ""
    kept: tuple[tuple[str, What], ...] = ()
    """(URL or directory, what it is)."""
    look: str = ""
    within_s: float = 15.0


def ask(question: Question, environ: Mapping[str, str]) -> Delivered:
    """The answer of a process of its own; without one, objects None and the problem."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hangdrill.delivery", "inspect"],
            input=msgspec.json.encode(question),
            capture_output=True,
            env=dict(environ),
            timeout=question.within_s + 10.0,
            check=False,
        )
        return msgspec.json.decode(done.stdout, type=Delivered)
    except subprocess.TimeoutExpired:
        problem = f"no answer within {question.within_s:g} s"
    except OSError as error:
        problem = f"cannot start the look at what was delivered: {error.strerror}"
    except msgspec.MsgspecError:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        problem = f"the look at what was delivered failed: {''.join(last)}"
    records = _records(Path(question.evidence)) if question.evidence else ()
    return Delivered(deliveries=records, problem=Redactor(environ)(problem))


def answer(environ: Mapping[str, str]) -> int:
    """Read the question from standard input, write the answer to standard output."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    sys.stdout.buffer.write(msgspec.json.encode(look_at(question, Redactor(environ))))
    return 0


def look_at(question: Question, redact: Redactor) -> Delivered:
    """Everything that is asked, each in a thread, and what is not there in time is not known."""
    until_s = time.monotonic() + question.within_s
    records = _records(Path(question.evidence)) if question.evidence else ()
    objects: list[ObjectFacts] = []
    problem = ""
    kept_by: dict[int, KeptPlace] = {}

    def keep(at: int, place: str, what: What) -> None:
        kept_by[at] = look_at_place(place, what)

    threads = [_start(partial(keep, at, *asked)) for at, asked in enumerate(question.kept)]
    if question.look:
        problem = _reach(question.look, question.within_s)
    for record in records:
        objects += _objects(record, until_s)
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    kept = tuple(
        kept_by.get(at) or KeptPlace(place=place, what=what, told=False, why="no answer in time")
        for at, (place, what) in enumerate(question.kept)
    )
    return Delivered(
        deliveries=records,
        objects=tuple(msgspec.structs.replace(one, error=redact(one.error)) for one in objects),
        kept=tuple(msgspec.structs.replace(one, why=redact(one.why)) for one in kept) if question.kept else None,
        problem=redact(problem),
    )


def _records(evidence: Path) -> tuple[Delivery, ...]:
    found = (read_record(place) for place in find_records(evidence))
    return tuple(record for record in found if record is not None)


def _objects(record: Delivery, until_s: float) -> list[ObjectFacts]:
    """Each artifact of a delivery, whatever the record says of its state."""
    facts: dict[str, ObjectFacts] = {}
    waiting = list(record.artifacts)
    opening = threading.Lock()
    stores: list[Store] = []

    def work() -> None:
        while waiting:
            try:
                artifact = waiting.pop()
            except IndexError:
                return
            with opening:
                if not stores:
                    try:
                        stores.append(open_store(record.url))
                    except Exception as error:
                        facts[artifact.path] = _unread(artifact, meaning_of(error, record.url).what)
                        continue
            facts[artifact.path] = _read(stores[0], record, artifact)

    threads = [_start(work) for _ in range(min(_AT_ONCE, len(waiting)))]
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return [facts.get(artifact.path) or _unread(artifact, "no answer in time") for artifact in record.artifacts]


def _read(store: Store, record: Delivery, artifact: DeliveredArtifact) -> ObjectFacts:
    try:
        found = store.digest(address_of(record).name_of(artifact.path))
    except Exception as error:  # a stranger's file system may raise anything
        return _unread(artifact, meaning_of(error, record.url).what)
    known = ObjectFacts(path=artifact.path, url=artifact.url, exists=found is not None, looked_ns=time.time_ns())
    return known if found is None else msgspec.structs.replace(known, bytes=found[0], sha256=found[1])


def _unread(artifact: DeliveredArtifact, why: str) -> ObjectFacts:
    return ObjectFacts(path=artifact.path, url=artifact.url, exists=None, error=why, looked_ns=time.time_ns())


def _reach(url: str, within_s: float) -> str:
    """Why a target cannot be reached, "" when it can. Writes nothing."""
    problems: list[str] = []

    def work() -> None:
        try:
            open_store(url).look()
        except Exception as error:  # as above
            meaning = meaning_of(error, url)
            problems.append(f"{meaning.what}\n{meaning.mend}")
        else:
            problems.append("")

    _start(work).join(within_s)
    return problems[0] if problems else f"no answer within {within_s:g} s\ncheck the network and the store"


def _start(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
