"""The few commands of Slurm that a drill needs. None needs accounting; each has a deadline, and one error class.

Only jobs that carry the run's name are ever cancelled.
"""

import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence

import msgspec

from hangdrill.launchers.slurm_script import job_name, submit_environ
from hangdrill.model.errors import MachineError

__all__ = ["PROGRAMS", "SUBMIT", "JobState", "Queued", "Slurm", "parse_job"]

PROGRAMS = ("sbatch", "squeue", "scancel", "srun", "scontrol", "sinfo")
SUBMIT = ("sbatch", "--parsable")
CALL_DEADLINE_S = 60.0
KNOCK_DEADLINE_S = 10.0
NO_OUTPUT_FILE = "53"
"""No signal, though it stands in a signal's place: the job's log or directory could not be opened on the node."""
NO_SUCH_JOB = "Invalid job id"
NOT_NOW = "Requested node configuration is not available"
OVER_ALREADY = (NO_SUCH_JOB, "already completing or completed", "not active")
OVER = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
})  # fmt: skip
WAITING = frozenset({"CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
GONE_BY = {"CANCELLED": signal.SIGTERM, "TIMEOUT": signal.SIGTERM, "PREEMPTED": signal.SIGTERM}
UNUSABLE = ("down", "drain", "fail", "unk", "maint", "inval", "future", "power_down", "powered_down")


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """A job as slurmctld knows it. nodes: their names in Slurm's short form, "" before it has any."""

    state: str
    reason: str = ""
    nodes: str = ""
    exit_code: int = 0
    """Negative: ended by that signal."""

    @property
    def waits(self) -> bool:
        """Whether it has not begun yet."""
        return self.state in WAITING

    @property
    def over(self) -> bool:
        """Whether it has ended; its nodes may still be cleaning up."""
        return self.state in OVER


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a drill in the queue: waiting, running or being ended."""

    job: str
    run_id: str
    comment: str
    state: str


class Slurm:
    """The commands, as the environment finds them (PATH, SLURM_CONF)."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._job_environ = submit_environ(environ)
        # Without hangdrill's marks: these commands are the controller's, not processes of the job.
        self._environ = {key: value for key, value in self._job_environ.items() if not key.startswith("HANGDRILL_")}

    def check(self) -> None:
        """MachineError when a command is missing or no slurmctld answers."""
        for program in PROGRAMS:
            if shutil.which(program, path=self._environ.get("PATH")) is None:
                raise MachineError(
                    f"Slurm's {program} is not on the PATH",
                    where="job.launcher",
                    next_step="run hangdrill where jobs are submitted, with Slurm's commands on the PATH",
                )
        self._run("scontrol", "ping", what="slurmctld does not answer")

    def answers(self) -> bool:
        """Whether there is a Slurm at all; quick when there is none."""
        if any(shutil.which(program, path=self._environ.get("PATH")) is None for program in PROGRAMS):
            return False
        try:
            self._run("scontrol", "ping", what="", deadline_s=KNOCK_DEADLINE_S)
        except MachineError:
            return False
        return True

    def config(self) -> dict[str, str]:
        """What `scontrol show config` says."""
        lines = self._run("scontrol", "show", "config", what="Slurm does not tell its configuration").splitlines()
        pairs = (line.partition("=") for line in lines if "=" in line)
        return {key.strip(): value.strip() for key, _, value in pairs}

    def usable_nodes(self, site_options: Sequence[str]) -> int:
        """How many nodes of the partition asked for are neither down nor drained."""
        partition = next((o.partition("=")[2] for o in reversed(site_options) if o.startswith("--partition=")), "")
        words = [f"--partition={partition}"] if partition else []
        told = self._run("sinfo", "--noheader", "--Node", "--format=%N %T", *words, what="the nodes cannot be listed")
        states = (line.split() for line in told.splitlines() if line.strip())
        return len({name for name, state in states if not state.lower().startswith(UNUSABLE)})

    def try_out(self, script: str) -> None:
        """MachineError with sbatch's own words when it would not take this script. Submits nothing."""
        try:
            self._run("sbatch", "--test-only", what="sbatch refuses the job", stdin=script)
        except MachineError as error:
            if NOT_NOW not in error.what:  # which it also says while nodes are drained: then the job waits
                raise

    def submit(self, script_path: str) -> str:
        """The job's number."""
        told = self._run(*SUBMIT, script_path, what="sbatch refuses the job", environ=self._job_environ)
        return told.strip().splitlines()[-1].partition(";")[0]

    def state(self, job: str) -> JobState | None:
        """None when slurmctld does not know the job (any more)."""
        try:
            told = self._run("scontrol", "--oneliner", "show", "job", job, what="Slurm does not tell the job's state")
        except MachineError as error:
            if NO_SUCH_JOB in error.what:
                return None
            raise
        return parse_job(told)

    def jobs(self, run_id: str = "") -> tuple[Queued, ...]:
        """The jobs of one run, or of every drill of this user, that are in the queue."""
        names = [f"--name={job_name(run_id)}"] if run_id else []
        told = self._run("squeue", "--me", "--noheader", "--format=%i|%T|%j|%k", *names, what="squeue fails")
        found = (line.split("|", 3) for line in told.splitlines() if line.count("|") >= 3)
        return tuple(
            Queued(job=job, state=state, run_id=name.removeprefix(job_name("")), comment=comment)
            for job, state, name, comment in found
            if name.startswith(job_name(""))
        )

    def signal(self, job: str, number: signal.Signals) -> None:
        """To every process of the job's steps; nothing happens when it is over."""
        self._cancel(f"--signal={number.name.removeprefix('SIG')}", job)

    def cancel(self, *jobs: str) -> None:
        """SIGTERM at once, SIGKILL after Slurm's KillWait; a job that waits is taken from the queue."""
        if jobs:
            self._cancel(*jobs)

    def on_nodes(self, words: Sequence[str], *, deadline_s: float) -> str:
        """The output of a small job of its own; MachineError when it does not run, or not in time."""
        return self._run("srun", *words, what="no job can look at the nodes", deadline_s=deadline_s)

    def _cancel(self, *words: str) -> None:
        try:
            self._run("scancel", *words, what="scancel fails")
        except MachineError as error:
            if not any(words in error.what for words in OVER_ALREADY):
                raise

    def _run(
        self,
        *words: str,
        what: str,
        stdin: str = "",
        deadline_s: float = CALL_DEADLINE_S,
        environ: Mapping[str, str] | None = None,
    ) -> str:
        problem: BaseException | None = None
        try:
            done = subprocess.run(
                words,
                env=self._environ if environ is None else environ,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=deadline_s,
                check=False,
            )
            if done.returncode == 0:
                return done.stdout
            said = _last_words(done.stderr or done.stdout)
        except subprocess.TimeoutExpired as error:
            problem, said = error, f"{words[0]} does not answer within {deadline_s:g} s"
        except OSError as error:
            problem, said = error, f"{words[0]}: {error.strerror or error}"
        raise MachineError(
            f"{what}: {said}",
            where="Slurm",
            next_step=f"try `{shlex.join(words)}` by hand, and ask whoever runs the cluster",
        ) from problem


def parse_job(told: str) -> JobState:
    """One line of `scontrol --oneliner show job`."""
    state = _field(told, "JobState")
    code, _, number = _field(told, "ExitCode").partition(":")
    if number == NO_OUTPUT_FILE:
        code, number = NO_OUTPUT_FILE, "0"
    exit_code = -int(number) if number.isdecimal() and int(number) else int(code) if code.isdecimal() else 0
    if exit_code == 0 and state in OVER - {"COMPLETED"}:
        exit_code = -int(GONE_BY.get(state, signal.SIGKILL))
    nodes, reason = _field(told, "NodeList"), _field(told, "Reason")
    return JobState(
        state=state, reason="" if reason == "None" else reason, nodes=nodes.replace("(null)", ""), exit_code=exit_code
    )


def _field(told: str, name: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S*)", told)
    return found[1] if found else ""


def _last_words(text: str) -> str:
    """The error lines of a command of Slurm, without its own name in front of each."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line] or lines[-1:]
    return "; ".join(line.partition("error: ")[2] or line for line in errors[-2:]) or "no output"
