"""Rings: a stage of the rollout opens only when the one before it has a valid receipt for the same stack.

Valid: signed with the plan's key, with all of them, or as many as it wants; not expired, PASS, of the ring just before,
and for the candidate of this plan. Another host may have other GPUs, another driver and another network; torch, its
packages and its variables must be the same.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from hangdrill.certify.stacks import Stack
from hangdrill.certify.verifying import read_bytes, verify_receipt
from hangdrill.model.certify_plan import RingPlan
from hangdrill.model.errors import UsageError
from hangdrill.model.fingerprint import changes
from hangdrill.model.receipt import Receipt
from hangdrill.model.verdict import Verdict

__all__ = ["RingBefore", "open_ring", "ring_before"]

OF_THE_HOST = ("driver", "gpus", "hcas", "libc")
MOST_NAMED = 3


class RingBefore(msgspec.Struct, frozen=True, kw_only=True):
    """The ring that was passed before, and the sha256 of its signed receipt."""

    name: str = ""
    receipt_sha256: str = ""


def ring_before(ring: RingPlan) -> str:
    """The name of the ring before; empty for the first one, and when the plan is of no ring."""
    at = ring.order.index(ring.name) if ring.name in ring.order else 0
    return ring.order[at - 1] if at > 0 else ""


def open_ring(ring: RingPlan, candidate: Stack, *, now: datetime, environ: Mapping[str, str]) -> RingBefore:
    """The ring before, proven. UsageError when this ring does not open."""
    before = ring_before(ring)
    if not before:
        return RingBefore()
    if ring.receipt_before is None or not ring.keys:
        missing = "ring.receipt_before" if ring.receipt_before is None else "ring.key"
        raise _closed(ring, f"the plan has no {missing}", f"certify {before} first, sign that, and name it in the plan")
    file = Path(ring.receipt_before)
    found = verify_receipt(
        file,
        tuple(map(Path, ring.keys)),
        threshold=ring.threshold,
        now=now,
        environ=environ,
        look_at_stack=False,
    )
    bad = next((answer for answer in found.answers if answer.verdict is not Verdict.PASS), None)
    if bad is not None or found.receipt is None:
        why = f"the receipt before is not valid: {bad.question}: {bad.detail}" if bad is not None else "no receipt"
        raise _closed(ring, why, bad.mend if bad is not None else "")
    _require_same(ring, before, found.receipt, candidate)
    return RingBefore(name=before, receipt_sha256=hashlib.sha256(read_bytes(file)).hexdigest())


def _require_same(ring: RingPlan, before: str, receipt: Receipt, candidate: Stack) -> None:
    if receipt.ring != before:
        why = f"the receipt before is of the ring {receipt.ring or '(none)'}, and {before} is wanted"
        raise _closed(ring, why, f"name the receipt of {before}")
    certified, now = receipt.candidate.fingerprint, candidate.fingerprint
    if certified is None or now is None:
        raise _closed(ring, candidate.missing or "the receipt before has no fingerprint", candidate.next_step)
    unlike = [change for change in changes(certified, now) if change.what not in OF_THE_HOST]
    if unlike:
        named = "; ".join(f"{one.what}: {one.before or 'none'} -> {one.after or 'none'}" for one in unlike[:MOST_NAMED])
        why = f"{before} certified another stack: {named}" + (" and more" if len(unlike) > MOST_NAMED else "")
        raise _closed(ring, why, f"take the stack that {before} certified, or certify this one there first")


def _closed(ring: RingPlan, why: str, next_step: str) -> UsageError:
    return UsageError(f"the ring {ring.name} does not open: {why}", where="[ring]", next_step=next_step)
