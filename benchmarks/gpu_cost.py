"""What an armed agent and a running collector cost a healthy job on GPUs.

Three jobs of two ranks live side by side on the same two GPUs: "plain"; "armed", under the agent, a collector beside it
and every operation counted, as in a drill; and "watched", the same without counting (`count = false` in the orders).
They take turns (in changing order), so that each round of the one has a round of the other right beside it; while one
measures, the other waits for a file. Each round first works unmeasured until the clocks are up. "enqueued" is when the
host was done: where that is nearly the whole, the loop waits for Python and not for the GPU. Printed are the medians,
the median of the paired ratios with its 95 % bootstrap interval, and what pairs of plain rounds differ by (noise).
Goal: at most 0.5 % slower.

    python benchmarks/gpu_cost.py --python PYTHON [--pairs 20] [--backend nccl]
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

GOAL_PERCENT = 0.5
START_LIMIT_S = 180
ROUND_LIMIT_S = 60
FAR_S = 3600.0
POLL_S = 0.01
WARM_ROUNDS, MEASURED_ROUNDS = 2, 4
LOADS = ("all_reduce of 8 MB x 8000", "FSDP2 step, 4096 tokens x 40", "FSDP2 step, host-bound x 40")
PLAIN, ARMED, WATCHED = "plain", "armed", "watched"
JOBS = (PLAIN, ARMED, WATCHED)


def worker(scratch: Path, backend: str) -> None:
    """One rank of one job: wait for the word, measure a round, write it down; until told to stop."""
    import torch
    import torch.distributed as dist

    rank, device = int(os.environ["RANK"]), torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group(backend, device_id=device)
    loads = make_loads(device)
    for load in loads.values():
        for _ in range(3):
            load()
    for number in itertools.count():
        (scratch / f"ready.{number}.{rank}").touch()
        if not told_to_go(scratch, number):
            break
        names = list(loads)
        found = timed(loads[names[number % len(names)]])
        if rank == 0:
            write_whole(scratch / f"done.{number}", json.dumps(found))
    dist.destroy_process_group()


def told_to_go(scratch: Path, number: int) -> bool:
    """Wait for the next round; False when there is none."""
    go, stop = scratch / f"go.{number}", scratch / "stop"
    wait_for(lambda: go.exists() or stop.exists(), FAR_S, "the next round")
    return not stop.exists()


def make_loads(device) -> Mapping[str, Callable[[], None]]:
    """Name -> one measured piece of work; "host-bound" waits for Python, the others for the GPU."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    buffer = torch.zeros(2 * 1024 * 1024, device=device)  # 8 MB

    def all_reduce() -> None:
        for _ in range(2000):
            dist.all_reduce(buffer)

    def fsdp2(tokens: int, steps: int) -> Callable[[], None]:
        torch.manual_seed(0)
        width = 1024
        blocks = [
            torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))
            for _ in range(4)
        ]
        model = torch.nn.Sequential(*blocks).to(device)
        for block in model:
            fully_shard(block)
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        inputs = torch.randn(tokens, width, device=device)

        def run() -> None:
            for _ in range(steps):
                optimizer.zero_grad()
                model(inputs).square().mean().backward()
                optimizer.step()

        return run

    return dict(zip(LOADS, (all_reduce, fsdp2(4096, 10), fsdp2(32, 10)), strict=True))


def timed(load: Callable[[], None]) -> tuple[float, float]:
    """Seconds until all was done, and until all was enqueued; both ranks beginning together."""
    import torch
    import torch.distributed as dist

    for _ in range(WARM_ROUNDS):
        load()
    dist.barrier()
    torch.cuda.synchronize()
    began_s = time.perf_counter()
    for _ in range(MEASURED_ROUNDS):
        load()
    enqueued_s = time.perf_counter() - began_s
    torch.cuda.synchronize()
    return time.perf_counter() - began_s, enqueued_s


