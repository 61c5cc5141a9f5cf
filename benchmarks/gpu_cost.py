"""What an armed agent and a running collector cost a healthy job on GPUs.

Jobs of two ranks live side by side on the same two GPUs and take turns, in changing order, many times: each short
round of the one has a round of every other right beside it. Who does not measure blocks in a FIFO, its collector is
stopped, and the enqueueing thread of a rank has the same core in every job.

- plain: no agent. plain-2: another such job, as a control: what it differs from plain by is noise.
- watched: the agent as a long job carries it (`"count": false`: no hooks on healthy groups), and a collector.
- alone: the same job, its collector stopped: what is left between the two is the collector's looks.
- drill: the agent as a drill carries it, every operation counted by a hook, and a collector.

Printed of each load: the median, the median of the paired ratios to plain with its 95 % bootstrap interval, and which
part of the time the host waits for the GPU: where that is near nothing, the loop waits for Python.
Goal: watched at most 0.5 % slower.

    python benchmarks/gpu_cost.py --python PYTHON [--pairs 20] [--limit-s 120] [--json FILE] [--backend nccl]
    python benchmarks/gpu_cost.py --read FILE...      # the rounds of several runs together
"""

import argparse
import contextlib
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

GOAL_PERCENT = 0.5
START_LIMIT_S, ROUND_LIMIT_S, END_LIMIT_S = 180.0, 60.0, 30.0
SETTLE_S = 0.05
FAR_S = 3600.0
WORKER = Path(__file__).resolve().with_name("gpu_cost_worker.py")
LOADS = {
    "train": (25, "all_reduce of 8 MB after a matrix product, x 1250"),
    "fsdp2": (2, "FSDP2 step of 8192 tokens, x 8"),
    "bare": (12, "all_reduce of 8 MB, nothing between, x 6000"),
    "fsdp2-host": (4, "FSDP2 step of 32 tokens, x 16"),
}
"""Load -> batches a round, and what it is."""
PLAIN, AGAIN, WATCHED, ALONE, DRILL = "plain", "plain-2", "watched", "alone", "drill"
VARIANTS = (PLAIN, AGAIN, WATCHED, ALONE, DRILL)
JOB_OF = {ALONE: WATCHED}
Round = dict[str, dict[str, float]]


