"""`hangdrill deliver`: completes a delivery from the spool, as often as needed. What is there already counts."""

import time
from collections.abc import Mapping
from pathlib import Path

from hangdrill.delivery.courier import Courier, Limits
from hangdrill.delivery.opening import normal_url
from hangdrill.delivery.orders import DeliveryOptions
from hangdrill.delivery.outbox import check_delivery
from hangdrill.delivery.record import locked, read_manifest, starting_record
from hangdrill.delivery.secrets import Redactor
from hangdrill.delivery.sending import MANIFEST
from hangdrill.model.delivery import Delivery
from hangdrill.model.errors import UsageError

__all__ = ["deliver", "evidence_in"]

_LOOK_S = 0.5


def deliver(
    evidence: Path,
    url: str,
    *,
    environ: Mapping[str, str],
    job: str = "",
    host: str = "",
    within_s: float = 600.0,
    limits: Limits | None = None,
) -> Delivery:
    """Deliver everything that the manifest lists, then the manifest; the record, as it lies on the disk.

    Raises UsageError when the directory has no manifest or is being delivered elsewhere, MachineError when another
    process delivers from it. What the store says is in the record, for each artifact.
    """
    url = normal_url(url)
    check_delivery(DeliveryOptions(url=url, within_s=within_s))
    if read_manifest(evidence) is None:
        raise _no_evidence(evidence)
    with locked(evidence):
        courier = Courier(
            evidence, starting_record(evidence, url, job=job, host=host), redact=Redactor(environ), limits=limits
        )
        until_s = time.monotonic() + within_s
        courier.take()
        courier.take_manifest()
        courier.step()
        while not courier.settled and time.monotonic() < until_s:
            courier.wait(min(_LOOK_S, until_s - time.monotonic()))
            courier.step()
        courier.give_up(f"the time to deliver ({within_s:g} s) was over")
        return courier.record


def evidence_in(directory: Path) -> list[Path]:
    """The evidence directories that a path means: itself, that of a run directory, or those of several hosts."""
    for place in (directory, directory / "evidence"):
        # The hosts first: above theirs lies the controller's manifest of all, which delivers nothing.
        hosts = sorted(path.parent for path in place.glob(f"*/{MANIFEST}"))
        if hosts and not (place / "plan.json").exists():
            return hosts
        if (place / MANIFEST).is_file():
            return [place]
    raise _no_evidence(directory)


def _no_evidence(directory: Path) -> UsageError:
    return UsageError(
        "no manifest.json, so this is no evidence directory",
        where=str(directory),
        next_step="name the directory that `hangdrill collect --to` or a drill has made",
    )
