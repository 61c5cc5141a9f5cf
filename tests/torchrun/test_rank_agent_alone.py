"""The agent in a job of one rank, without torchrun: groups of every origin, the places of faults, the control plane."""

import json
import os
import pickle
import stat
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.torchrun

START = """
import os, pickle, sys
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
def keep():
    with open(os.environ["KEEP"], "wb") as file:
        file.write(_dump_fr_trace(True, False, False))
tensor = torch.ones(4)
"""


class Zygote:
    """Forks a process with torch in it for each run, see rank_zygote.py."""

    def __init__(self):
        command = [sys.executable, str(Path(__file__).with_name("rank_zygote.py"))]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)

    def run(self, script, environ):
        out = script.with_name("out")
        request = {"argv": [str(script)], "environ": environ, "cwd": str(script.parent), "out": str(out)}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        status = json.loads(self.process.stdout.readline())["status"]
        return SimpleNamespace(
            returncode=status, stdout=Path(f"{out}.1").read_text(), stderr=Path(f"{out}.2").read_text()
        )

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def zygote():
    started = Zygote()
    yield started
    started.close()


class Alone:
    """Runs one script under the agent, to its end."""

    def __init__(self, directory, zygote):
        self.directory = directory
        self.zygote = zygote
        self.control, self.sockets = directory / "control", directory / "sockets"
        self.control.mkdir()
        self.sockets.mkdir()

    def run(self, text, *, fault=None, **orders):
        script = self.directory / "train.py"
        script.write_text(text)
        content = {
            "schema": "hangdrill.agent/1", "run_id": "hd-test", "control": str(self.control),
            "sockets": str(self.sockets), "backend": "gloo", "exit_wait_s": 0.0, "fault": fault or {},
        }  # fmt: skip
        (self.control / "agent.json").write_text(json.dumps({**content, **orders}))
        environ = {
            "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(self.directory), "OMP_NUM_THREADS": "1",
            "HANGDRILL_AGENT": str(self.control / "agent.json"), "GLOO_SOCKET_IFNAME": "lo",
            "KEEP": str(self.directory / "dump"),
        }  # fmt: skip
        return self.zygote.run(script, environ)

    def read(self, kind):
        return json.loads((self.control / f"rank_0.a0.{kind}.json").read_text())

    def counted(self):
        """Group name -> collectives, by the agent's record."""
        words = struct.unpack("<2056Q", (self.control / "rank_0.a0.ops").read_bytes())
        return {group["name"]: words[8 + 8 * slot] for slot, group in enumerate(self.read("facts")["groups"])}

    def recorded(self):
        """Group name -> last sequence id, by torch's recorder."""
        last = {group["name"]: 0 for group in self.read("facts")["groups"]}
        for entry in pickle.loads((self.directory / "dump").read_bytes())["entries"]:
            last[entry["process_group"][0]] = entry["collective_seq_id"]
        return last


@pytest.fixture
def alone(tmp_path, zygote):
    return Alone(tmp_path, zygote)


GROUPS = """
made = [dist.group.WORLD, dist.new_group([0], group_desc="by hand"), dist.split_group(split_ranks=[[0]])]
for number, group in enumerate(made):
    for _ in range(number + 1):
        dist.all_reduce(tensor, group=group)
    dist.barrier(group=group)
"""


def test_operations_of_every_group_are_counted_from_the_first_as_the_recorder_counts_them(alone):
    done = alone.run(START + GROUPS + "keep()\n")
    assert done.returncode == 0, done.stderr
    assert [group["desc"] for group in alone.read("facts")["groups"]] == ["default_pg", "by hand", "default_pg:split:0"]
    assert list(alone.counted().values()) == [2, 3, 4]
    assert alone.counted() == alone.recorded()


def test_a_disarmed_agent_counts_nothing_more(alone):
    text = """
from hangdrill.rank import disarm
dist.all_reduce(tensor)
disarm()
dist.all_reduce(tensor)
dist.all_reduce(tensor, group=dist.new_group([0]))
keep()
"""
    done = alone.run(START + text)
    assert done.returncode == 0, done.stderr
    assert (sorted(alone.counted().values()), sorted(alone.recorded().values())) == ([0, 1], [1, 2])


def test_wrapped_functions_count_what_python_calls(alone):
    done = alone.run(START + GROUPS + "keep()\n", placement="wrapped")
    assert done.returncode == 0, done.stderr
    assert alone.read("facts")["placement"] == "wrapped"
    assert alone.counted() == alone.recorded()


