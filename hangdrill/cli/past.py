"""`hangdrill check` and `clean`: judge a recorded run again, and find what a killed controller left behind."""

import os
from pathlib import Path

import click

from hangdrill.cli.output import console, print_json, show_result

__all__ = ["check", "clean"]


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object, hangdrill.summary/1.")
def check(runs: tuple[Path, ...], *, as_json: bool) -> int:
    """Judge recorded runs again, from their directories alone. A directory of several runs means all of them."""
    from hangdrill.drill.judge import judge
    from hangdrill.report.summary import summary_of

    results = [(judge(run_dir), run_dir) for given in runs for run_dir in _run_dirs(given)]
    summary = summary_of([result for result, _ in results], out_dir=str(runs[0]))
    if as_json:
        print_json(summary)
    else:
        for result, run_dir in results:
            show_result(console(), result, run_dir)
    return int(summary.verdict.exit_code)


@click.command(short_help="End what drills of this user left behind.")
@click.option("--dry-run", is_flag=True, help="Only say what would be ended and removed.")
def clean(*, dry_run: bool) -> None:
    """End what drills of this user left behind after their controller was killed: ranks, sockets, locks."""
    from hangdrill.drill.clean import clean as clean_up

    found = clean_up(dry_run=dry_run, environ=os.environ)
    for leftover in found:
        click.echo(f"{'would end' if dry_run else 'ended'}: {leftover.what} {leftover.name}")
    if not found:
        click.echo("nothing was left behind")


def _run_dirs(given: Path) -> list[Path]:
    from hangdrill.model.errors import UsageError

    if (given / "plan.json").is_file():
        return [given]
    found = sorted(path.parent for path in given.rglob("plan.json")) if given.is_dir() else []
    if not found:
        raise UsageError("no run here: a run directory has a plan.json", where=str(given), next_step="give its path")
    return found
