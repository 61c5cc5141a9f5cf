"""`hangdrill run`: run drills from scenarios, or one from the words of the command line, and judge them."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hangdrill.cli.hosts import check_jobs, host_options, serve, take_host_words, with_nnodes
from hangdrill.cli.output import (
    console,
    default_out_dir,
    print_json,
    python_of,
    refuse_empty,
    show_result,
    write_reports,
)

if TYPE_CHECKING:
    from rich.console import Console

    from hangdrill.drill.scenario_file import NamedScenario
    from hangdrill.model.errors import ExitCode
    from hangdrill.model.run import DrillResult
    from hangdrill.report.progress import Listener

__all__ = ["run"]

NUMBER = click.IntRange(min=1)
SCRIPT_ARGUMENTS = "hangdrill.script_arguments"


class RunCommand(click.Command):
    """Keeps what follows `--` apart: it belongs to the script, and is no scenario."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut at the first `--`."""
        cut = args.index("--") if "--" in args else len(args)
        ctx.meta[SCRIPT_ARGUMENTS] = tuple(args[cut + 1 :])
        return super().parse_args(ctx, args[:cut])


@click.command(cls=RunCommand)
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]... [-- SCRIPT_ARGS...]")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where results go.  [default: hangdrill-runs/TIME]",
)
@click.option("-j", "--jobs", type=NUMBER, default=1, show_default=True, help="Drills at the same time.")
@click.option("--resume", is_flag=True, help="Leave out the drills that have a result in --out already.")
@click.option("--python", help="Python of the ranks; default: HANGDRILL_PYTHON, or this one.")
@click.option("--launcher", help="torchrun, bwrap, container, slurm or kubernetes.  [default: what the scenario says]")
@click.option("--image", help="Run the ranks in this image, with launcher container; --python is then one in it.")
@click.option("--sbatch", multiple=True, metavar="OPTION", help="For Slurm, as --sbatch=--partition=gpu; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, hangdrill.summary/1, on stdout.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML here too.")
@click.option("--script", help="Drill this training script; its arguments come after --.")
@click.option("--workload", help="Drill this built-in workload.")
@click.option("--nproc", type=NUMBER, help="Ranks.  [with --script or --workload]")
@click.option("--backend", help="Backend of the process group.  [default: gloo]")
@click.option("--timeout-s", type=float, help="Timeout of the process group.  [default: 5]")
@click.option("--steps", type=NUMBER, help="Steps of a workload.")
@click.option("--hold", type=int, multiple=True, metavar="RANK", help="Hold this rank: short for --fault hold --rank.")
@click.option("--fault", help="The fault: hold, stop, kill, wrong-op, ...")
@click.option("--rank", "ranks", type=int, multiple=True, help="The rank it is placed on; may be repeated.")
@click.option("--before", metavar="OP[:NTH]", help="Where: before the nth operation, as all_reduce:40.")
@click.option("--group", help="The group of that operation: a name, or global ranks as 0,1.")
@click.option("--at", help="Where instead: init, step:N, destroy or dataloader.")
@click.option("--trigger", help="The evidence's road: collector, native or debug-server.")
@host_options
@click.pass_context
def run(
    context: click.Context,
    /,
    scenarios: tuple[str, ...],
    *,
    out: Path | None,
    jobs: int,
    resume: bool,
    python: str | None,
    launcher: str | None,
    image: str | None,
    sbatch: tuple[str, ...],
    as_json: bool,
    junit: Path | None,
    **words: Any,  # noqa: ANN401  # each option has its own type
) -> int:
    """Run drills and judge them. Without SCENARIO: the quick set.

    SCENARIO is a shipped name (quick/ddp-hold), a group (quick, faults), a pattern ('faults/ddp-*'), a file or a
    directory.
    """
    refuse_empty(python=python, launcher=launcher, image=image)
    hosts = take_host_words(words)
    words["nnodes"] = hosts.nnodes if words["script"] or words["workload"] else None
    items = _with_launcher(
        _scenarios(scenarios, words, context.meta[SCRIPT_ARGUMENTS]), launcher or (image and "container"), sbatch
    )
    items = with_nnodes(_in_image(items, image, python), hosts.nnodes)
    if hosts.node:
        return serve(items, hosts, out)
    check_jobs(items, jobs)
    out_dir = (out or default_out_dir(Path.cwd(), time.time())).absolute()
    screen = console(stderr=as_json)
    for warning in dict.fromkeys(text for named in items for text in named.warnings):
        click.echo(f"warning: {warning}", err=True)
    earlier = _results_in(out_dir, items) if resume else {}
    left = [named for named in items if named.name not in earlier]
    ran = (
        _run(left, out_dir, jobs=jobs, python=python_of(python, os.environ), environ=hosts.environ(), screen=screen)
        if left
        else []
    )
    found = {**earlier, **{result.scenario: result for result in ran}}
    results = [found[named.name] for named in items]
    return _tell(results, out_dir, screen, as_json=as_json, junit=junit)


