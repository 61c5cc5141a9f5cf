"""`hangdrill compare`: two receipts side by side."""

from pathlib import Path

import click

from hangdrill.cli.output import console, print_json

__all__ = ["compare"]

FILE = click.Path(path_type=Path, dir_okay=True)


@click.command(short_help="Compare two receipts.")
@click.argument("before", type=FILE, metavar="BEFORE")
@click.argument("after", type=FILE, metavar="AFTER")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, hangdrill.receipt-comparison/1.")
def compare(before: Path, after: Path, *, as_json: bool) -> int:
    """Compare two receipts (files, or directories of certifications): which lines changed, what else differs.

    Exit code 1: a line fails that did not; 2: a line is unknown or gone that was neither. Signatures are not looked at:
    `hangdrill verify` does that.
    """
    from hangdrill.certify.compare import compare_receipts, read_receipt
    from hangdrill.report.certifying import print_comparison

    files = [path / "receipt.json" if path.is_dir() else path for path in (before, after)]
    found = compare_receipts(*(read_receipt(file) for file in files), names=(str(before), str(after)))
    if as_json:
        print_json(found)
    else:
        print_comparison(console(), found)
    return int(found.verdict.exit_code)
