"""The roads by which evidence leaves the ranks: hangdrill's collector, or what torch does alone.

A road says when the hang was noticed and when its evidence is in. It decides nothing and ends nothing but its own
collector.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from hangdrill.collector.native import copy_native, is_whole
from hangdrill.drill.collector_process import start_collector
from hangdrill.drill.layout import RunLayout
from hangdrill.drill.plan_values import Plan
from hangdrill.drill.procfs import CONTROLLER_VARIABLE, RUN_ID_VARIABLE
from hangdrill.drill.waiting import Waiter
from hangdrill.model.run import Manifest
from hangdrill.model.scenario import LauncherName, Teardown, Trigger

__all__ = ["CollectorRoad", "NativeRoad", "Notice", "Road", "SidecarRoad", "make_road", "read_manifest"]

TERMINATE_S = 2.0


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """How a hang was noticed. by: collector, native-file, job-ended or deadline. noticed_ns: by whoever noticed it."""

    by: str
    why: str
    noticed_ns: int | None = None


class Road(Protocol):
    """One road; `start` comes before the job's, and `finish` always comes last."""

    def start(self, environ: Mapping[str, str]) -> tuple[int, ...]:
        """Start what must run beside the ranks; its pids."""

    def noticed(self) -> Notice | None:
        """The hang, once it is noticed."""

    def is_complete(self, *, job_over: bool) -> bool:
        """Whether all evidence that this road brings is in."""

    def finish(self, waiter: Waiter, deadline_s: float) -> str:
        """Store what is left to store and end what `start` started; a remark, or nothing. Safe to repeat."""


