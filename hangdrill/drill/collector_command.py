"""The collector's command line: beside the controller, on each node, or in a pod. Pure, but for `check_target`."""

import os
import socket
import sys
from pathlib import Path

from hangdrill.delivery import DeliveryOptions, check_delivery
from hangdrill.drill.layout import RunLayout
from hangdrill.drill.plan_values import Plan, dump_place, stall_after_s
from hangdrill.model.errors import UsageError
from hangdrill.model.scenario import LauncherName, Scenario, Trigger

__all__ = ["check_target", "collector_command", "collector_words", "delivery_of"]


def collector_command(plan: Plan, layout: RunLayout) -> tuple[str, ...]:
    """Empty for the roads that show what torch does alone. On nodes, each node process adds its own directories."""
    scenario = plan.scenario
    if scenario.recorder.trigger is not Trigger.COLLECTOR:
        return ()
    if scenario.job.on_nodes:
        own = {
            "--run-id": plan.run_id,
            "--backend": scenario.job.backend,
            "--stall-after-s": str(stall_after_s(scenario)),
            "--native-prefix": plan.dump_prefix,
            **_delivery_words(plan, layout),
        }
        return (sys.executable, "-m", "hangdrill.collector", *(part for option in own.items() for part in option))
    options = {
        "--sockets": str(layout.sockets),
        "--control": str(layout.control),
        "--to": str(layout.evidence),
        "--run-id": plan.run_id,
        "--world-size": str(scenario.job.world_size),
        "--backend": scenario.job.backend,
        "--stall-after-s": str(stall_after_s(scenario)),
        **_delivery_words(plan, layout),
    }
    if scenario.job.launcher is LauncherName.KUBERNETES:
        return _sidecar_command(plan, layout, options)
    options["--parent-pid"] = str(os.getpid())
    native = dump_place(plan, plan.dump_prefix)
    if native is not None:
        options["--native-prefix"] = str(native)
    flags = ("--contained",) if scenario.job.contained else ()
    words = (part for option in options.items() for part in option)
    return (sys.executable, "-m", "hangdrill.collector", *words, *flags)


def check_target(scenario: Scenario) -> None:
    """Raise UsageError for a target that is not there: the collector would end at its start, and no evidence come.

    Under Slurm the collectors are on nodes, which may have mounted what this host has not.
    """
    recorder = scenario.recorder
    if recorder.deliver_to is None or scenario.job.launcher is LauncherName.SLURM:
        return
    try:
        check_delivery(DeliveryOptions(url=recorder.deliver_to, within_s=recorder.deliver_within_s))
    except UsageError as error:
        raise UsageError(error.what, where="recorder.deliver_to", next_step=error.next_step) from error


def delivery_of(scenario: Scenario) -> DeliveryOptions:
    """What the collector delivers, and whom it tells."""
    url = scenario.recorder.deliver_to
    if url is not None and "://" not in url:
        url = str(Path(url).absolute())
    return DeliveryOptions(url=url, within_s=scenario.recorder.deliver_within_s, incident=scenario.incident)


def _delivery_words(plan: Plan, layout: RunLayout) -> dict[str, str]:
    """Hooks are in a file, for a webhook's URL is a secret."""
    options = delivery_of(plan.scenario)
    words = {"--job": plan.name, "--started-ns": str(plan.created_ns)} if options.wanted else {}
    if options.url is not None:
        words |= {"--deliver-to": options.url, "--deliver-within-s": f"{options.within_s:g}"}
    return words | ({"--incident": str(layout.hooks)} if options.incident.has_hook else {})


def collector_words(plan: Plan, node: int) -> tuple[str, ...]:
    """The collector's command on a node, without its interpreter. One host calls the hooks: a hang is one incident.
    Hosts may have the same name, so the node is in the one under which its evidence is delivered."""
    words = list(plan.collector_command[1:])
    if "--deliver-to" in words:
        words += ["--host", f"{socket.gethostname()}.node{node}"]
    if node != 0 and "--incident" in words:
        at = words.index("--incident")
        del words[at : at + 2]
    return tuple(words)


def _sidecar_command(plan: Plan, layout: RunLayout, options: dict[str, str]) -> tuple[str, ...]:
    """In the ranks' pod: it shares their pids and their volumes, and has no parent to follow."""
    job = plan.scenario.job
    on_volume = job.volume_of(plan.dump_prefix) is not None or job.kubernetes.empty_dir_of(plan.dump_prefix) is not None
    if on_volume or dump_place(plan, plan.dump_prefix) is not None:
        options["--native-prefix"] = plan.dump_prefix
    python = sys.executable if job.kubernetes.engine == "podman" else job.kubernetes.python
    own = ("--log", str(layout.collector_log), "--exit-file", str(layout.collector_exit), "--")
    words = (part for option in options.items() for part in option)
    return (python, "-m", "hangdrill.collector.sidecar", *own, *words)
