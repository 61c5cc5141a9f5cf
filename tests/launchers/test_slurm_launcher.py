"""The slurm launcher with a real Slurm and a stand-in for the node process: what arrives, is told, and is left."""

import json
import os
import signal
import sys
import uuid
from pathlib import Path

import pytest
from box_requests import box_request, prepare_run
from slurm_lab import KILL_WAIT_S, NODES, slurm_lab, why_no_private_tmp, why_no_slurm

from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.protocol import OutOfReach
from hangdrill.launchers.slurm import SCRIPT, SlurmLauncher
from hangdrill.launchers.slurm_commands import Slurm
from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.scenario import Teardown
from hangdrill.preflight.slurm import look_at_slurm
from hangdrill.preflight.surroundings import Slurm as PreflightFacts

pytestmark = pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm())
DEADLINE_S = 90


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


class Runs:
    """Starts a shell's text on each node in place of the node process; every job is removed after the test."""

    def __init__(self, lab):
        self.lab = lab
        self.jobs = []

    def request(self, **changes):
        run_dir = changes.pop("run_dir", None) or prepare_run(self.lab.directory / uuid.uuid4().hex[:6])
        environ = {**self.lab.environ_here, **changes.pop("marks", {})}
        return box_request(run_dir, **{"environ": environ, "nproc_per_node": 1, "limit_s": 600.0, **changes})

    def start(self, text, **changes):
        request = self.request(**changes)
        Path(request.run_dir, "nodes").mkdir()
        job = SlurmLauncher(("/bin/sh", "-c", text, "node")).start(request)
        self.jobs.append(job)
        return job, request

    def end(self):
        for job in self.jobs:
            job.remove()
            assert job.leftovers() == ()


@pytest.fixture
def runs(lab):
    made = Runs(lab)
    yield made
    made.end()


def wait(probe):
    assert Waiter().until(lambda: probe() or None, deadline_s=DEADLINE_S)


def code_of(job):
    return Waiter().until(job.poll, deadline_s=DEADLINE_S)


def test_every_value_of_the_environment_arrives_and_is_in_no_file_or_command_line(runs):
    marks = {
        "HD_COMMAS": "a,b=c,,d",
        "HD_QUOTES": """it's "quoted" \\ `x` $HOME""",
        "HD_LINES": "one\n two \n\tthree",
        "HD_EMPTY": "",
        "HD_SECRET": "token-of-the-user",
        "HANGDRILL_RUN_ID": "hd-of-this-run",
    }
    text = (
        """exec python -c 'import json, os, sys; json.dump(dict(os.environ), open(sys.argv[2] + "/seen", "w"))' "$@" """
    )
    job, request = runs.start(text, marks={**marks, "SBATCH_OUTPUT": "/nowhere", "SLURM_NNODES": "7"})
    assert code_of(job) == 0
    seen = json.loads((Path(request.run_dir) / "seen").read_text())
    assert {key: seen.get(key) for key in marks} == marks
    assert seen["SLURM_NNODES"] == "1"
    assert "token-of-the-user" not in (Path(request.run_dir) / SCRIPT).read_text()


@pytest.mark.parametrize(("text", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137)])
def test_exit_code_is_that_of_the_nodes(runs, text, code):
    job, _ = runs.start(text)
    assert code_of(job) == code


def test_each_node_runs_one_process_and_its_output_is_in_the_log(runs):
    job, request = runs.start("hostname; echo $SLURM_NODEID >&2; pwd", nnodes=2)
    assert code_of(job) == 0
    words = (Path(request.run_dir) / "job.log").read_text().split()
    assert sorted(words) == sorted([*NODES, "0", "1", request.cwd, request.cwd])


def test_job_that_waits_says_why_and_is_taken_from_the_queue(runs, lab):
    first, _ = runs.start("exec sleep 600", nnodes=2, sbatch=("--exclusive",))
    wait(lambda: first.waiting() == "")
    second, _ = runs.start("exec sleep 600")
    wait(lambda: second.waiting() in ("Resources", "Priority"))
    assert second.poll() is None
    second.remove()
    assert second.leftovers() == ()
    assert code_of(second) == -signal.SIGTERM
    assert first.poll() is None
    assert first.leftovers()[0].what == "job"


