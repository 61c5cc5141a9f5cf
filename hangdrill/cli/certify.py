"""`hangdrill certify`: run a plan on two stacks, write the receipt and the checklist, and sign it."""

import functools
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangdrill.cli.output import console, print_json, write_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from hangdrill.certify.plan import LoadedPlan
    from hangdrill.model.receipt import Receipt

__all__ = ["certify", "passphrase", "utc_now"]

PASSPHRASE_VARIABLE = "HANGDRILL_KEY_PASSPHRASE"


@click.command(short_help="Certify an upgrade: two stacks measured, and a receipt.")
@click.argument("plan", type=click.Path(path_type=Path, dir_okay=False), metavar="PLAN.toml")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where everything goes.  [default: hangdrill-runs/TIME]",
)
@click.option("--resume", is_flag=True, help="Go on in --out: cells that have ended there are not run again.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Run these cells alone: canary, 'drills/*'.")
@click.option("--dry-run", is_flag=True, help="Print the matrix and how long it will take; start nothing.")
@click.option(
    "--sign",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY",
    help="Sign with this key; several, once for each signature.",
)
@click.option("--who", help="Who certifies.  [default: user@host]")
@click.option("--json", "as_json", is_flag=True, help="The receipt, hangdrill.receipt/1, on stdout.")
def certify(
    plan: Path,
    *,
    out: Path | None,
    resume: bool,
    only: tuple[str, ...],
    dry_run: bool,
    sign: tuple[Path, ...],
    who: str | None,
    as_json: bool,
) -> int:
    """Certify an upgrade: measure two stacks, and fill in the checklist with PASS, FAIL or UNKNOWN for each line.

    OUT gets receipt.json, checklist.md, checklist.html, the evidence, and receipt.dsse.json with --sign. A stack that
    is missing or has no torch that imports makes its lines UNKNOWN, and the rest goes on.
    """
    from hangdrill.certify.plan import load_plan

    _require_utf8({"PLAN.toml": str(plan.absolute()), "--out": str((out or Path()).absolute()), "--who": who or ""})
    loaded = load_plan(plan, os.environ)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    if dry_run:
        return _dry_run(loaded, only, as_json=as_json)
    if resume and out is None:
        raise click.UsageError("--resume needs --out: the directory to go on in.")
    receipt = _run(loaded, _out_dir(out), resume=resume, only=only, sign=sign, who=who or _who(), as_json=as_json)
    return int(receipt.verdict.exit_code)


def _require_utf8(words: dict[str, str]) -> None:
    """They come into the receipt. click.UsageError now, and not when it is written, after hours of measuring."""
    for name, text in words.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            shown = text.encode(errors="backslashreplace").decode()
            raise click.UsageError(f"{name} {shown}: this is no text in UTF-8, as a receipt is.") from error


def _out_dir(out: Path | None) -> Path:
    import time

    from hangdrill.cli.output import default_out_dir

    return (out or default_out_dir(Path.cwd(), time.time())).absolute()


def _dry_run(loaded: "LoadedPlan", only: tuple[str, ...], *, as_json: bool) -> int:
    from hangdrill.certify.matrix import cells_of
    from hangdrill.certify.selection import chosen, dry_run
    from hangdrill.report.certifying import print_dry_run

    found = dry_run(loaded.plan, chosen(cells_of(loaded.plan), only), os.environ)
    if as_json:
        print_json(found)
    else:
        print_dry_run(console(), found)
    return 0


def _run(
    loaded: "LoadedPlan",
    out_dir: Path,
    *,
    resume: bool,
    only: tuple[str, ...],
    sign: tuple[Path, ...],
    who: str,
    as_json: bool,
) -> "Receipt":
    from hangdrill.certify.out import Out
    from hangdrill.certify.run import certify as run_plan
    from hangdrill.certify.signing import signed_by
    from hangdrill.report.certifying import PlainWatcher, print_receipt
    from hangdrill.report.checklist import checklist_html, checklist_markdown

    secrets = _readable(sign)  # asked and said now, and not after hours of measuring
    screen = console(stderr=as_json)
    watcher = PlainWatcher(screen)
    receipt = run_plan(
        loaded,
        out_dir=out_dir,
        environ=dict(os.environ),
        who=who,
        clock=utc_now,
        resume=resume,
        only=only,
        watcher=watcher,
        listener=watcher,
    )
    out, key_id = Out(out_dir), ""
    out.envelope.unlink(missing_ok=True)  # of an earlier run: it says something else
    if secrets:
        envelope = _signed(receipt, secrets)
        write_file(out.envelope, envelope)
        key_id = signed_by(envelope)
    write_file(out.checklist, checklist_markdown(receipt, key_id=key_id).encode())
    write_file(out.page, checklist_html(receipt, key_id=key_id).encode())
    if as_json:
        print_json(receipt)
    else:
        print_receipt(screen, receipt, out_dir, signed=bool(secrets))
    return receipt


def _readable(keys: tuple[Path, ...]) -> "dict[Path, Callable[[], bytes | None]]":
    """Each key, with how to get its passphrase. UsageError for one that cannot sign, or is named twice."""
    from hangdrill.certify.signing import can_sign
    from hangdrill.model.errors import UsageError

    secrets: dict[Path, Callable[[], bytes | None]] = {
        key: functools.cache(functools.partial(passphrase, key)) for key in keys
    }
    ids = [can_sign(key, passphrase=secret) for key, secret in secrets.items()]
    if len(set(ids)) < len(keys):
        raise UsageError("the same key twice is one signature", where="--sign", next_step="name different keys")
    return secrets


def _signed(receipt: "Receipt", secrets: "dict[Path, Callable[[], bytes | None]]") -> bytes:
    from hangdrill.certify.signing import add_signature, sign_receipt

    (first, secret), *more = secrets.items()
    envelope = sign_receipt(receipt, first, passphrase=secret)
    for key, secret in more:
        envelope = add_signature(envelope, key, passphrase=secret)
    return envelope


def passphrase(key: Path | None = None) -> bytes | None:
    """Of an encrypted key: from HANGDRILL_KEY_PASSPHRASE, else asked for at a terminal; None without either."""
    import sys

    if text := os.environ.get(PASSPHRASE_VARIABLE):
        return text.encode()
    if not sys.stdin.isatty():
        return None
    return str(click.prompt(f"Passphrase of {key or 'the key'}", hide_input=True, err=True)).encode()


def utc_now() -> datetime:
    """The clock of every command of this room."""
    return datetime.now(timezone.utc)


def _who() -> str:
    import getpass
    import platform

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in a container
        user = str(os.getuid())
    return f"{user}@{platform.node()}"
