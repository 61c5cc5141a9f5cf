"""`hangdrill retention`: how long evidence is kept, and on whose word."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangdrill.cli.output import print_json

if TYPE_CHECKING:
    from hangdrill.delivery.retention import What
    from hangdrill.model.delivery import KeptPlace

__all__ = ["retention"]


@click.command(short_help="Say what is kept how long, and what would delete it.")
@click.argument("what", metavar="RUN|URL|DIRECTORY|SCENARIO")
@click.option("--keep-days", type=click.FloatRange(min=0, min_open=True), help="The promise; default: the scenario's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def retention(what: str, *, keep_days: float | None, as_json: bool) -> int:
    """Say what is kept how long, and what is known to delete it: a bucket's lifecycle rules, tmpfiles.d, tmpreaper.

    Writes and deletes nothing. With a promise (--keep-days, or recorder.keep_days of the scenario or the run) the
    exit code is its verdict: 0 kept, 1 deleted earlier, 2 nobody can tell.
    """
    from hangdrill.checks.retained import judge_places
    from hangdrill.delivery.inspection import Question, ask

    places, promised = _places(what)
    promised = keep_days if keep_days is not None else promised
    found = ask(Question(kept=places), os.environ)
    kept = found.kept or ()
    first = kept[:1] or (_not_told(places[0], found.problem),)
    answer = judge_places(promised, first) if promised is not None else None
    if as_json:
        verdict = None if answer is None else answer.verdict
        print_json({"promised_days": promised, "verdict": verdict, "kept": kept, "problem": found.problem})
    else:
        for place in kept:
            _tell(place)
        if found.problem:
            click.echo(found.problem, err=True)
        if answer is not None:
            click.echo(f"\n{answer.verdict.value.upper()}  {answer.detail}")
            if answer.mend:
                click.echo(f"      mend: {answer.mend}")
        else:
            click.echo("\nno promise to hold it against: say --keep-days, or set recorder.keep_days")
    return int(answer.verdict.exit_code) if answer is not None else 0


def _places(what: str) -> tuple[tuple[tuple[str, "What"], ...], float | None]:
    """The places to ask, the one that the promise is about first, and the promise."""
    from hangdrill.delivery.secrets import secret_in
    from hangdrill.drill.collector_command import delivery_of
    from hangdrill.drill.scenario_file import load
    from hangdrill.drill.store import load_run
    from hangdrill.model.errors import UsageError

    path = Path(what)
    if "://" in what:
        if secret := secret_in(what):
            raise UsageError(f"the URL holds {secret}", where="URL", next_step="give it in the environment")
        return ((what, "delivered"),), None
    if (path / "plan.json").is_file():
        run = load_run(path)
        scenario, evidence = run.scenario, run.evidence_dir
    elif path.is_dir():
        return ((str(path.absolute()), "evidence"),), None
    elif path.is_absolute() and not path.exists():
        raise UsageError("no such directory, run or scenario", where=what, next_step="mount it, or check the name")
    else:
        scenario, evidence = load(what).scenario, str(Path.cwd() / "hangdrill-runs")
    places: list[tuple[str, What]] = [(evidence, "evidence")]
    if (url := delivery_of(scenario).url) is not None:
        places.insert(0, (url, "delivered"))
    if scenario.recorder.dump_to is not None and not scenario.job.contained:
        places.append((str(Path(scenario.recorder.dump_to).absolute()), "native dumps"))
    return tuple(places), scenario.recorder.keep_days


def _not_told(place: "tuple[str, What]", why: str) -> "KeptPlace":
    """Nobody answered: then a promise is not known to be kept."""
    from hangdrill.model.delivery import KeptPlace

    return KeptPlace(place=place[0], what=place[1], told=False, why=why or "nobody answered")


def _tell(place: "KeptPlace") -> None:
    import time

    click.echo(f"{place.what}: {place.place}")
    click.echo(f"  {'known from' if place.told else 'not known'}: {place.why}")
    for rule in place.deletions:
        when = f"after {rule.after_days:g} days" if rule.after_days is not None else "at a time that nobody can tell"
        click.echo(f"  {rule.source}: {rule.text}, {when}")
    if place.told and not place.deletions:
        click.echo("  nothing known deletes there")
    if place.locked_days is not None:
        click.echo(f"  an object lock keeps every object at least {place.locked_days:g} days")
    if place.oldest_ns is not None:
        days = (time.time_ns() - place.oldest_ns) / 86_400e9
        click.echo(f"  the oldest evidence there is {days:.1f} days old")