class Jobs:
    """The jobs and their collectors, as processes."""

    def __init__(self, scratch: Path, python: str, backend: str) -> None:
        self.directories = {name: scratch / name for name in JOBS}
        self.processes: list[subprocess.Popen[bytes]] = []
        self._python, self._backend = python, backend
        self._log = (scratch / "log").open("ab")
        for name, directory in self.directories.items():
            directory.mkdir()
            self._start(name, directory)

    def _start(self, name: str, directory: Path) -> None:
        from hangdrill.launchers.agent_path import prepare_agent_path

        environ = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000"}
        agent = prepare_agent_path(directory / "agent")
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(agent), os.environ.get("PYTHONPATH", "")]))
        environ.pop("HANGDRILL_AGENT", None)
        if name != PLAIN:
            environ["HANGDRILL_AGENT"] = str(self._arm(directory, count=name == ARMED))
        command = [self._python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
        command += ["--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", name, "--local-addr", "127.0.0.1"]
        command += ["-m", "hangdrill.rank", str(Path(__file__).resolve()), "--worker", str(directory)]
        self._run([*command, "--backend", self._backend], environ)

    def _arm(self, directory: Path, *, count: bool) -> Path:
        """The agent's orders, and the collector that watches its sockets."""
        control, sockets, evidence = (directory / word for word in ("control", "sockets", "evidence"))
        for path in (control, sockets, evidence):
            path.mkdir(mode=0o700)
        orders = {
            "schema": "hangdrill.agent/1", "run_id": "benchmark", "control": str(control), "sockets": str(sockets),
            "trigger": "collector", "backend": self._backend, "timeout_s": FAR_S, "exit_wait_s": 5.0,
            "max_hold_s": 1.0, "debug_server_interval_s": 60.0, "fault": {"kind": "none"}, "count": count,
        }  # fmt: skip
        (directory / "agent.json").write_text(json.dumps(orders))
        options = ["--sockets", sockets, "--control", control, "--to", evidence, "--run-id", "benchmark"]
        options += ["--world-size", 2, "--backend", self._backend, "--stall-after-s", FAR_S]
        self._run([sys.executable, "-m", "hangdrill.collector", *map(str, options)], dict(os.environ))
        return directory / "agent.json"

    def _run(self, command: list[str], environ: dict[str, str]) -> None:
        self.processes.append(
            subprocess.Popen(command, env=environ, stdout=self._log, stderr=self._log, start_new_session=True)
        )

    def measure(self, name: str, number: int) -> tuple[float, float]:
        """One round of one job."""
        directory = self.directories[name]
        ready = [directory / f"ready.{number}.{rank}" for rank in (0, 1)]
        wait_for(lambda: all(path.exists() for path in ready) or self._broken(), START_LIMIT_S, f"{name} to be ready")
        (directory / f"go.{number}").touch()
        done = directory / f"done.{number}"
        wait_for(lambda: done.exists() or self._broken(), ROUND_LIMIT_S, f"a round of {name}")
        total_s, enqueued_s = json.loads(done.read_text())
        return total_s, enqueued_s

    def _broken(self) -> bool:
        if any(process.poll() is not None for process in self.processes):
            raise SystemExit("a job or the collector ended early; see the log")
        return False

    def close(self) -> None:
        """Tell all to stop, then end what has not."""
        for directory in self.directories.values():
            (directory / "stop").touch()
        for process in self.processes:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
        self._log.close()


def wait_for(probe: Callable[[], bool], limit_s: float, what: str) -> None:
    deadline_s = time.monotonic() + limit_s
    while not probe():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"waited {limit_s:g} s for {what}")
        time.sleep(POLL_S)


def write_whole(path: Path, text: str) -> None:
    path.with_suffix(".tmp").write_text(text)
    path.with_suffix(".tmp").rename(path)


def report(rounds: list[dict[str, tuple[float, float]]]) -> None:
    """Medians and paired ratios; round n measured load n % 3."""
    for at, load in enumerate(LOADS):
        own = rounds[at :: len(LOADS)]
        plain = [one[PLAIN][0] for one in own]
        noise = [100 * abs(b / a - 1) for a, b in itertools.pairwise(plain)]
        enqueued = statistics.median(100 * one[PLAIN][1] / one[PLAIN][0] for one in own)
        print(
            f"{load}: plain {1000 * statistics.median(plain):.2f} ms; plain rounds differ by"
            f" {statistics.median(noise):.2f} %; enqueued after {enqueued:.0f} % of the time"
        )
        for name in (ARMED, WATCHED):
            times = [one[name][0] for one in own]
            percent = [100 * (b / a - 1) for a, b in zip(plain, times, strict=True)]
            low, high = interval(percent)
            median_ms = 1000 * statistics.median(times)
            print(f"  {name:8} {median_ms:9.2f} ms   {statistics.median(percent):+.2f} % [{low:+.2f}, {high:+.2f}]")


def interval(values: list[float], *, resamples: int = 1000) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(resamples))
    return medians[resamples // 40], medians[-resamples // 40]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--python", default=sys.executable, help="the ranks' Python")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--log", type=Path, help="keep the jobs' output here")
    given = parser.parse_args()
    if given.worker:
        worker(given.worker, given.backend)
        return
    with tempfile.TemporaryDirectory() as scratch:
        jobs = Jobs(Path(scratch), given.python, given.backend)
        try:
            rounds = []
            for number in range(len(LOADS) * (given.pairs + 1)):
                order = random.Random(number).sample(JOBS, len(JOBS))
                rounds.append({name: jobs.measure(name, number) for name in order})
        finally:
            jobs.close()
            if given.log:
                given.log.write_bytes((Path(scratch) / "log").read_bytes())
        print(f"{given.backend}, {given.pairs} pairs; goal: at most +{GOAL_PERCENT} %")
        report(rounds[len(LOADS) :])


if __name__ == "__main__":
    main()
