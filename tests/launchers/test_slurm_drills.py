"""Whole drills under a real Slurm of two nodes, by hangdrill's own command on its login host: what they come to, and
that nothing is left on any of the three hosts.
"""

import contextlib
import json
import os
import signal
import sys

import pytest
from slurm_lab import CHECKOUT, LOGIN, NODES, slurm_lab, why_no_private_tmp, why_no_slurm

from hangdrill.drill.waiting import Waiter

pytestmark = [
    pytest.mark.torchrun,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm()),
]
REACH_S, END_S = 300, 180
HELD = ["--workload", "all-reduce", "--nproc", "2", "--hold", "1", "--before", "all_reduce:3", "--timeout-s", "30"]
SCRIPT = CHECKOUT / "scenarios/containers/dumping.py"
SHARED_DIRECTORY = """
title = "Dumps in a directory that the nodes share, beside the run directory"
[job]
launcher = "slurm"
nnodes = 2
nproc_per_node = 1
script = "{script}"
timeout_s = 6
[fault]
kind = "hold"
rank = 1
before = {{ op = "all_reduce", nth = 5 }}
[recorder]
trigger = "native"
dump_to = "{dumps}"
[expect]
culprit = 1
survives = ["job-exit", "node-tmp-wipe"]
"""


@pytest.fixture(scope="module")
def lab():
    with slurm_lab() as made:
        yield made


@pytest.fixture(scope="module")
def private_lab():
    if why := why_no_private_tmp():
        pytest.skip(why)
    with slurm_lab(private_tmp=True) as made:
        yield made


class Login:
    """hangdrill as a user starts it on the login host."""

    def __init__(self, lab, out):
        self.lab = lab
        self.out = out
        self.out.mkdir()

    def start(self, *words, launcher="slurm"):
        named = ["--launcher", launcher, "--out", str(self.out)] if words[0] == "run" else []
        return self.lab.start(sys.executable, "-m", "hangdrill", *words, *named, cwd=str(self.out))

    def run(self, *words, **more):
        """The exit code and the output."""
        with self.start(*words, **more) as done:
            output, _ = done.communicate()
        return done.returncode, output

    def result(self, name):
        return json.loads((self.out / name / "result.json").read_text())

    def wait_for(self, event, process):
        def probe():
            told = "".join(path.read_text() for path in self.out.rglob("journal.jsonl"))
            return f'"name":"{event}"' in told or process.poll() is not None or None

        assert Waiter().until(probe, deadline_s=REACH_S), f"{event} was not reached"
        assert process.poll() is None, process.communicate()

    def interrupt(self, process, number):
        """The exit code and the output of a command that gets a signal."""
        os.kill(self.lab.pid_of(process), number)
        output, _ = process.communicate(timeout=END_S)
        return process.returncode, output


def left(lab):
    """Everything that a drill could leave on the hosts; torch's own temporary files are torch's."""
    return {
        "jobs": lab.jobs(),
        "registered": [path.name for path in (lab.directory / "runtime").glob("drill-*")],
        **{f"processes on {host}": list(lab.processes(host).values()) for host in (LOGIN, *NODES)},
        **{
            f"files on {host}": sorted(
                path for path in lab.files(host) if not path.startswith(("tmp/torch", "var/tmp/jobs", "tmp/dumps"))
            )
            for host in (LOGIN, *NODES)
        },
    }


def assert_nothing_left(lab):
    found = {}

    def probe():
        found.update(left(lab))
        return True if not any(found.values()) else None

    Waiter().until(probe, deadline_s=30, poll_s=0.5)  # a job may still be COMPLETING when its last process is gone
    assert {kind: things for kind, things in found.items() if things} == {}


@pytest.fixture
def login(lab, request):
    yield Login(lab, lab.directory / request.node.name.translate(str.maketrans("/[]", "---")))
    assert_nothing_left(lab)


@pytest.fixture
def private_login(private_lab, request):
    yield Login(private_lab, private_lab.directory / request.node.name)
    assert_nothing_left(private_lab)


def not_passed(result):
    return {check["name"]: check for check in result["checks"] if check["verdict"] != "pass"}


def test_scenarios_of_other_launchers_pass_unchanged_on_one_node(login):
    names = ("quick/ddp-hold", "containers/collector", "delivery/restart")
    code, output = login.run("run", *names, "-j", "3", "--sbatch=--partition=batch")
    assert {name: not_passed(login.result(name)) for name in names} == {name: {} for name in names}
    assert code == 0, output


def test_rank_on_the_second_node_is_named_and_its_dump_survives_scancel(login):
    code, output = login.run("run", "slurm/two-nodes")
    assert code == 0, output
    result = login.result("slurm/two-nodes")
    assert not_passed(result) == {}
    assert [(one["rank"], one["basis"]) for one in result["diagnosis"]["culprits"]] == [(2, "observed")]
    assert {artifact["path"].split("/")[1] for artifact in result["artifacts"]} == {"node0", "node1"}
    assert "CANCELLED" in (login.out / "slurm/two-nodes/job.log").read_text(), "the teardown was a real scancel"


