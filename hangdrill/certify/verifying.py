"""Is a signed receipt still good? The signature, its dates, the stack it was made for, its evidence, and its verdict.

Each is an answer with a verdict of its own; they merge as everywhere: FAIL over UNKNOWN over PASS. What cannot be
looked at (a stack that is not on this host) is UNKNOWN.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from hangdrill.certify.fingerprints import read_stack
from hangdrill.certify.signing import SignatureProblem, open_envelope
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.certification import Answer, Verification
from hangdrill.model.errors import UsageError
from hangdrill.model.fingerprint import Change, changes
from hangdrill.model.receipt import EvidenceFile, Receipt, StackRecord
from hangdrill.model.verdict import Verdict, merge

__all__ = ["has_expired", "read_bytes", "verify_receipt"]

MOST_NAMED = 5
MAX_FILE_BYTES = 256 * 1024 * 1024
CHUNK_BYTES = 1 << 20


def verify_receipt(
    file: Path,
    keys: Sequence[Path],
    *,
    threshold: int | None = None,
    now: datetime,
    environ: Mapping[str, str],
    python: str | None = None,
    look_at_stack: bool = True,
    interrupt: Interrupt | None = None,
) -> Verification:
    """Ask everything. keys: all of them must have signed, or `threshold` of them. python: of the candidate, when it is
    not where the receipt says. UsageError: no such file."""
    data = read_bytes(file)
    try:
        statement = open_envelope(data, *keys, threshold=threshold)
    except SignatureProblem as problem:
        detail = str(problem)
        hint = "ask for the receipt and the key again, from whoever made them; trust nothing in this one"
        if _is_unsigned(data):
            detail = "this receipt has no signature"
            hint = "name the signed one, receipt.dsse.json; `hangdrill certify --sign` makes it"
        answer = Answer(question="signature", verdict=Verdict.FAIL, detail=detail, mend=hint)
        return Verification(file=str(file), verdict=Verdict.FAIL, answers=(answer,))
    receipt = statement.predicate
    which = "the given key" if len(keys) == 1 else f"{threshold or 'all'} of the {len(keys)} given keys"
    answers = [
        Answer(question="signature", verdict=Verdict.PASS, detail=f"signed with {which}, made by {receipt.who}"),
        _dates(receipt, now),
        *([_stack(receipt.candidate, environ, python, interrupt)] if look_at_stack else ()),
        *_evidence(receipt, file.absolute().parent),
        _verdict(receipt),
    ]
    verdict = merge(answer.verdict for answer in answers)
    return Verification(file=str(file), verdict=verdict, answers=tuple(answers), receipt=receipt)


def _is_unsigned(data: bytes) -> bool:
    """Whether it says of itself that it is a bare receipt, such as receipt.json."""
    try:
        return msgspec.json.decode(data, type=_Named).schema == "hangdrill.receipt/1"
    except (msgspec.DecodeError, RecursionError):
        return False


class _Named(msgspec.Struct):
    schema: str = ""
    id: str = ""


def read_bytes(file: Path) -> bytes:
    """The whole file. UsageError when it cannot be read, or is far too large for a receipt."""
    try:
        with file.open("rb") as opened:  # its size alone says nothing of a device or a pipe
            if file.stat().st_size <= MAX_FILE_BYTES and len(data := opened.read(MAX_FILE_BYTES + 1)) <= MAX_FILE_BYTES:
                return data
        raise UsageError("the file is larger than 256 MB: no receipt", where=str(file))
    except OSError as error:
        raise UsageError(f"cannot read the receipt: {error.strerror}", where=str(file)) from error


def has_expired(receipt: Receipt, now: datetime) -> bool:
    """Whether `verify` refuses it for its last day."""
    until = _time(receipt.valid_until)
    return until is None or now >= until


def _dates(receipt: Receipt, now: datetime) -> Answer:
    made, until = _time(receipt.made_at), _time(receipt.valid_until)
    verdict, mend = Verdict.PASS, ""
    detail = f"made {receipt.made_at}, valid until {receipt.valid_until}"
    if made is None or until is None:
        verdict, mend = Verdict.FAIL, "make the certification again"
        detail = f"made {receipt.made_at!r}, valid until {receipt.valid_until!r}: these are no times"
    elif has_expired(receipt, now):
        verdict, mend = Verdict.FAIL, "make the certification again"
        detail = f"it expired {receipt.valid_until}"
    elif now < made:
        verdict, mend = Verdict.FAIL, "set the clock of this host, or ask who signed it"
        detail = f"it says that it was made {receipt.made_at}, which is not yet"
    return Answer(question="dates", verdict=verdict, detail=detail, mend=mend)


def _time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def _stack(record: StackRecord, environ: Mapping[str, str], python: str | None, interrupt: Interrupt | None) -> Answer:
    """Whether the candidate is still the stack that was certified."""
    if record.fingerprint is None:
        detail = f"the receipt has no fingerprint of the candidate: {record.missing}"
        return Answer(question="stack", verdict=Verdict.UNKNOWN, detail=detail, mend="make the certification again")
    now = read_stack(
        record.name,
        record.python if python is None else python,
        env=record.env,
        environ=environ,
        interrupt=interrupt,
        image=record.image if python is None else "",
        mounts=record.mounts,
    )
    if now.fingerprint is None:
        hint = "run it where the stack is, or name its Python with --python"
        return Answer(question="stack", verdict=Verdict.UNKNOWN, detail=now.missing, mend=hint)
    found = changes(record.fingerprint, now.fingerprint)
    if record.image and python is not None and found and all(_of_image(change) for change in found):
        detail = f"{now.python}: everything else is as certified, but whether it is in {record.image} is not seen here"
        hint = "ask it where the container engine is, without --python"
        return Answer(question="stack", verdict=Verdict.UNKNOWN, detail=detail, mend=hint)
    if found or record.fingerprint.digest != record.digest:
        hint = "make the certification again for this stack, or go back to the certified one"
        return Answer(question="stack", verdict=Verdict.FAIL, detail=_stale(found), mend=hint)
    detail = f"{now.python}: torch {now.torch}, {len(now.fingerprint.packages)} packages, as certified"
    return Answer(question="stack", verdict=Verdict.PASS, detail=detail)


def _of_image(change: Change) -> bool:
    return change.what == "image" or change.what.startswith("image.")


def _stale(found: tuple[Change, ...]) -> str:
    if not found:
        return "stale: the receipt's own digest is not that of its fingerprint"
    named = "; ".join(f"{one.what}: {one.before or 'none'} -> {one.after or 'none'}" for one in found[:MOST_NAMED])
    more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"stale, the stack has changed: {named}{more}"


def _evidence(receipt: Receipt, home: Path) -> tuple[Answer, ...]:
    """The files that the receipt names, and receipt.json, which `compare` and people read. Where none of them lies
    beside it, it travels alone, and the question is not asked; one of another certification is none of them."""
    same = {one.path: _is_same(one, home) for one in receipt.artifacts}
    there = [path for path, is_same in same.items() if is_same is not None]
    changed = [path for path, is_same in same.items() if is_same is False]
    text = home / "receipt.json"
    if (there or _is_of(text, receipt)) and not _is_its_text(text, receipt):
        changed.append("receipt.json")
    if not there and not changed:
        return ()
    verdict, detail, mend = Verdict.PASS, f"all {len(there)} files beside the receipt have their hashes", ""
    if changed:
        named = ", ".join(changed[:MOST_NAMED])
        verdict, mend = Verdict.FAIL, "find out who changed them"
        detail = f"{len(changed)} of {len(same)} files are not what was certified: {named}"
        detail = detail if there else f"{named} is not what was signed"
    elif len(there) < len(same):
        absent = [path for path in same if path not in there]
        verdict, mend = (
            Verdict.UNKNOWN,
            "put the certification's directory back as it was, or move the receipt out of it",
        )
        detail = f"{len(absent)} of {len(same)} files are gone or cannot be read: {', '.join(absent[:MOST_NAMED])}"
    return (Answer(question="evidence", verdict=verdict, detail=detail, mend=mend),)


def _is_same(file: EvidenceFile, home: Path) -> bool | None:
    """None: it is not there, is no file, or cannot be read."""
    digest = hashlib.sha256()
    try:
        if not (home / file.path).is_file():
            return None
        with (home / file.path).open("rb") as opened:
            while chunk := opened.read(CHUNK_BYTES):
                digest.update(chunk)
    except OSError:
        return None
    return digest.hexdigest() == file.sha256


def _is_its_text(file: Path, receipt: Receipt) -> bool:
    """Whether receipt.json says what was signed. It need not be there."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Receipt) == receipt if file.is_file() else True
    except OSError:
        return True
    except (msgspec.DecodeError, RecursionError):
        return False


def _is_of(file: Path, receipt: Receipt) -> bool:
    """Whether receipt.json is of this certification, whatever else it says."""
    try:
        return file.is_file() and msgspec.json.decode(file.read_bytes(), type=_Named).id == receipt.id
    except (OSError, msgspec.DecodeError, RecursionError):
        return False


def _verdict(receipt: Receipt) -> Answer:
    mend = (
        "" if receipt.verdict is Verdict.PASS else "mend the lines of the checklist, and make the certification again"
    )
    return Answer(question="verdict", verdict=receipt.verdict, detail=receipt.sentence, mend=mend)