@pytest.mark.parametrize(
    "kind", ["hold", "spin", "hold-gil", "slow", "in-destroy", "skip", "wrong-shape", "wrong-dtype"]
)
def test_a_released_fault_lets_the_program_end_well(alone, kind):
    """There is no hold file (it was removed already), and the FIFO holds its byte."""
    os.mkfifo(alone.control / "gil_0", 0o600)
    byte = os.open(alone.control / "gil_0", os.O_RDWR)
    os.write(byte, b"!")
    fault = {"kind": kind, "ranks": [0], "op": "all_reduce", "nth": 2, "delay_s": 0.1}
    done = alone.run(START + "for _ in range(3):\n    dist.all_reduce(tensor)\nprint('end')\nkeep()\n", fault=fault)
    os.close(byte)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    report = alone.read("fault")
    assert (report["kind"], report["group"], report["op"], report["sequence"]) == (kind, "default_pg", "all_reduce", 2)
    assert report["frames"][0]["filename"].endswith("train.py")
    assert list(alone.counted().values()) == list(alone.recorded().values()) == [2 if kind == "skip" else 3]


@pytest.mark.parametrize(
    ("place", "op", "steps"),
    [
        ({"at": "init"}, "init_process_group", 0),
        ({"at": "step", "step": 2}, "step", 1),
        ({"at": "destroy"}, "destroy_process_group", 3),
        ({"at": "before", "op": "barrier"}, "barrier", 3),
    ],
)
def test_a_fault_takes_at_its_place_and_is_announced(alone, place, op, steps):
    text = """
optimizer = torch.optim.SGD([torch.nn.Parameter(tensor)], lr=0.1)
for _ in range(3):
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
"""
    done = alone.run(START + text, fault={"kind": "raise", "ranks": [0], **place})
    assert done.returncode == 1
    assert (alone.read("fault")["op"], "InjectedFault" in done.stderr) == (op, True)
    ending = alone.read("exit")
    assert (ending["status"], ending["code"], ending["in_distributed"]) == ("exception", 1, False)
    assert ending["frames"][0]["filename"].endswith("train.py")
    words = struct.unpack("<2056Q", (alone.control / "rank_0.a0.ops").read_bytes())
    assert words[3] == steps


def test_a_fault_of_another_rank_does_not_take(alone):
    fault = {"kind": "raise", "ranks": [1], "op": "all_reduce"}
    assert alone.run(START + "dist.all_reduce(tensor)\n", fault=fault).returncode == 0
    assert not (alone.control / "rank_0.a0.fault.json").exists()
    assert alone.read("exit")["status"] == "exit"


def test_a_change_that_cannot_be_made_is_told_and_not_reported_as_a_fault(alone):
    fault = {"kind": "wrong-shape", "ranks": [0], "op": "barrier"}
    assert alone.run(START + "dist.barrier()\n", fault=fault).returncode == 0
    assert not (alone.control / "rank_0.a0.fault.json").exists()
    assert "did not take" in alone.read("facts")["notes"][0]


@pytest.mark.parametrize("context", [None, "fork", "spawn", "forkserver"])
def test_a_fetch_is_reached_in_workers_however_they_are_started(alone, context):
    text = f"""
if __name__ == "__main__":
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    workers = {{"num_workers": 1, "multiprocessing_context": {context!r}}} if {context!r} else {{}}
    print(len(list(DataLoader(TensorDataset(torch.ones(3)), **workers))))
"""
    done = alone.run(text, fault={"kind": "dataloader", "ranks": [0], "at": "dataloader", "nth": 2})
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert alone.read("fault")["op"] == "dataloader"


def test_the_socket_is_its_owners_alone_however_deep_it_lies(tmp_path, zygote):
    deep = tmp_path / ("a" * 90) / ("b" * 90)
    deep.mkdir(parents=True)
    alone = Alone(deep, zygote)
    text = """
import json, os, stat
agent = json.load(open(os.environ["HANGDRILL_AGENT"]))
print(oct(stat.S_IMODE(os.stat(agent["sockets"] + "/rank_0.a0.sock").st_mode)))
"""
    done = alone.run(text)
    assert (done.returncode, done.stdout) == (0, "0o700\n"), done.stderr
    assert list(alone.sockets.iterdir()) == []
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in alone.control.glob("rank_*"))


@pytest.mark.parametrize("trigger", ["collector", "native"])
def test_a_healthy_program_ends_with_status_0_though_groups_and_server_live(alone, trigger):
    """Without the agent's own end, the teardown of the interpreter would abort here."""
    done = alone.run(START + "import atexit\natexit.register(print, 'bye')\n", trigger=trigger)
    assert (done.returncode, done.stdout) == (0, "bye\n"), done.stderr


def test_unknown_operations_and_targets_are_the_users_mistakes(alone):
    done = alone.run("", fault={"kind": "hold", "ranks": [0], "op": "allreduce"})
    assert done.returncode == 64
    assert "no operation is called 'allreduce'" in done.stderr


def test_what_keeps_the_debug_server_from_starting_is_told_in_the_facts(alone):
    (alone.directory / "aiohttp.py").write_text("raise ImportError('no aiohttp here')\n")
    (alone.directory / "jinja2.py").write_text("raise ImportError('no jinja2 here')\n")
    done = alone.run("print('start')\n", trigger="debug-server")
    assert (done.returncode, done.stdout) == (0, "start\n"), done.stderr
    assert "the debug server did not start" in alone.read("facts")["notes"][0]