def test_dumps_in_the_private_tmp_fail_with_that_reason_and_on_a_shared_directory_they_pass(private_login):
    dumps = private_login.out / "dumps"
    scenario = private_login.out / "shared-directory.toml"
    scenario.write_text(SHARED_DIRECTORY.format(script=SCRIPT, dumps=dumps))
    code, output = private_login.run("run", "slurm/node-tmp", "slurm/shared", str(scenario), "-j", "3")
    assert code == 1, output
    problems = not_passed(private_login.result("slurm/node-tmp"))
    assert set(problems) == {"survives-node-tmp-wipe"}
    problem = problems["survives-node-tmp-wipe"]
    assert problem["ranks"] == dict.fromkeys("01", "fail")
    assert "/tmp/dumps is in the job's private /tmp, which Slurm's job_container/tmpfs deletes" in problem["detail"]
    assert "directory that all nodes share" in problem["mend"]
    assert not_passed(private_login.result("slurm/shared")) == {}
    assert not_passed(private_login.result("shared-directory")) == {}
    assert sorted(path.name for path in dumps.iterdir()) == ["fr_0", "fr_1"]


def test_interrupt_while_running_and_while_queued_leaves_nothing(login):
    with login.start("run", *HELD, "--nnodes", "2") as running:
        login.wait_for("fault-confirmed", running)
        other = Login(login.lab, login.out / "other")
        with other.start("run", *HELD, "--sbatch=--exclusive") as queued:
            other.wait_for("queued", queued)
            assert len(login.lab.jobs()) == 2
            code, output = other.interrupt(queued, signal.SIGINT)
        assert code == 130, output
        assert "queued:" in output
        assert len(login.lab.jobs()) == 1
        code, output = login.interrupt(running, signal.SIGINT)
    assert code == 130, output


def test_job_that_is_queued_too_long_is_cancelled_and_is_the_machines_fault(login):
    scenario = login.out / "short.toml"
    text = (CHECKOUT / "scenarios/quick/all-reduce-hold.toml").read_text()
    scenario.write_text(text.replace("[job]", "[job]\nqueue_s = 2"))
    login.lab.run("scontrol", "update", "PartitionName=batch", "State=DOWN")
    try:
        code, output = login.run("run", str(scenario))
    finally:
        login.lab.run("scontrol", "update", "PartitionName=batch", "State=UP")
    assert code == 75, output
    assert "still queued after 2 s (PartitionDown)" in output
    assert "job.queue_s" in output


def test_clean_cancels_the_job_of_a_killed_controller(login):
    with login.start("run", *HELD) as controller:
        login.wait_for("fault-confirmed", controller)
        login.interrupt(controller, signal.SIGKILL)
    assert login.lab.jobs(), "the job outlives its controller: else this test shows nothing"
    code, output = login.run("clean", "--dry-run")
    assert (code, "job" in output, len(login.lab.jobs())) == (0, True, 1), output
    code, output = login.run("clean")
    assert code == 0, output


def test_tasks_that_outlive_a_killed_slurmd_are_ended_all_the_same(login):
    with login.start("run", *HELD) as controller:
        login.wait_for("fault-confirmed", controller)
        node = next(
            node for node in NODES if any("hangdrill.rank" in words for words in login.lab.processes(node).values())
        )
        os.kill(login.lab.slurmd_of(node), signal.SIGKILL)
        try:
            os.kill(login.lab.pid_of(controller), signal.SIGINT)
            ended = Waiter().until(lambda: not _ranks_on(login.lab, node) or None, deadline_s=END_S)
            assert ended, login.lab.processes(node)
        finally:
            login.lab.start_slurmd(node)
        with contextlib.suppress(Exception):
            controller.communicate(timeout=END_S)
    assert controller.returncode == 130


def _ranks_on(lab, node):
    return [words for words in lab.processes(node).values() if "hangdrill" in words]


def test_ready_script_puts_the_collector_beside_a_job_of_ones_own(login):
    """docs/examples/collect.sbatch with the script of docs/collect.md: the job hangs, and is cancelled."""
    page = (CHECKOUT / "docs/collect.md").read_text()
    (login.out / "train.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    program = login.out / "hangdrill"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m hangdrill "$@"\n')
    program.chmod(0o755)
    evidence = login.out / "evidence"
    environ = {"NPROC_PER_NODE": "2", "EVIDENCE": str(evidence), "COLLECT_OPTIONS": "--stall-after-s 3"}
    environ |= {"PATH": f"{login.out}:{login.lab.environ['PATH']}"}
    words = ("sbatch", "--parsable", "--cpus-per-task=2", f"--output={login.out}/log")
    job = login.lab.run(*words, CHECKOUT / "docs/examples/collect.sbatch", "train.py", cwd=str(login.out), env=environ)

    def pulled():
        return len(list(evidence.glob("node*/rank_*.dump.pickle"))) == 4 or not login.lab.jobs() or None

    assert Waiter().until(pulled, deadline_s=REACH_S, poll_s=0.5)
    assert login.lab.jobs(), (login.out / "log").read_text()
    login.lab.run("scancel", job.strip())
    assert Waiter().until(lambda: not login.lab.jobs() or None, deadline_s=END_S, poll_s=0.2)
    code, output = login.run("diagnose", str(evidence))
    assert code == 1, output
    assert "rank 1 never entered all_reduce #7" in output
