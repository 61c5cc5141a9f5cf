"""Results to print, made from the records of the checks' tests: one passes, one fails, one cannot tell."""

import msgspec
from healthy_runs import WORLD, held_run, lose_rank, mutate, scenario, undecided

from hangdrill.checks import run_checks
from hangdrill.model.run import DrillResult, Environment, Manifest, RecordedRun, ResultArtifact, Timings
from hangdrill.model.scenario import Trigger
from hangdrill.model.verdict import merge
from hangdrill.report.sentence import drill_sentence

__all__ = ["failed_run", "named", "passed_run", "result_of", "unknown_run"]


def result_of(run: RecordedRun) -> DrillResult:
    """As hangdrill.drill.judge makes it."""
    checks = run_checks(run)
    return DrillResult(
        scenario=run.scenario_name,
        verdict=merge(check.verdict for check in checks),
        checks=checks,
        diagnosis=run.diagnosis,
        expected_culprits=run.scenario.expect.expected_culprits,
        timings=Timings(launched_s=0.3, hang_s=4.1, noticed_s=8.2, last_dump_s=8.3, ended_s=9.0, total_s=9.8),
        environment=Environment(torch="2.15.0"),
        artifacts=tuple(
            ResultArtifact(
                rank=item.rank,
                kind=item.kind,
                path=f"evidence/{item.path}",
                bytes=item.bytes,
                sha256=item.sha256,
                road=item.road,
            )
            for item in run.artifacts
        ),
        sentence=drill_sentence(run),
    )


def passed_run() -> RecordedRun:
    """Four dumps, rank 1 named."""
    return held_run()


def failed_run() -> RecordedRun:
    """torch alone on gloo: no dump at all."""
    run = held_run(
        scenario=scenario(recorder={"trigger": Trigger.NATIVE}),
        scenario_name="delivery/native-gloo",
        manifest=Manifest(complete=True),
        diagnosis=mutate(undecided(), notes=("there is no dump at all",)),
    )
    for rank in WORLD:
        run = lose_rank(run, rank)
    return run


def unknown_run() -> RecordedRun:
    """The evidence cannot tell who it was."""
    return held_run(scenario_name="faults/pipeline-hold-r1", diagnosis=undecided())


def named(result: DrillResult, name: str) -> DrillResult:
    """The same result of another scenario."""
    return msgspec.structs.replace(result, scenario=name)
