"""A ring opens only behind a valid receipt of the ring before it, for the same stack."""

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sample_receipts import fingerprint, receipt

from hangdrill.certify.key_files import make_keys
from hangdrill.certify.rings import RingBefore, open_ring, ring_before
from hangdrill.certify.signing import add_signature, sign_receipt
from hangdrill.certify.stacks import Stack
from hangdrill.model.certify_plan import RingPlan
from hangdrill.model.errors import UsageError
from hangdrill.model.fingerprint import Gpu
from hangdrill.model.verdict import Verdict

NOW = datetime(2026, 12, 1, tzinfo=timezone.utc)


def candidate(**changed: Any) -> Stack:
    return Stack(name="candidate", python="/b/python", fingerprint=fingerprint(**changed))


@pytest.fixture
def second(tmp_path: Path) -> RingPlan:
    """The plan of the second ring, behind a good receipt of the first."""
    make_keys(tmp_path / "k.pem", tmp_path / "k.pub")
    ring = RingPlan(name="internal-workload", receipt_before=str(tmp_path / "r.dsse.json"), key=str(tmp_path / "k.pub"))
    sign(ring)
    return ring


def sign(plan: RingPlan, **changed: Any) -> None:
    file = Path(plan.receipt_before or "")
    file.write_bytes(sign_receipt(receipt(**changed), file.parent / "k.pem", passphrase=lambda: None))


def with_owner(ring: RingPlan, **changed: Any) -> RingPlan:
    """The same ring with the key of a second person, who has not signed."""
    home = Path(ring.receipt_before or "").parent
    make_keys(home / "owner.pem", home / "owner.pub")
    return msgspec.structs.replace(ring, key=(*ring.keys, str(home / "owner.pub")), **changed)


def let_the_owner_sign(ring: RingPlan) -> None:
    file = Path(ring.receipt_before or "")
    file.write_bytes(add_signature(file.read_bytes(), file.parent / "owner.pem", passphrase=lambda: None))


def opened(ring: RingPlan, *, now: datetime = NOW, **changed: Any) -> RingBefore:
    return open_ring(ring, candidate(**changed), now=now, environ=os.environ)


def test_the_first_ring_and_no_ring_are_open() -> None:
    assert opened(RingPlan()) == RingBefore()
    assert opened(RingPlan(name="benchmark-cluster")) == RingBefore()


@pytest.mark.parametrize(
    ("name", "before"), [("benchmark-cluster", ""), ("production-team", "internal-workload"), ("", "")]
)
def test_the_order_of_the_rings(name: str, before: str) -> None:
    assert ring_before(RingPlan(name=name)) == before


def test_the_second_ring_opens_behind_a_good_receipt(second: RingPlan) -> None:
    found = opened(second)
    assert found.name == "benchmark-cluster"
    assert len(found.receipt_sha256) == 64


def test_it_opens_on_a_cluster_with_other_gpus_and_another_driver(second: RingPlan) -> None:
    assert opened(second, driver="590.1", gpus=(Gpu(index=0, name="NVIDIA B200"),)).name == "benchmark-cluster"


@pytest.mark.parametrize("missing", ["receipt_before", "key"])
def test_without_a_receipt_or_a_key_it_stays_closed(second: RingPlan, missing: str) -> None:
    with pytest.raises(UsageError, match=f"the plan has no ring.{missing}"):
        opened(msgspec.structs.replace(second, **{missing: None}))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"verdict": Verdict.FAIL}, "verdict"),
        ({"verdict": Verdict.UNKNOWN}, "verdict"),
        ({"valid_until": "2026-11-30T00:00:00Z"}, "expired"),
        ({"ring": "production-team"}, "is of the ring production-team"),
        ({"ring": ""}, "benchmark-cluster is wanted"),
    ],
)
def test_behind_a_receipt_that_is_not_valid_it_stays_closed(
    second: RingPlan, changed: dict[str, Any], said: str
) -> None:
    sign(second, **changed)
    with pytest.raises(UsageError, match=said):
        opened(second)


def test_for_another_stack_it_stays_closed(second: RingPlan) -> None:
    with pytest.raises(UsageError, match=r"certified another stack: nccl: 2.30.7 -> 2.31.0"):
        opened(second, nccl="2.31.0")


def test_behind_a_changed_receipt_it_stays_closed(second: RingPlan) -> None:
    file = Path(second.receipt_before or "")
    file.write_bytes(file.read_bytes().replace(b"payload", b"paxload", 1))
    with pytest.raises(UsageError, match="signature"):
        opened(second)


def test_of_two_keys_one_signature_is_enough_where_the_plan_says_so(second: RingPlan) -> None:
    assert opened(with_owner(second, threshold=1)).name == "benchmark-cluster"


@pytest.mark.parametrize("threshold", [None, 2])
def test_one_good_signature_of_two_does_not_open_a_ring_that_wants_all(second: RingPlan, threshold: int | None) -> None:
    ring = with_owner(second, threshold=threshold)
    with pytest.raises(UsageError, match="2 of these keys must have signed it, and 1 did"):
        opened(ring)
    let_the_owner_sign(ring)
    assert opened(ring).name == "benchmark-cluster"


def test_signatures_of_none_of_the_keys_do_not_open_it(second: RingPlan) -> None:
    ring = with_owner(second)
    ring = msgspec.structs.replace(ring, key=ring.keys[1:])
    with pytest.raises(UsageError, match="it is not signed with this key"):
        opened(ring)


@pytest.mark.parametrize("threshold", [1, 2])
def test_a_signature_of_one_of_the_keys_that_does_not_fit_closes_it_whatever_the_threshold(
    second: RingPlan, threshold: int
) -> None:
    ring = with_owner(second, threshold=threshold)
    let_the_owner_sign(ring)
    file = Path(ring.receipt_before or "")
    good, other = (one["sig"].encode() for one in json.loads(file.read_bytes())["signatures"])
    file.write_bytes(file.read_bytes().replace(other, good))
    with pytest.raises(UsageError, match="does not fit"):
        opened(ring)


def test_a_copy_of_a_key_is_no_second_one(second: RingPlan) -> None:
    copy = Path(second.keys[0]).with_name("copy.pub")
    copy.write_bytes(Path(second.keys[0]).read_bytes())
    ring = msgspec.structs.replace(second, key=(*second.keys, str(copy)), threshold=2)
    with pytest.raises(UsageError, match="the same key twice is one signature") as caught:
        opened(ring)
    assert caught.value.where == str(copy)
