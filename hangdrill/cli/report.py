"""`hangdrill report`: a page made of results that earlier runs left."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangdrill.cli.output import write_file

if TYPE_CHECKING:
    from hangdrill.model.run import DrillResult

__all__ = ["report"]


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path, exists=True))
@click.option("--matrix", is_flag=True, required=True, help="The drills as a matrix, in Markdown.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write it here instead of printing it.")
def report(runs: tuple[Path, ...], *, matrix: bool, output: Path | None) -> None:
    """Write a page from the results below DIR. Of a drill that is in several directories, the last one counts."""
    from hangdrill.report.backend_matrix import backend_page, has_backends
    from hangdrill.report.matrix import matrix_markdown

    results = _results(runs)
    page = backend_page(results) if has_backends(results) else matrix_markdown(results)
    if output is None:
        click.echo(page, nl=False)
    else:
        write_file(output, page.encode())


def _results(runs: tuple[Path, ...]) -> "list[DrillResult]":
    import msgspec

    from hangdrill.model.errors import UsageError
    from hangdrill.model.run import DrillResult

    found: dict[str, DrillResult] = {}
    for directory in runs:
        for path in sorted(directory.rglob("result.json")):
            result = msgspec.json.decode(path.read_bytes(), type=DrillResult)
            found[result.scenario] = result
    if not found:
        raise UsageError("no result here", where=str(runs[0]), next_step="name the --out directory of a run")
    return list(found.values())
