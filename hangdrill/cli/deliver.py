"""`hangdrill deliver`: complete a delivery from the evidence directory, after a crash or a store that hung."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hangdrill.model.delivery import Delivery

__all__ = ["deliver"]


@click.command(short_help="Deliver what an evidence directory holds to a URL.")
@click.argument("directory", metavar="EVIDENCE|RUN", type=click.Path(path_type=Path, file_okay=False))
@click.argument("url", required=False)
@click.option("--job", default="", help="The job's name, where no earlier delivery has given one.")
@click.option("--within-s", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The record, hangdrill.delivery/1, a line for each host.")
def deliver(directory: Path, url: str | None, *, job: str, within_s: float, as_json: bool) -> int:
    """Deliver what an evidence directory holds to a URL (s3://, gs://, ...) or a directory, and read it back.

    EVIDENCE is what `hangdrill collect --to` or a drill has made. Without URL an earlier delivery is completed. Safe to
    repeat: what is there already with the same sha256 counts as delivered, anything else of that name is an error, and
    nothing is ever overwritten.
    """
    import msgspec

    from hangdrill.delivery import deliver as deliver_evidence
    from hangdrill.delivery.deliver import evidence_in
    from hangdrill.model.errors import ExitCode

    complete = True
    places = evidence_in(directory)
    for evidence in places:
        target = url or _earlier_url(evidence)
        host = evidence.name if len(places) > 1 else ""  # this host's name would be the same for all
        record = deliver_evidence(evidence, target, environ=os.environ, job=job, host=host, within_s=within_s)
        complete = complete and record.complete
        if as_json:
            click.echo(msgspec.json.encode(record).decode())
        else:
            _tell(record)
    return int(ExitCode.PASS if complete else ExitCode.MACHINE)


def _earlier_url(evidence: Path) -> str:
    from hangdrill.delivery.record import read_record
    from hangdrill.model.errors import UsageError

    record = read_record(evidence)
    if record is None:
        raise UsageError("nothing says where to", where=str(evidence), next_step="name a URL or a directory")
    return record.url


def _tell(record: "Delivery") -> None:
    from hangdrill.model.delivery import DeliveryState

    reasons: dict[tuple[str, str], list[str]] = {}
    for one in record.artifacts:
        if one.state is not DeliveryState.DELIVERED:
            reasons.setdefault((one.last_error or one.state.value, one.mend), []).append(one.path)
    there = sum(one.state is DeliveryState.DELIVERED for one in record.artifacts)
    click.echo(f"{there} of {len(record.artifacts)} delivered and read back: {record.prefix}")
    for (why, mend), names in reasons.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        click.echo(f"  {names[0]}{more}: {why}" + (f"\n    next: {mend}" if mend else ""), err=True)
    if record.complete:
        click.echo(f"complete; read it with: hangdrill diagnose {record.prefix}")