def test_cancel_is_told_to_the_nodes_before_they_are_killed(runs):
    text = "trap 'touch $2/told' TERM; touch $2/ready; while :; do sleep 1; done"
    job, request = runs.start(text)
    wait((Path(request.run_dir) / "ready").exists)
    job.undergo(Teardown.SCHEDULER_CANCEL)
    assert (Path(request.run_dir) / "told").exists()
    assert job.leftovers() == ()
    assert job.poll() is not None


def test_slurmctld_that_is_busy_for_a_while_is_asked_again(runs, lab, tmp_path):
    """The first calls fail: the job is cancelled all the same, and nothing is taken for its end."""
    for name in ("scancel", "squeue", "scontrol"):
        program = tmp_path / name
        busy = f'[ -e {tmp_path}/ready ] || exec {lab.directory}/bin/{name} "$@"'
        count = f"echo x >> {tmp_path}/{name}.calls; [ $(wc -l < {tmp_path}/{name}.calls) -gt 2 ] || exit 1"
        program.write_text(f'#!/bin/sh\n{busy}\n{count}\nexec {lab.directory}/bin/{name} "$@"\n')
        program.chmod(0o755)
    environ = {**lab.environ_here, "PATH": f"{tmp_path}:{lab.environ_here['PATH']}"}
    job, request = runs.start("touch $2/ready; exec sleep 600", environ=environ)
    wait((Path(request.run_dir) / "ready").exists)
    (tmp_path / "ready").touch()
    assert job.poll() is None
    job.undergo(Teardown.SCHEDULER_CANCEL)
    assert len((tmp_path / "scancel.calls").read_text().split()) == 3
    assert job.leftovers() == ()
    assert code_of(job) not in (0, None)


def test_signal_reaches_the_processes_of_the_job(runs):
    job, request = runs.start("trap 'exit 9' USR1; touch $2/ready; while :; do sleep 0.1; done")
    wait((Path(request.run_dir) / "ready").exists)
    job.signal(signal.SIGUSR1)
    assert code_of(job) == 9
    job.signal(signal.SIGUSR1)  # it is over: nothing happens


def test_what_a_killed_node_process_left_is_ended_by_the_second_job(runs, lab):
    marks = {"HANGDRILL_RUN_ID": "hd-left"}
    place = (
        'd=$(mktemp -d /tmp/hangdrill-XXXX); mkdir $d/control; echo \'{"run_id": "hd-left"}\' > $d/control/agent.json'
    )
    job, request = runs.start(f"{place}; setsid sleep 6000 & touch $2/ready; wait", run_id="hd-left", marks=marks)
    wait((Path(request.run_dir) / "ready").exists)
    on = job._asked_state().nodes
    assert "sleep 6000" in lab.processes(on).values()
    job.signal(signal.SIGKILL)
    assert code_of(job) not in (0, None)
    job.remove()
    assert lab.processes(on) == {}
    assert lab.files(on) == set()


def test_file_on_a_nodes_own_disk_is_found_after_the_job(runs, lab):
    job, request = runs.start(
        "mkdir -p /tmp/d; echo $SLURM_NODEID > /tmp/d/fr_$SLURM_NODEID; echo x > /tmp/d/fr_x", nnodes=2
    )
    assert code_of(job) == 0
    assert job.locate("/tmp/d/fr_0") is None, "before a teardown it is the node process that keeps copies"
    job.undergo(Teardown.JOB_EXIT)
    for rank in range(2):
        copy = job.locate(f"/tmp/d/fr_{rank}")
        assert copy.read_text() == f"{rank}\n"
        assert copy.is_relative_to(request.run_dir)
    assert job.locate("/tmp/d/fr_2") is None
    assert job.place_of("/tmp/d/fr_0") == ""
    lab.run("srun", "-N2", "rm", "-r", "/tmp/d")


def test_file_in_the_jobs_private_tmp_goes_with_the_job(private_lab):
    runs = Runs(private_lab)
    try:
        job, request = runs.start("mkdir /tmp/d; echo x > /tmp/d/fr_0; echo x > $2/fr_0")
        job.undergo(Teardown.NODE_TMP_WIPE)
        job.close()
        assert job.locate("/tmp/d/fr_0") is None
        assert "private /tmp, which Slurm's job_container/tmpfs deletes" in job.place_of("/tmp/d/fr_0")
        assert job.locate(f"{request.run_dir}/fr_0").read_text() == "x\n"
        assert job.place_of("/data/fr_0") == ""
    finally:
        runs.end()