class Job:
    """torchrun with two ranks, and the collector if it has one."""

    def __init__(self, name: str, directory: Path, python: str, backend: str) -> None:
        self.name = name
        self.collector: subprocess.Popen[bytes] | None = None
        self._directory, self._backend = directory, backend
        directory.mkdir()
        paths = [directory / word for word in ("go.0", "go.1", "done")]
        for path in paths:
            os.mkfifo(path)
        *self._go, self._done = (os.open(path, os.O_RDWR) for path in paths)
        self._log = (directory / "log").open("wb")
        self._heard = b""
        environ = self._environ()
        if name != PLAIN and name != AGAIN:
            environ["HANGDRILL_AGENT"] = str(self._arm())
        command = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
        command += ["--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", name, "--local-addr", "127.0.0.1"]
        self.process = self._started([*command, "-m", "hangdrill.rank", WORKER, directory, backend], environ)

    def _environ(self) -> dict[str, str]:
        from hangdrill.launchers.agent_path import prepare_agent_path

        environ = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000"}
        agent = prepare_agent_path(self._directory / "agent")
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(agent), os.environ.get("PYTHONPATH", "")]))
        environ.pop("HANGDRILL_AGENT", None)
        return environ

    def _arm(self) -> Path:
        """The agent's orders, and the collector that watches its sockets."""
        control, sockets, evidence = (self._directory / word for word in ("control", "sockets", "evidence"))
        for path in (control, sockets, evidence):
            path.mkdir(mode=0o700)
        orders = {
            "schema": "hangdrill.agent/1", "run_id": "benchmark", "control": str(control), "sockets": str(sockets),
            "trigger": "collector", "backend": self._backend, "timeout_s": FAR_S, "exit_wait_s": 5.0,
            "max_hold_s": 1.0, "debug_server_interval_s": 60.0, "fault": {"kind": "none"},
            "count": self.name == DRILL,
        }  # fmt: skip
        (self._directory / "agent.json").write_text(json.dumps(orders))
        options = ["--sockets", sockets, "--control", control, "--to", evidence, "--run-id", "benchmark"]
        options += ["--world-size", 2, "--backend", self._backend, "--stall-after-s", FAR_S]
        self.collector = self._started([sys.executable, "-m", "hangdrill.collector", *options], dict(os.environ))
        return self._directory / "agent.json"

    def _started(self, command: list[object], environ: dict[str, str]) -> "subprocess.Popen[bytes]":
        words = [str(word) for word in command]
        return subprocess.Popen(words, env=environ, stdout=self._log, stderr=self._log, start_new_session=True)

    def hear(self, limit_s: float, what: str) -> dict[str, float]:
        """The next answer of rank 0."""
        deadline_s = time.monotonic() + limit_s
        while b"\n" not in self._heard:
            if select.select([self._done], [], [], 0.5)[0]:
                self._heard += os.read(self._done, 4096)
            elif self.process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(f"{self.name}: no answer within {limit_s:g} s to {what}\n{self.last_words()}")
        line, _, self._heard = self._heard.partition(b"\n")
        found: dict[str, float] = json.loads(line)
        return found

    def measure(self, load: str, *, watched: bool) -> dict[str, float]:
        """One round."""
        with self._watched() if watched else contextlib.nullcontext():
            for go in self._go:
                os.write(go, f"{load} {LOADS[load][0]}\n".encode())
            return self.hear(ROUND_LIMIT_S, f"a round of {load}")

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """The collector runs, and has found that it does."""
        if self.collector is None:
            yield
            return
        self.collector.send_signal(signal.SIGCONT)
        time.sleep(SETTLE_S)
        try:
            yield
        finally:
            self.rest()

    def rest(self) -> None:
        """Stop the collector while other jobs measure."""
        if self.collector is not None:
            if self.collector.poll() is not None:
                raise SystemExit(f"{self.name}: the collector ended early\n{self.last_words()}")
            self.collector.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        """End the job, and what does not end."""
        for descriptor in (*self._go, self._done):
            os.close(descriptor)
        if self.collector is not None:
            self.collector.send_signal(signal.SIGCONT)
        for process in filter(None, (self.process, self.collector)):
            try:
                process.wait(timeout=END_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._log.close()

    def last_words(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-3000:]


def measure_all(jobs: dict[str, Job], pairs: int, limit_s: float) -> dict[str, list[Round]]:
    """Load -> rounds; the first of each is left out. Ends early, with whole rounds, when the limit is over."""
    rounds: dict[str, list[Round]] = {load: [] for load in LOADS}
    deadline_s = time.monotonic() + limit_s
    dice = random.Random(1)
    for _ in range(pairs + 1):
        if time.monotonic() > deadline_s:
            break
        for load, found in rounds.items():
            order = dice.sample(VARIANTS, len(VARIANTS))
            found.append({name: jobs[JOB_OF.get(name, name)].measure(load, watched=name != ALONE) for name in order})
    return {load: found[1:] for load, found in rounds.items()}


def report(rounds: dict[str, list[Round]]) -> None:
    """Medians and paired ratios."""
    for load, found in rounds.items():
        waited = statistics.median(100 * one[PLAIN]["waited_s"] / one[PLAIN]["total_s"] for one in found)
        print(f"{load}: {LOADS[load][1]}; {len(found)} pairs; the host waits for the device {waited:.0f} % of the time")
        for name in VARIANTS:
            base = WATCHED if name == ALONE else PLAIN
            percent = [100 * (one[name]["total_s"] / one[base]["total_s"] - 1) for one in found]
            if name == ALONE:
                percent = [100 * (one[WATCHED]["total_s"] / one[ALONE]["total_s"] - 1) for one in found]
            median_ms = 1000 * statistics.median(one[name]["total_s"] for one in found)
            low, high = interval(percent)
            versus = {PLAIN: "", ALONE: "  (watched against it)"}.get(name, "")
            said = "" if name == PLAIN else f"   {statistics.median(percent):+.2f} % [{low:+.2f}, {high:+.2f}]"
            print(f"  {name:8} {median_ms:9.2f} ms{said}{versus}")


def interval(values: list[float], *, resamples: int = 1000) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(resamples))
    return medians[resamples // 40], medians[-resamples // 40]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the ranks' Python")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--limit-s", type=float, default=FAR_S, help="begin no pair after this many seconds")
    parser.add_argument("--json", type=Path, help="keep every round here")
    parser.add_argument("--read", type=Path, nargs="+", help="print what these files of rounds say, and run nothing")
    given = parser.parse_args()
    if given.read:
        files = [json.loads(path.read_text()) for path in given.read]
        report({load: [one for rounds in files for one in rounds[load]] for load in LOADS})
        return
    with tempfile.TemporaryDirectory() as scratch:
        jobs: dict[str, Job] = {}
        try:
            for name in (PLAIN, AGAIN, WATCHED, DRILL):
                jobs[name] = Job(name, Path(scratch, name), given.python, given.backend)
            for job in jobs.values():
                job.hear(START_LIMIT_S, "whether it is ready")
                job.rest()
            rounds = measure_all(jobs, given.pairs, given.limit_s)
        finally:
            for job in jobs.values():
                job.close()
    if given.json:
        given.json.write_text(json.dumps(rounds))
    print(f"{given.backend}; goal: watched at most +{GOAL_PERCENT} %")
    report(rounds)


if __name__ == "__main__":
    main()
