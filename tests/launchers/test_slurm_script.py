"""The batch script says what was asked for, a site cannot take that back, and Slurm's answers are understood."""

import shlex

import pytest

from hangdrill.launchers.slurm_commands import JobState, parse_job
from hangdrill.launchers.slurm_script import BatchJob, mistake_in, render, submit_environ

JOB = BatchJob(
    run_id="hd-1",
    comment="hangdrill:me@host/1:2",
    nnodes=2,
    nproc_per_node=8,
    limit_s=601.0,
    cwd="/runs/a b",
    log_path="/runs/a b/100%.log",
    python_path="/opt/hang drill",
    node_command=("python", "-m", "hangdrill.node", "--run", "/runs/a b"),
)


def options(script):
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]


def test_script_has_what_hangdrill_needs():
    script = render(JOB)
    assert script.startswith("#!/bin/sh\n")
    assert {
        "--cpus-per-task=8", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--no-requeue", "--export=ALL",
        "--job-name=hangdrill:hd-1", "--comment=hangdrill:me@host/1:2", "--time=12", '--chdir="/runs/a b"',
        '--output="/runs/a b/100%%.log"',
    } <= set(options(script))  # fmt: skip
    command = shlex.split(script.splitlines()[-1])
    assert command[:2] == ["exec", "srun"]
    assert command[-5:] == list(JOB.node_command)
    assert "export PYTHONPATH='/opt/hang drill'" in script


def test_sites_options_win_over_defaults_and_lose_against_what_is_needed():
    site = ("--cpus-per-task=4", "--partition=gpu")
    said = options(render(BatchJob(**{**_fields(JOB), "site_options": site})))
    assert [option for option in said if option.startswith("--cpus-per-task")] == ["--cpus-per-task=4"]
    assert said.index("--partition=gpu") < said.index("--nodes=2")
    gpus = ("--cpus-per-gpu=4", "--gpus-per-node=8")
    said = options(render(BatchJob(**{**_fields(JOB), "site_options": gpus})))
    assert not any(option.startswith("--cpus-per-task") for option in said), "sbatch takes only one of the two"


def _fields(job):
    return {name: getattr(job, name) for name in job.__struct_fields__}


@pytest.mark.parametrize(
    "option",
    ["--partition=gpu", "--account=a b", "--gpus-per-node=8", "--exclusive", "--mem=0", "--nodelist=n[0-3]", "--qos=x"],
)
def test_option_of_a_site_is_taken(option):
    assert mistake_in(option) == ""


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--nodes=3", "hangdrill needs --nodes itself"),
        ("--node=3", "hangdrill needs --nodes itself"),  # Slurm takes abbreviations
        ("--outp=/tmp/x", "hangdrill needs --output itself"),
        ("--export=NONE", "hangdrill needs --export itself"),
        ("--requeue", "hangdrill needs --requeue itself"),
        ("--array=1-5", "hangdrill needs --array itself"),
        ("--hold", "hangdrill needs --hold itself"),
        ("gpu", "one long option"),
        ("-pgpu", "one long option"),
        ("--", "one long option"),
        ("--partition gpu", "--partition=gpu"),
        ('--comment2="x"', "quotes"),
        ("--partition=a\n#SBATCH --nodes=9", "line breaks"),
        ("--gres=gpu:\x00", "line breaks"),
        ("--gres=gpu:\x0b1", "line breaks"),
    ],
)
def test_option_that_hangdrill_cannot_let_pass_is_refused(option, why):
    assert why in mistake_in(option)


def test_traces_of_an_outer_job_and_what_overrides_the_script_are_left_out():
    environ = {
        "HOME": "/home/me", "SLURM_CONF": "/etc/slurm.conf", "SLURM_JOB_ID": "7", "SRUN_CPUS_PER_TASK": "3",
        "SBATCH_PARTITION": "gpu", "SBATCH_TIMELIMIT": "1", "SBATCH_EXPORT": "NONE", "HANGDRILL_CONTROLLER": "1:2",
        "HANGDRILL_RUN_ID": "hd-1",
    }  # fmt: skip
    assert submit_environ(environ).keys() == {"HOME", "SLURM_CONF", "SBATCH_PARTITION", "HANGDRILL_RUN_ID"}


TOLD = "JobId=7 JobName=x JobState={state} Reason={reason} ExitCode={code} ReqNodeList=(null) NodeList={nodes} B=C\n"


def state(name, reason="", nodes="n0", exit_code=0):
    return JobState(state=name, reason=reason, nodes=nodes, exit_code=exit_code)


@pytest.mark.parametrize(
    ("reason", "code", "nodes", "expected"),
    [
        ("Resources", "0:0", "(null)", state("PENDING", "Resources", "")),
        ("None", "0:0", "n[0-1]", state("RUNNING", nodes="n[0-1]")),
        ("None", "0:0", "n0", state("COMPLETED")),
        ("NonZeroExitCode", "3:0", "n0", state("FAILED", "NonZeroExitCode", exit_code=3)),
        ("None", "0:53", "n0", state("FAILED", exit_code=53)),
        ("None", "0:0", "n0", state("CANCELLED", exit_code=-15)),
        ("None", "0:9", "n0", state("CANCELLED", exit_code=-9)),
        ("TimeLimit", "0:0", "n0", state("TIMEOUT", "TimeLimit", exit_code=-15)),
        ("NodeDown", "0:0", "n0", state("NODE_FAIL", "NodeDown", exit_code=-9)),
    ],
)
def test_state_of_a_job_and_how_it_ended(reason, code, nodes, expected):
    found = parse_job(TOLD.format(state=expected.state, reason=reason, code=code, nodes=nodes))
    assert found == expected
    assert (found.waits, found.over) == (found.state == "PENDING", found.state not in ("PENDING", "RUNNING"))