def _results_in(out_dir: Path, items: "list[NamedScenario]") -> "dict[str, DrillResult]":
    """What an earlier run into the same directory came to; a drill that was cut short has no result and runs again.
    UsageError for a result that cannot be read: its evidence is not removed for that."""
    import shutil

    import msgspec

    from hangdrill.model.errors import UsageError
    from hangdrill.model.run import DrillResult

    found: dict[str, DrillResult] = {}
    for named in items:
        path = out_dir / named.name / "result.json"
        if path.is_file():
            try:
                found[named.name] = msgspec.json.decode(path.read_bytes(), type=DrillResult)
            except msgspec.DecodeError as error:
                hint = f"remove {path.parent}, or name another --out"
                raise UsageError(f"this is no result of a drill: {error}", where=str(path), next_step=hint) from error
        elif path.parent.is_dir():
            shutil.rmtree(path.parent)
    return found


def _run(
    items: "list[NamedScenario]", out_dir: Path, *, jobs: int, python: str, environ: dict[str, str], screen: "Console"
) -> "list[DrillResult]":
    """Run them under a display that fits: live at a terminal, else a line an event."""
    from contextlib import ExitStack

    from hangdrill.drill.run import run_many
    from hangdrill.report.live import LiveDisplay
    from hangdrill.report.plain import PlainListener

    def plain(name: str) -> "Listener":
        return PlainListener(screen, name if len(items) > 1 else "")

    with ExitStack() as stack:
        live = stack.enter_context(LiveDisplay(screen, total=len(items))) if screen.is_terminal else None
        return run_many(
            [(named.name, named.scenario) for named in items],
            out_dir=out_dir,
            jobs=jobs,
            python=python,
            environ=environ,
            listener_for=live.listener if live is not None else plain,
        )


def _tell(
    results: "list[DrillResult]", out_dir: Path, screen: "Console", *, as_json: bool, junit: Path | None
) -> "ExitCode":
    """Write summary.json and JUnit, print the results, and give the merged verdict's exit code."""
    from hangdrill.report.cells import cell
    from hangdrill.report.summary import summary_of
    from hangdrill.report.terminal import print_matrix

    summary = summary_of(results, out_dir=str(out_dir))
    write_reports(summary, out_dir, junit)
    if as_json:
        print_json(summary)
    elif len(results) == 1:
        show_result(screen, results[0], out_dir / results[0].scenario)
    else:
        print_matrix(screen, results)
        screen.print(cell(f" {out_dir}"), soft_wrap=True)
    return summary.verdict.exit_code


def _scenarios(references: tuple[str, ...], words: dict[str, Any], arguments: tuple[str, ...]) -> "list[NamedScenario]":
    """Those of the references, or the one that the words describe; not both."""
    from hangdrill.drill.scenario_build import Words, build
    from hangdrill.drill.scenario_file import QUICK, find_all

    said = {key: value for key, value in words.items() if value not in (None, ())}
    if not {"script", "workload"} & said.keys():
        if said or arguments:
            name = f"--{next(iter(said)).replace('_', '-')}" if said else "--"
            raise click.UsageError(f"{name} describes a drill of its own: add --script or --workload.")
        return find_all(references or (QUICK,))
    if references:
        raise click.UsageError(f"{references[0]!r} is too much: --script and --workload describe a drill of their own.")
    return [build(Words(**said, args=arguments), source="command line", cwd=Path.cwd())]


def _with_launcher(
    items: "list[NamedScenario]", launcher: str | None, sbatch: tuple[str, ...]
) -> "list[NamedScenario]":
    """The same scenarios under another launcher; each is checked again, since a launcher brings its own limits. Options
    of sbatch come after the scenario's, and none is taken along to another launcher."""
    import msgspec

    from hangdrill.drill.scenario_file import validate

    if launcher is None and not sbatch:
        return items
    tables = [msgspec.to_builtins(named.scenario) for named in items]
    for table in tables:
        kept = table["job"]["sbatch"] if launcher in (None, "slurm") else []
        table["job"] |= {"launcher": launcher or table["job"]["launcher"], "sbatch": [*kept, *sbatch]}
    source = "--launcher" if launcher is not None else "--sbatch"
    return [
        validate(table, name=named.name, path=named.path, source=source)
        for named, table in zip(items, tables, strict=True)
    ]


def _in_image(items: "list[NamedScenario]", image: str | None, python: str | None) -> "list[NamedScenario]":
    """The same scenarios in an image; in one, --python is a path or a word of the image."""
    import msgspec

    from hangdrill.drill.scenario_file import validate

    found = []
    for named in items:
        table = msgspec.to_builtins(named.scenario)
        table["job"]["container"] |= {"image": image or table["job"]["container"]["image"]}
        if python is not None and table["job"]["container"]["image"] is not None:
            table["job"]["container"]["python"] = python
        source = "--image" if image is not None else str(named.path or named.name)
        found.append(
            validate(table, name=named.name, path=named.path, source=source)
            if table["job"]["container"]["image"]
            else named
        )
    return found
