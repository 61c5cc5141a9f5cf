"""`hangdrill keygen`, `sign` and `verify`: the keys of receipts, one signature more, and whether a receipt is good."""

import os
import sys
from datetime import datetime, timezone
from pathlib import Path

import click

from hangdrill.cli.output import console, print_json, refuse_empty, write_file

__all__ = ["keygen", "sign", "verify"]


@click.command(short_help="Make a key pair, to sign and to verify receipts.")
@click.argument(
    "private", type=click.Path(path_type=Path, dir_okay=False), default="hangdrill-key.pem", metavar="[FILE]"
)
@click.option("--encrypt", is_flag=True, help="Protect it by a passphrase: HANGDRILL_KEY_PASSPHRASE, or asked for.")
def keygen(private: Path, *, encrypt: bool) -> None:
    """Make an Ed25519 key pair: FILE (hangdrill-key.pem, for signing, keep it secret) and FILE.pub (for verifying)."""
    from hangdrill.certify.key_files import make_keys

    if not private.name:
        raise click.UsageError("FILE is empty: name the file of the private key.")
    public = private.with_name(f"{private.name}.pub")
    key_id = make_keys(private, public, passphrase=_new_passphrase() if encrypt else None)
    click.echo(f"{private}  the private key: only who signs receipts may read it")
    click.echo(f"{public}  the public key: give it to everybody who verifies receipts")
    click.echo(f"key id {key_id}")


def _new_passphrase() -> bytes:
    from hangdrill.cli.certify import PASSPHRASE_VARIABLE

    if text := os.environ.get(PASSPHRASE_VARIABLE):
        return text.encode()
    if not sys.stdin.isatty():
        raise click.UsageError(f"--encrypt needs a terminal to ask for the passphrase, or {PASSPHRASE_VARIABLE}.")
    text = click.prompt("Passphrase of the new key", hide_input=True, confirmation_prompt=True, err=True)
    if not text:
        raise click.UsageError("--encrypt needs a passphrase that is not empty.")
    return str(text).encode()


@click.command(short_help="Add your signature to a signed receipt.")
@click.argument("receipt", type=click.Path(path_type=Path), metavar="RECEIPT")
@click.option(
    "--key",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Your private key, of `hangdrill keygen`.",
)
def sign(receipt: Path, *, key: Path) -> None:
    """Add your signature to a signed receipt (OUT/receipt.dsse.json, or OUT): read its page, and verify it, before.

    The signatures that are there stay. Its checklist beside it is written again, with the ids of all keys.
    """
    from functools import cache

    from hangdrill.certify.out import locked
    from hangdrill.certify.signing import SignatureProblem, add_signature, can_sign, read_statement, signed_by
    from hangdrill.certify.verifying import has_expired, read_bytes
    from hangdrill.cli.certify import passphrase, utc_now
    from hangdrill.model.errors import UsageError
    from hangdrill.report.checklist import checklist_html, checklist_markdown

    receipt = _signed_in(receipt)
    read_bytes(receipt)  # refused here, and not by the lock, when it is not there
    said = cache(lambda: passphrase(key))
    can_sign(key, passphrase=said)  # asks before it locks: who is slow to answer keeps nobody waiting
    with locked(receipt.parent):  # two signatures at once: the second would lose the first
        try:
            envelope = add_signature(read_bytes(receipt), key, passphrase=said)
        except SignatureProblem as problem:
            hint = "`hangdrill certify --sign` makes one; a receipt.json alone is signed by it too, with --resume"
            raise UsageError(str(problem), where=str(receipt), next_step=hint) from problem
        write_file(receipt, envelope)
        found, ids = read_statement(envelope).predicate, signed_by(envelope)
        for name, page in (("checklist.md", checklist_markdown), ("checklist.html", checklist_html)):
            if _is_page_of(receipt.parent / name, found.id):
                write_file(receipt.parent / name, page(found, key_id=ids).encode())
    click.echo(f"{found.verdict.value.upper()}  {found.title}, valid until {found.valid_until}")
    click.echo(f"signed with the keys {ids}")
    if has_expired(found, utc_now()):
        click.echo("warning: it has expired: `hangdrill verify` refuses it, whoever signed it", err=True)


@click.command(short_help="Is a signed receipt still good?")
@click.argument("receipt", type=click.Path(path_type=Path), metavar="RECEIPT")
@click.option(
    "--key",
    "keys",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The public key, KEY.pub. Several: each of them must have signed.",
)
@click.option(
    "--threshold", type=click.IntRange(min=1), metavar="N", help="So many of the keys are enough.  [default: all]"
)
@click.option("--python", help="The candidate's Python here.  [default: where the receipt says]")
@click.option("--no-stack", is_flag=True, help="Do not look at the stack: only the signature, dates and evidence.")
@click.option("--at", metavar="DATE", help="As of this day (2027-03-31), instead of now.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, hangdrill.verification/1.")
def verify(
    receipt: Path,
    *,
    keys: tuple[Path, ...],
    threshold: int | None,
    python: str | None,
    no_stack: bool,
    at: str | None,
    as_json: bool,
) -> int:
    """Is a signed receipt (OUT/receipt.dsse.json, or OUT) still good?

    It is not when a byte of it was changed, a key did not sign it, its date is over, its stack has changed, a file of
    its evidence has changed, or its verdict is not PASS.
    """
    from hangdrill.certify.verifying import verify_receipt
    from hangdrill.drill.waiting import Interrupt, handling_signals
    from hangdrill.report.certifying import print_verification

    refuse_empty(python=python)
    with Interrupt() as interrupt, handling_signals(interrupt):
        found = verify_receipt(
            _signed_in(receipt),
            keys,
            threshold=threshold,
            now=_at(at),
            environ=os.environ,
            python=python,
            look_at_stack=not no_stack,
            interrupt=interrupt,
        )
    if as_json:
        print_json(found)
    else:
        print_verification(console(), found)
    return int(found.verdict.exit_code)


def _is_page_of(page: Path, receipt_id: str) -> bool:
    """Whether it is a checklist of this receipt; a file that only has its name is somebody's own."""
    try:
        return page.is_file() and receipt_id in page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _signed_in(receipt: Path) -> Path:
    """The file; of a certification's directory, the signed receipt in it."""
    from hangdrill.model.errors import UsageError

    if not receipt.is_dir():
        return receipt
    file = receipt / "receipt.dsse.json"
    if not file.is_file():
        hint = "`hangdrill certify PLAN.toml --resume --out DIRECTORY --sign KEY` signs what is measured already"
        raise UsageError("there is no signed receipt in it (receipt.dsse.json)", where=str(receipt), next_step=hint)
    return file


def _at(text: str | None) -> datetime:
    from hangdrill.cli.certify import utc_now

    if text is None:
        return utc_now()
    for form in ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=timezone.utc)
        except ValueError:
            continue
    raise click.UsageError(f"--at {text}: write it as 2027-03-31")
