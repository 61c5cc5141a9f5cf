"""`hangdrill list`, `show` and `schema`: look at scenarios and contracts without running anything."""

import os
import shutil
import sys
import textwrap
from pathlib import Path

import click

from hangdrill.cli.output import print_json, python_of

__all__ = ["list_command", "schema", "show"]

LEAST_TITLE = 20
"""With fewer columns than these for a title, nothing is wrapped."""


@click.command("list", short_help="List scenarios.")
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
def list_command(scenarios: tuple[str, ...], *, as_json: bool) -> None:
    """List scenarios: the shipped ones, or those of names, groups, files and directories."""
    from hangdrill.drill.scenario_file import find_all

    found = find_all(scenarios or ("scenarios",))
    if as_json:
        print_json([{"name": named.name, "path": str(named.path), "title": named.scenario.title} for named in found])
        return
    width = max(len(named.name) for named in found)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for named in found:
        click.echo(_folded(f"{named.name:{width}}  ", named.scenario.title, columns))


def _folded(head: str, text: str, columns: int | None) -> str:
    """One line; in a terminal that is too narrow the text goes on below itself."""
    if columns is None or columns - len(head) < LEAST_TITLE:
        return head + text
    return textwrap.fill(text, columns, initial_indent=head, subsequent_indent=" " * len(head))


@click.command(short_help="Show exactly what a drill would do; nothing is started.")
@click.argument("name", metavar="SCENARIO")
@click.option("--python", help="Python of the ranks; default: the one that runs hangdrill.")
@click.option("--json", "as_json", is_flag=True, help="The plan as one JSON object.")
def show(name: str, python: str | None, *, as_json: bool) -> None:
    """Show what a drill would do: the exact command, environment, deadlines and expectations."""
    from hangdrill.cli.planned import print_plan
    from hangdrill.drill.scenario_file import load

    print_plan(load(name), python=python_of(python, os.environ), environ=os.environ, cwd=Path.cwd(), as_json=as_json)


@click.command()
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print a JSON schema; without a name, list them."""
    from hangdrill.model.schema import SCHEMAS, schema_of
    from hangdrill.schemas import read

    if name is None:
        for known, (_, contract) in SCHEMAS.items():
            click.echo(f"{known:16} {contract}")
        return
    schema_of(name)  # An unknown name is refused with the right ones.
    click.echo(read(name), nl=False)