def test_nodes_that_cannot_be_looked_at_leave_the_file_out_of_reach(runs, lab):
    job, _ = runs.start("true")
    assert code_of(job) == 0
    lab.run("scontrol", "update", "NodeName=n[0-1]", "State=DRAIN", "Reason=test")
    try:
        job.look_deadline_s = 3
        job.undergo(Teardown.JOB_EXIT)
        with pytest.raises(OutOfReach, match="no job can look at the nodes"):
            job.locate("/tmp/fr_0")
    finally:
        lab.run("scontrol", "update", "NodeName=n[0-1]", "State=RESUME")


def test_check_passes_on_a_cluster_that_can_run_it(runs):
    SlurmLauncher().check(runs.request(nnodes=2, sbatch=("--partition=batch",)))


def test_missing_command_is_the_machines_fault(runs, tmp_path):
    request = runs.request(environ={"PATH": str(tmp_path)})
    with pytest.raises(MachineError, match=r"sbatch is not on the PATH(.|\n)*where jobs are submitted"):
        SlurmLauncher().check(request)


def test_slurmctld_that_does_not_answer_is_the_machines_fault(runs, tmp_path):
    (tmp_path / "slurm.conf").write_text("ClusterName=none\nSlurmctldHost=nowhere(127.0.0.1)\nSlurmctldPort=1\n")
    environ = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert not Slurm(environ).answers()
    with pytest.raises(MachineError, match=r"slurmctld does not answer(.|\n)*`scontrol ping` by hand"):
        SlurmLauncher().check(runs.request(environ=environ))


def test_more_nodes_than_there_are_is_the_machines_fault(runs):
    with pytest.raises(MachineError, match="asks for 3 nodes, and 2 can be used"):
        SlurmLauncher().check(runs.request(nnodes=3))


def test_partition_that_is_not_there_is_named(runs):
    with pytest.raises(MachineError, match="invalid partition specified: no-such-partition"):
        SlurmLauncher().check(runs.request(sbatch=("--partition=no-such-partition",)))


def test_what_sbatch_refuses_is_said_before_anything_is_made(runs):
    with pytest.raises(MachineError, match=r"sbatch refuses the job: (.|\n)*reservation is invalid"):
        SlurmLauncher().check(runs.request(sbatch=("--partition=batch", "--reservation=no-such")))


@pytest.mark.parametrize("root", ["/tmp", "/dev/shm"])
def test_run_directory_that_the_nodes_would_not_see_is_refused(runs, root):
    with pytest.raises(UsageError, match=rf"below {root}(.|\n)*--out"):
        SlurmLauncher().check(runs.request(run_dir=Path(root, "runs/a")))


def test_backslash_in_the_run_directory_is_refused(runs, lab):
    with pytest.raises(UsageError, match="backslash"):
        SlurmLauncher().check(runs.request(run_dir=lab.directory / "a\\b"))


def test_run_directory_with_odd_characters_is_used_as_it_is(runs, lab):
    run_dir = prepare_run(lab.directory / 'it\'s 100% "odd" #1')
    job, _ = runs.start('echo "$2"; pwd', run_dir=run_dir)
    assert code_of(job) == 0
    assert (run_dir / "job.log").read_text() == f"{run_dir}\n" * 2


def test_preflight_is_told_what_slurm_deletes_and_how_long_its_grace_is(lab, private_lab):
    facts = [look_at_slurm(each.environ_here, "/runs") for each in (lab, private_lab)]
    assert facts == [
        PreflightFacts(known=True, private_tmp=private, kill_wait_s=KILL_WAIT_S, run_directory="/runs")
        for private in (False, True)
    ]
    assert look_at_slurm({"PATH": "/nowhere"}, "/runs") == PreflightFacts(run_directory="/runs")


def test_preflight_says_beforehand_that_dumps_in_the_private_tmp_are_deleted(private_lab):
    words = ("preflight", "slurm/node-tmp", "--json", "--grace-s", "60")
    with private_lab.start(sys.executable, "-m", "hangdrill", *words) as asking:
        answer = json.loads(asking.communicate()[0])
    found = {finding["id"]: finding for finding in answer["findings"]}
    assert asking.returncode == 1
    assert found["dump-on-job-tmp"]["severity"] == "loses-evidence"
    assert "/tmp/dumps is in the job's private /tmp" in found["dump-on-job-tmp"]["what"]
    assert not {"slurm-not-known", "run-directory-on-node", "dump-directory-missing", "grace-not-known"} & set(found)
