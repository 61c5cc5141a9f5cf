"""`hangdrill diagnose` and `collect`: for a real incident, with no scenario and no drill."""

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from hangdrill.cli.output import console, print_json

if TYPE_CHECKING:
    from hangdrill.report.story import Story

__all__ = ["collect", "diagnose"]

NOBODY = (
    "no rank ever answered here. Start the job as `HANGDRILL_SOCKETS=DIR torchrun ... -m hangdrill.rank SCRIPT`, "
    "with this directory's absolute path"
)
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--world-size", type=click.IntRange(min=1), help="How many ranks the job had; default: what the dumps say."
)
@click.option("--prefix", help="Read only files called PREFIX<rank>, whatever else is there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, hangdrill.diagnosis/1.")
@click.option(
    "--html", "page", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Also write one page."
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Read with at most N processes; 1: with none but this.  [default: one a CPU, where it is worth it]",
)
@click.option(
    "--executor",
    metavar="dask://HOST:PORT",
    help="Read on the workers of this dask cluster, which see the same paths and have the same hangdrill.",
)
def diagnose(
    paths: tuple[str, ...],
    world_size: int | None,
    prefix: str | None,
    *,
    as_json: bool,
    page: Path | None,
    jobs: int | None,
    executor: str | None,
) -> int:
    """Say what dumps tell of a hang.

    PATH is a directory of dumps (or of a directory a host), a dump, an archive (.tar, .tar.gz, .tgz, .zip), a run or
    evidence directory, or a URL (s3://, gs://, ...). Nothing in a file is trusted or run, and nothing is extracted.
    """
    from hangdrill.incident import diagnose_evidence, read_incident
    from hangdrill.model.errors import MachineError
    from hangdrill.readers import open_executor
    from hangdrill.report.reading import reading_bar
    from hangdrill.report.story import BRIEF, tell_story
    from hangdrill.report.terminal import print_diagnosis

    screen = console(stderr=True)
    with (
        reading_bar(screen, is_wanted=not as_json or sys.stdout.isatty()) as progress,
        open_executor(executor, processes=jobs, progress=progress) as each,
    ):
        evidence = read_incident(paths, prefix=prefix, each=each)
    found = diagnose_evidence(evidence, world_size=world_size)
    refused: MachineError | None = None
    if page is not None:
        try:
            _write_page(page, tell_story(found, evidence.dumps, reports=evidence.reports))
        except MachineError as error:  # the diagnosis is not lost by it
            refused = error
    if as_json:
        print_json(found)
    else:
        story = tell_story(found, evidence.dumps, reports=evidence.reports, before=BRIEF)
        print_diagnosis(console(), found, story=story)
    if refused is not None:
        raise refused
    return int(found.verdict.exit_code)


@click.command(short_help="Watch ranks, and pull their evidence at a hang.")
@click.option("--sockets", required=True, type=FOLDER, help="Directory of the ranks' sockets; made if missing.")
@click.option("--to", required=True, type=FOLDER, help="Where the evidence goes; its parent must exist.")
@click.option("--control", type=FOLDER, help="The agents' control directory, of a job under hangdrill.rank.")
@click.option("--run-id", default="", help="Written into the manifest.")
@click.option("--world-size", type=click.IntRange(min=1), help="How many ranks to expect.")
@click.option("--backend", "backends", multiple=True, help="Backend to ask for; default: all that torch records.")
@click.option(
    "--stall-after-s", type=float, help="Call it a hang after this.  [default: 0.8 x the operation's timeout]"
)
@click.option("--poll-s", type=float, default=0.2, show_default=True, help="Time between two looks.")
@click.option(
    "--settle-s", type=float, default=0.5, show_default=True, help="Wait so long after a trouble for more of it."
)
@click.option("--linger-s", type=float, default=10.0, show_default=True, help="Wait so long for a restart.")
@click.option("--native-prefix", help="TORCH_FR_DUMP_TEMP_FILE of the job, whose files are copied.")
@click.option("--parent-pid", type=int, help="End when this process is gone.")
@click.option(
    "--deliver-to", metavar="URL", help="Deliver the evidence of a hang there: s3://, gs://, ..., a directory."
)
@click.option(
    "--deliver-within-s",
    type=float,
    default=30.0,
    show_default=True,
    help="Stay so long for what is left to deliver; then `hangdrill deliver` goes on.",
)
@click.option("--job", default="", help="The job's name, for the delivery and the hooks.")
@click.option("--host", default="", help="This host's name in the delivery, where several have the same.")
@click.option("--on-hang-command", metavar="COMMAND", help="Call it once for a hang, with the news on its stdin.")
@click.option(
    "--on-hang-webhook",
    metavar="URL",
    envvar="HANGDRILL_ON_HANG_WEBHOOK",
    show_envvar=True,
    help="Post the news there, once for a hang.",
)
@click.option("--hook-timeout-s", type=float, default=10.0, show_default=True, help="How long a hook may take.")
def collect(
    *,
    sockets: Path,
    to: Path,
    control: Path | None,
    run_id: str,
    world_size: int | None,
    backends: tuple[str, ...],
    stall_after_s: float | None,
    poll_s: float,
    settle_s: float,
    linger_s: float,
    native_prefix: str | None,
    parent_pid: int | None,
    deliver_to: str | None,
    deliver_within_s: float,
    job: str,
    host: str,
    on_hang_command: str | None,
    on_hang_webhook: str | None,
    hook_timeout_s: float,
) -> None:
    """Watch ranks through their sockets, pull their evidence at a hang, and store it with a manifest.

    Runs until the ranks are gone, or until INT, TERM or HUP, after which it finishes what it has. Delivery and hooks
    run beside it and never hold up a rank (docs/delivery.md).
    """
    import shlex

    from hangdrill.collector import CollectorOptions
    from hangdrill.collector import collect as collect_evidence
    from hangdrill.delivery import DeliveryOptions
    from hangdrill.model.scenario import Incident

    options = CollectorOptions(
        sockets=sockets,
        to=to,
        control=control,
        run_id=run_id,
        world_size=world_size,
        backends=backends,
        stall_after_s=stall_after_s,
        poll_s=poll_s,
        settle_s=settle_s,
        linger_s=linger_s,
        native_prefix=native_prefix,
        parent_pid=parent_pid,
        delivery=DeliveryOptions(
            url=deliver_to,
            within_s=deliver_within_s,
            job=job,
            host=host,
            run=run_id,
            incident=Incident(
                command=tuple(shlex.split(on_hang_command or "")), webhook=on_hang_webhook, timeout_s=hook_timeout_s
            ),
        ),
    )
    manifest = collect_evidence(options, _stop_on_signals())
    if not manifest.ranks:
        click.echo(f"{sockets}: {NOBODY}", err=True)
    elif manifest.noticed_ns is not None:
        ranks = len({artifact.rank for artifact in manifest.artifacts})
        told = f"evidence of {ranks} of {len({pull.rank for pull in manifest.ranks})} ranks is in {to}"
        click.echo(f"noticed: {manifest.notice}; {told}; next: hangdrill diagnose {shlex.quote(str(to))}", err=True)


def _stop_on_signals() -> threading.Event:
    """An event that INT, TERM and HUP set; under nohup HUP stays ignored."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, ask)
    return stop


def _write_page(page: Path, story: "Story") -> None:
    """The story as one HTML file, and a word on stderr of where it is."""
    from hangdrill.cli.output import write_file
    from hangdrill.report.html import page_html

    write_file(page, page_html(story).encode())
    click.echo(f"page: {page}", err=True)