def read_manifest(layout: RunLayout) -> Manifest | None:
    """The manifest as it stands; None when there is none yet, or it is damaged."""
    try:
        return msgspec.json.decode(layout.manifest.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None


class CollectorRoad:
    """Hangdrill's collector, a process of its own."""

    def __init__(self, plan: Plan, layout: RunLayout) -> None:
        self._plan = plan
        self._layout = layout
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, environ: Mapping[str, str]) -> tuple[int, ...]:
        """MachineError when the system refuses."""
        marks = {key: self._plan.environment[key] for key in (RUN_ID_VARIABLE, CONTROLLER_VARIABLE)}
        self._process = start_collector(
            self._plan.collector_command,
            environ={**environ, **marks},
            cwd=self._layout.root,
            log_path=self._layout.collector_log,
        )
        return (self._process.pid,)

    def noticed(self) -> Notice | None:
        """What the collector wrote; the manifest is renamed into place, so it is whole or absent."""
        manifest = read_manifest(self._layout)
        if manifest is None or manifest.noticed_ns is None:
            return None
        return Notice(by="collector", why=manifest.notice, noticed_ns=manifest.noticed_ns)

    def is_complete(self, *, job_over: bool) -> bool:
        """The collector's word. One that is gone will bring nothing more."""
        manifest = read_manifest(self._layout)
        return (manifest is not None and manifest.complete) or self._is_gone()

    def finish(self, waiter: Waiter, deadline_s: float) -> str:
        """The file `teardown` tells the collector to finish; one that does not is ended."""
        process = self._process
        if process is None:
            return ""
        if waiter.until(process.poll, deadline_s=deadline_s) is None:
            self._signal(signal.SIGTERM)
            if waiter.until(process.poll, deadline_s=TERMINATE_S) is None:
                self._signal(signal.SIGKILL)
                waiter.until(process.poll, deadline_s=TERMINATE_S)
            return f"the collector did not finish within {deadline_s:g} s and was ended"
        return "" if process.returncode == 0 else f"the collector ended with {process.returncode}: see collector.log"

    def _is_gone(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _signal(self, number: signal.Signals) -> None:
        """To the collector's whole session: it may have started py-spy."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


class NativeRoad:
    """What torch does alone, or its debug server: files appear where TORCH_FR_DUMP_TEMP_FILE says, or they do not."""

    def __init__(self, plan: Plan, layout: RunLayout) -> None:
        self._plan = plan
        self._layout = layout
        self.locate: Callable[[str], Path | None] = Path
        """Where this host finds a file of the job."""
        self._before = self._native_files()
        self._copied = False

    def start(self, environ: Mapping[str, str]) -> tuple[int, ...]:
        """Nothing runs beside the ranks; files that were there before are not this drill's."""
        self._before = self._native_files()
        return ()

    def noticed(self) -> Notice | None:
        """The first native file that is new or was written anew."""
        fresh = [rank for rank, facts in self._native_files().items() if self._before.get(rank) != facts]
        return Notice(by="native-file", why=f"rank {fresh[0]} wrote a dump") if fresh else None

    def is_complete(self, *, job_over: bool) -> bool:
        """Only the job's end proves that torch writes no further file, nor one file again. But an oom-kill is done to a
        job that lives, and then a whole dump of every rank must do."""
        if job_over or Teardown.OOM_KILL not in self._plan.scenario.expect.survives:
            return job_over
        places = (self.locate(f"{self._plan.dump_prefix}{rank}") for rank in self._plan.expected_ranks)
        return all(place is not None and is_whole(place) for place in places)

    def finish(self, waiter: Waiter, deadline_s: float) -> str:
        """Copy the files as they are, with their hashes, into the evidence."""
        if not self._copied:
            copy_native(
                self._plan.dump_prefix,
                self._plan.expected_ranks,
                self._layout.evidence,
                run_id=self._plan.run_id,
                road=self._plan.scenario.recorder.trigger.value,
                locate=self.locate,
            )
            self._copied = True
        return ""

    def _native_files(self) -> dict[int, tuple[int, int, int]]:
        found: dict[int, tuple[int, int, int]] = {}
        for rank in self._plan.expected_ranks:
            place = self.locate(f"{self._plan.dump_prefix}{rank}")
            with contextlib.suppress(OSError):
                if place is None:
                    continue
                facts = place.stat()
                found[rank] = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        return found


class SidecarRoad:
    """Hangdrill's collector where the job's own launcher starts it: in the pod, beside the ranks.

    All that is known of it is what it writes into the run directory.
    """

    def __init__(self, layout: RunLayout) -> None:
        self._layout = layout
        self.pod_is_gone: Callable[[], bool] = lambda: False

    def start(self, environ: Mapping[str, str]) -> tuple[int, ...]:
        """The launcher's part. The file into which its output goes must be there before it is mounted."""
        self._layout.collector_log.touch(mode=0o600)
        return ()

    def noticed(self) -> Notice | None:
        """What the collector wrote."""
        manifest = read_manifest(self._layout)
        if manifest is None or manifest.noticed_ns is None:
            return None
        return Notice(by="collector", why=manifest.notice, noticed_ns=manifest.noticed_ns)

    def is_complete(self, *, job_over: bool) -> bool:
        """The collector's word. One that is done will bring nothing more."""
        manifest = read_manifest(self._layout)
        return (manifest is not None and manifest.complete) or self._exit_code() is not None

    def finish(self, waiter: Waiter, deadline_s: float) -> str:
        """The file `teardown` tells it to finish. One whose pod was deleted before that says nothing any more."""
        gone = self.pod_is_gone()
        code = self._exit_code() if gone else waiter.until(self._exit_code, deadline_s=deadline_s)
        if code is None:
            return "" if gone else f"the collector did not say within {deadline_s:g} s that it is done"
        return "" if code == 0 else f"the collector ended with {code}: see collector.log"

    def _exit_code(self) -> int | None:
        try:
            return int(self._layout.collector_exit.read_text())
        except (OSError, ValueError):
            return None


def make_road(plan: Plan, layout: RunLayout) -> Road:
    """The road that the scenario names."""
    if plan.scenario.recorder.trigger is Trigger.COLLECTOR and plan.scenario.job.launcher is LauncherName.KUBERNETES:
        return SidecarRoad(layout)
    if plan.scenario.recorder.trigger is Trigger.COLLECTOR and plan.scenario.job.on_nodes:
        from hangdrill.drill.nodes_road import NodesRoad

        return NodesRoad(plan, layout)
    if plan.scenario.recorder.trigger is Trigger.COLLECTOR:
        return CollectorRoad(plan, layout)
    return NativeRoad(plan, layout)
