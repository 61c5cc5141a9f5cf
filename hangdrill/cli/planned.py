"""Print a plan: what `hangdrill run` would do with a scenario, down to the command line. Starts nothing."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from hangdrill.cli.output import RUNS, console, print_json
from hangdrill.drill.plan import new_run_id, plan_drill
from hangdrill.drill.plan_values import Plan
from hangdrill.drill.scenario_file import NamedScenario
from hangdrill.model.scenario import Before, Fault, Scenario
from hangdrill.report.terminal import print_plan as print_sections

__all__ = ["print_plan"]

WIDTH = 14


def print_plan(named: NamedScenario, *, python: str, environ: Mapping[str, str], cwd: Path, as_json: bool) -> None:
    """The plan, for people or as JSON. The run directory and the run id are new ones, as an example."""
    plan = plan_drill(
        named.scenario,
        name=named.name,
        run_dir=cwd / RUNS / "example" / named.name,
        python=python,
        environ=environ,
        run_id=new_run_id(),
    )
    if as_json:
        print_json(plan)
        return
    screen, title, sections = console(), f"{named.name}: {named.scenario.title}", _sections(plan, named)
    if screen.is_terminal:
        print_sections(screen, title, sections)
    else:
        _print_unfolded(title, sections)


def _print_unfolded(title: str, sections: Mapping[str, str | Sequence[str]]) -> None:
    """For a pipe or a file: the exact command on one line, to be copied or searched."""
    click.echo(f"{title}\n")
    for name, content in sections.items():
        for index, line in enumerate([content] if isinstance(content, str) else content):
            click.echo(f"{name if index == 0 else '':{WIDTH}}{line}")


def _sections(plan: Plan, named: NamedScenario) -> dict[str, str | Sequence[str]]:
    scenario, deadlines = named.scenario, msgspec.structs.asdict(plan.deadlines)
    sections: dict[str, str | Sequence[str]] = {
        "warning": named.warnings,
        "job": _job(scenario),
        "fault": _fault(scenario.fault),
        "evidence": f"{scenario.recorder.trigger.value}, {scenario.recorder.buffer_size} entries a rank",
        "native dumps": f"{plan.dump_prefix}<rank>",
        "alone with": ", ".join(plan.resources) or "nothing: drills like this run side by side",
        "command": shlex.join(plan.command),
        "collector": shlex.join(plan.collector_command),
        "directory": plan.cwd,
        "environment": [f"{key}={value}" for key, value in sorted(plan.environment.items())],
        "deadlines": [f"{key.removesuffix('_s')} {value:g} s" for key, value in deadlines.items()],
        "expectations": list(_expectations(scenario, plan.deadlines.within_s)),
    }
    return {name: content for name, content in sections.items() if content}


def _job(scenario: Scenario) -> str:
    job = scenario.job
    what = f"workload {job.workload.value}" if job.workload else f"script {job.script}"
    hosts = f" on {job.nnodes} hosts" if job.nnodes > 1 else ""
    return f"{what}, {job.world_size} ranks{hosts}, {job.backend}, timeout {job.timeout_s:g} s, {job.launcher.value}"


def _fault(fault: Fault) -> str:
    if fault.on_host:
        link = f" on {fault.interface}" if fault.interface is not None else ""
        return f"{fault.kind.value} of node {fault.host_node}{link}, {_place(fault.before, fault.at)}"
    if not fault.targets:
        return "none"
    ranks = ", ".join(str(rank) for rank in fault.targets)
    return f"{fault.kind.value} on rank {ranks}, {_place(fault.before, fault.at)}"


def _place(before: Before | None, at: str | None) -> str:
    if before is not None:
        group = before.group if isinstance(before.group, str) else f"the group of ranks {list(before.group)}"
        return f"before {before.op or 'operation'} #{before.nth} of {group}"
    return f"at {at}" if at else "where its kind belongs"


def _expectations(scenario: Scenario, within_s: float) -> Iterator[str]:
    expect = scenario.expect
    dumps = expect.dumps if isinstance(expect.dumps, str) else f"of ranks {', '.join(map(str, expect.dumps))}"
    yield f"dumps: {dumps}, within {within_s:g} s of the confirmed fault"
    culprits = expect.expected_culprits
    if culprits is not None:
        yield f"culprits: {', '.join(map(str, culprits)) or 'none, no hang'}"
    if expect.kind is not None:
        yield f"kind: {expect.kind.value}"
    if scenario.recorder.deliver_to is not None:
        yield f"delivered to {scenario.recorder.deliver_to}, and read back"
    if scenario.recorder.keep_days is not None:
        yield f"kept for {scenario.recorder.keep_days:g} days"
    if scenario.incident.has_hook:
        yield "each incident hook is called once"
    yield f"survives: {', '.join(teardown.value for teardown in expect.survives) or 'nothing'}"
