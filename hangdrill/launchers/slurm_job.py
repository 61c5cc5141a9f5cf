"""A drill's job under Slurm, from sbatch until nothing of it is left.

What the nodes report on the shared file system is looked at first; slurmctld is asked once a second at most, for it
serves a whole cluster. Once the job is over its nodes are out of sight: a second, small job looks there again.
"""

import json
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from hangdrill.launchers import slurm_look
from hangdrill.launchers.protocol import LaunchRequest, OutOfReach
from hangdrill.launchers.slurm_commands import JobState, Slurm
from hangdrill.launchers.slurm_script import job_name
from hangdrill.model.errors import MachineError
from hangdrill.model.run import Leftover, NodeStatus
from hangdrill.model.scenario import Teardown

__all__ = ["PRIVATE_TMP", "SlurmJob"]

LOOK_S, ASK_S = 0.2, 1.0
END_S = 30.0
"""The node processes end their part themselves, if they are told to and can hear it."""
GONE_S = 120.0
"""After scancel: Slurm's KillWait is 30 s by default, and then an epilog may run."""
NODE_LOOK_S = 120.0
"""The second job waits for the nodes to be free again."""
PRIVATE_TMP = "job_container/tmpfs"
_PRIVATE = ("/tmp", "/dev/shm")


class SlurmJob:
    """All methods may be repeated."""

    def __init__(self, slurm: Slurm, job: str, request: LaunchRequest, *, private_tmp: bool) -> None:
        self._slurm = slurm
        self._job = job
        self._request = request
        self._private_tmp = private_tmp
        self._nodes = Path(request.run_dir) / "nodes"
        self._state = JobState(state="PENDING")
        self._exit_code: int | None = None
        self._gone = self._torn_down = self._wiped = False
        self._next_look_s = self._next_ask_s = 0.0
        self._looked: dict[str, dict[str, Path] | str] = {}
        self._looks = 0
        self.look_deadline_s = NODE_LOOK_S

    def poll(self) -> int | None:
        """torchrun's exit code, as the nodes report it; else how Slurm says that the job ended."""
        now_s = time.monotonic()
        if self._exit_code is None and now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_S
            self._exit_code = self._reported_code()
            if self._exit_code is None and self._asked_state().over:
                reported = self._reported_code()
                self._exit_code = self._state.exit_code if reported is None else reported
        return self._exit_code

    def waiting(self) -> str:
        """Why the job has not begun, in Slurm's word; "" once it has."""
        state = self._asked_state()
        return (state.reason or state.state.lower()) if state.waits else ""

    def signal(self, number: signal.Signals) -> None:
        """To every process of the job's steps."""
        if not self._gone:
            self._slurm.signal(self._job, number)
            self._next_ask_s = 0.0

    def pids(self) -> tuple[int, ...]:
        """None on this host."""
        return ()

    def close(self) -> None:
        """From now on the nodes are looked at anew. For node-tmp-wipe the job must leave Slurm, which then wipes."""
        self._torn_down = True
        if self._wiped and not self._wait(self._has_left, END_S):
            self._cancel()

    def remove(self) -> None:
        """scancel, and wait until the job has left the queue. What a node process could not end itself, because it was
        killed, the second job ends."""
        self._torn_down = True
        if not self._wait(self._has_left, 0 if self._exit_code is None else END_S):
            self._cancel()
        finished = all(report is not None and report.state == "finished" for report in self._reports())
        if self._gone and self._asked_state().nodes and not finished and not self._looked:
            self._look("")

    def undergo(self, teardown: Teardown) -> None:
        """scheduler-cancel is its own. node-tmp-wipe is Slurm's, and comes when the job has ended."""
        self._torn_down = True
        self._looked.clear()
        self._wiped |= teardown is Teardown.NODE_TMP_WIPE
        if teardown is Teardown.SCHEDULER_CANCEL:
            self._cancel()

    def locate(self, path: str) -> Path | None:
        """A copy: of the node's own process until a teardown, of the second job afterwards."""
        prefix, rank = _split(path)
        if not rank:
            return None
        if not self._torn_down:
            copies = sorted(self._nodes.glob(f"*/native/{Path(path).name}"))
            return copies[0] if copies else None
        if not self._wait(self._has_left, GONE_S):
            raise OutOfReach("the job does not leave Slurm's queue")
        found = self._look(prefix)
        if isinstance(found, str):
            raise OutOfReach(found)
        return found.get(Path(path).name)

    def place_of(self, path: str) -> str:
        """What a directory of the node's own is, in words."""
        root = next((root for root in _PRIVATE if path.startswith(f"{root}/")), "") if self._private_tmp else ""
        return f"the job's private {root}, which Slurm's {PRIVATE_TMP} deletes with the job" if root else ""

    def leftovers(self) -> tuple[Leftover, ...]:
        """Jobs of this run that are still in the queue."""
        return tuple(
            Leftover(what="job", name=f"{found.job} ({found.state})")
            for found in self._slurm.jobs(self._request.run_id)
        )

    def _cancel(self) -> None:
        """scancel, again where slurmctld did not take it, until the job has left. MachineError when it never did."""
        problems: list[MachineError] = []
        told = False

        def probe() -> bool:
            nonlocal told
            if not told:
                try:
                    self._slurm.cancel(self._job)
                    told = True
                except MachineError as error:
                    problems.append(error)
            return self._has_left()

        if not self._wait(probe, GONE_S) and not told:
            raise problems[-1]

    def _reports(self) -> list[NodeStatus | None]:
        return [_read_status(self._nodes / f"{node}.json") for node in range(self._request.nnodes)]

    def _reported_code(self) -> int | None:
        """Of torchrun, once every node is done."""
        reports = self._reports()
        if any(report is None or report.state != "finished" for report in reports):
            return None
        codes = [report.torchrun for report in reports if report is not None and report.torchrun is not None]
        return next((code for code in codes if code), 0 if codes else 1)

    def _asked_state(self) -> JobState:
        """slurmctld's word, or the last one that it gave: it may be busy, or restarted."""
        now_s = time.monotonic()
        if now_s >= self._next_ask_s and not self._state.over:
            self._next_ask_s = now_s + ASK_S
            try:
                found = self._slurm.state(self._job)
            except MachineError:
                return self._state
            if found is None:
                found = JobState(state="COMPLETED", exit_code=-int(signal.SIGKILL))  # forgotten: ended long ago
            nodes = found.nodes or self._state.nodes
            self._state = msgspec.structs.replace(found, nodes=nodes)
        return self._state

    def _has_left(self) -> bool:
        if not self._gone:
            self._asked_state()
            try:
                self._gone = not any(found.job == self._job for found in self._slurm.jobs(self._request.run_id))
            except MachineError:
                return False  # slurmctld may be busy or restarted; every wait for this has its deadline
            if self._gone:
                self._next_ask_s = self._next_look_s = 0.0
                self._looked.clear()
        return self._gone

    def _look(self, prefix: str) -> dict[str, Path] | str:
        """Name -> copy, of all files on the job's nodes; or why nobody could look. Once for a prefix."""
        if prefix not in self._looked:
            try:
                self._looked[prefix] = self._look_on_nodes(prefix)
            except MachineError as error:
                self._looked[prefix] = error.what
        return self._looked[prefix]

    def _look_on_nodes(self, prefix: str) -> dict[str, Path] | str:
        nodes = self._asked_state().nodes
        if not nodes:
            return "Slurm does not tell on which nodes the job ran"
        self._looks += 1
        to = self._nodes / f"look-{self._looks}"
        count, run_id = str(self._request.nnodes), self._request.run_id
        words = (
            *self._request.sbatch,
            f"--job-name={job_name(run_id)}",
            f"--nodes={count}",
            f"--ntasks={count}",
            "--ntasks-per-node=1",
            f"--nodelist={nodes}",
            "--time=5",
            "--mpi=none",
            "--input=none",
            "--quiet",
            *(sys.executable, "-I", str(Path(slurm_look.__file__).resolve()), str(to), run_id, prefix),
        )
        try:
            told = self._slurm.on_nodes(words, deadline_s=self.look_deadline_s)
        finally:
            self._end_looks()
        answers = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
        found = {name: to / answer["node"] / name for answer in answers for name in answer["files"]}
        if len(answers) < self._request.nnodes:
            return f"only {len(answers)} of {count} nodes could be looked at"
        return found

    def _end_looks(self) -> None:
        """No second job is left, also one that never came to its turn."""

        def gone() -> bool:
            left = [found for found in self._slurm.jobs(self._request.run_id) if found.job != self._job]
            self._slurm.cancel(*(found.job for found in left if found.state != "COMPLETING"))
            return not left

        self._wait(gone, GONE_S)

    def _wait(self, probe: Callable[[], bool], deadline_s: float) -> bool:
        """Whether it came true in time."""
        end_s = time.monotonic() + deadline_s
        while not (true := probe()) and time.monotonic() < end_s:
            time.sleep(LOOK_S)
        return true


def _split(path: str) -> tuple[str, str]:
    """A native dump's prefix and rank; no rank when it is none."""
    found = re.fullmatch(r"(.*\D)(\d+)", path)
    return (found[1], found[2]) if found else (path, "")


def _read_status(path: Path) -> NodeStatus | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeStatus)
    except (OSError, msgspec.DecodeError):
        return None
