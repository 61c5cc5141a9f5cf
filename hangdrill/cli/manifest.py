"""`hangdrill manifest`: the JobSet or Indexed Job that a drill would apply; and any manifest against the schemas."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hangdrill.drill.scenario_file import NamedScenario

__all__ = ["manifest"]

MOUNT_PATH = "/hangdrill-runs"


@click.command(short_help="Print what a drill would apply to a Kubernetes cluster.")
@click.argument("scenario", required=False, metavar="[SCENARIO]")
@click.option(
    "--check",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Check this manifest of your own instead.",
)
@click.option("--kind", type=click.Choice(["jobset", "job"]), help="A JobSet, or an Indexed Job with its service.")
@click.option("--image", help="With torch and hangdrill.  [default: job.kubernetes.image]")
@click.option("--run-volume", help="pvc:CLAIM, hostPath:/PATH or nfs:SERVER:/PATH.")
@click.option("--mount-path", help=f"Where the pods have the run volume.  [default: {MOUNT_PATH}]")
@click.option("--namespace", help="Of all objects.")
@click.option("--kubernetes-version", metavar="X.Y", help="Check against its schemas.  [default: the latest known]")
def manifest(
    scenario: str | None,
    *,
    check: Path | None,
    kubernetes_version: str | None,
    **words: str | None,
) -> int:
    """Print, as YAML, what a drill of SCENARIO would apply to a cluster; or, with --check, check a manifest.

    Either is checked offline against the published schemas, and every mistake is listed with its path. No cluster is
    asked. A drill prepares its run directory first, so what is printed is for reading: `hangdrill run` applies it.
    """
    from hangdrill.launchers.kubernetes_check import check_documents, read_documents
    from hangdrill.launchers.kubernetes_manifest import to_yaml

    if (scenario is None) == (check is None):
        raise click.UsageError("give a scenario, or --check FILE.")
    if check is not None:
        return _tell(str(check), check_documents(read_documents(check), kubernetes_version), kubernetes_version)
    documents = _documents(_named(scenario or "", words))
    mistakes = check_documents(documents, kubernetes_version)
    click.echo(
        to_yaml(documents, f"What `hangdrill run` applies for the scenario {scenario}; each run has its own id."),
        nl=False,
    )
    return _tell(f"{scenario}", mistakes, kubernetes_version)


def _named(scenario: str, words: dict[str, str | None]) -> "NamedScenario":
    """The scenario with the words of the command line, checked again as one for a cluster."""
    import msgspec

    from hangdrill.drill.scenario_file import load, validate
    from hangdrill.model.scenario import TEARDOWNS_OF, LauncherName, Teardown

    named = load(scenario)
    table = msgspec.to_builtins(named.scenario)
    table["job"]["launcher"] = "kubernetes"
    settings = table["job"]["kubernetes"]
    settings |= {key: value for key, value in words.items() if value is not None}
    settings |= {"engine": "cluster", "context": settings["context"] or "none"}  # nobody is asked
    settings["mount_path"] = settings["mount_path"] or MOUNT_PATH
    able = [each.value for each, launchers in TEARDOWNS_OF.items() if LauncherName.KUBERNETES in launchers]
    asked = [name for name in table["expect"]["survives"] if name in able and name != Teardown.PROCESS_KILL.value]
    table["expect"]["survives"] = asked or [Teardown.JOB_EXIT.value]
    return validate(table, name=named.name, path=named.path, source=f"{scenario} in a cluster")


def _documents(named: "NamedScenario") -> "tuple[dict[str, object], ...]":
    from hangdrill.drill.plan import launch_request, new_run_id, plan_drill
    from hangdrill.launchers.kubernetes import ClusterLauncher

    settings = named.scenario.job.kubernetes
    run_dir = Path(settings.mount_path or MOUNT_PATH) / named.name
    plan = plan_drill(
        named.scenario, name=named.name, run_dir=run_dir, python=settings.python, environ={}, run_id=new_run_id()
    )
    return ClusterLauncher(settings).manifest(launch_request(plan, {}))


def _tell(name: str, mistakes: "tuple[object, ...]", version: str | None) -> int:
    """On stderr, since the manifest itself goes to stdout."""
    from hangdrill.launchers.kubernetes_check import Mistake, latest_version
    from hangdrill.model.errors import ExitCode
    from hangdrill.recorder.printable import printable

    for mistake in mistakes:
        assert isinstance(mistake, Mistake)
        hint = f" ({mistake.hint})" if mistake.hint else ""
        text = f"document {mistake.document + 1}: {mistake.path or '(top)'}: {mistake.what}{hint}"
        click.echo(printable(text), err=True)
    against = f"the schemas of Kubernetes {version or latest_version()}"
    if mistakes:
        click.echo(f"{name}: {len(mistakes)} mistake{'' if len(mistakes) == 1 else 's'} by {against}", err=True)
        return int(ExitCode.FAIL)
    click.echo(f"{name}: no mistake by {against}", err=True)
    return int(ExitCode.PASS)
