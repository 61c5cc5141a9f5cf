"""The words that start a job's part on a node, as they come out of the plan."""

import os
import shlex
from pathlib import Path

import pytest
from canary_cases import canary_run, pair_runs

from hangdrill.certify.canary_nodes import MultiNodeCell, hopeless
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.matrix import cells_of
from hangdrill.certify.nodes import ALL_NODES, TRAVELS, node_commands, on_node_words, torchrun_words, travelling
from hangdrill.certify.nodes_drill import node_scenario
from hangdrill.certify.nodes_job import FACTS_WORD, reason_of
from hangdrill.certify.nodes_launcher import JobOnNodes, NodesLauncher
from hangdrill.certify.nodes_look import facts_in
from hangdrill.certify.nodes_measures import measured_over_nodes, parts_over_nodes
from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.process import start_local
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.model.certify_plan import CertifyPlan, NodesPlan, StackPlan, Topology, WorkPlan
from hangdrill.model.errors import MachineError
from hangdrill.model.verdict import Verdict
from hangdrill.rank.fingerprint.machine import MATTER

COMMAND = ("env", "A=it's {x}", "python", "-m", "job")
SSH = NodesPlan(names=("node-a", "node-b"), run=("ssh", "{node}", "{command}"), endpoint="node-a:29400")


def changed(**changes) -> NodesPlan:
    given = {"names": SSH.names, "run": SSH.run, "endpoint": SSH.endpoint}
    return NodesPlan(**{**given, **changes})


def plan(**work) -> CertifyPlan:
    side = StackPlan(python="/stack/bin/python")
    return CertifyPlan(
        title="up",
        baseline=side,
        candidate=side,
        topologies=(Topology.MULTI_NODE,),
        workload=WorkPlan(**{"nnodes": 2, **work}),
        nodes=SSH,
    )


def test_ssh_gets_the_command_as_one_word_that_its_shell_splits_again():
    first, second = node_commands(SSH, COMMAND)
    assert (first.name, second.name) == ("node-a", "node-b")
    assert second.words[:2] == ("ssh", "node-b")
    assert tuple(shlex.split(second.words[2])) == COMMAND


def test_without_a_word_for_it_the_command_follows_as_it_is():
    netns = changed(run=("ip", "netns", "exec", "{node}"))
    assert node_commands(netns, COMMAND)[0].words == ("ip", "netns", "exec", "node-a", *COMMAND)


def test_without_a_node_the_command_is_started_once_for_all():
    srun = changed(names=(), run=("srun", "--nodes=2", "--ntasks-per-node=1"))
    (one,) = node_commands(srun, COMMAND)
    assert (one.name, one.words) == (ALL_NODES, ("srun", "--nodes=2", "--ntasks-per-node=1", *COMMAND))


def test_what_makes_a_stack_travels_and_what_is_of_one_host_or_secret_does_not():
    environ = {
        "NCCL_ALGO": "Ring", "TORCH_X": "1", "OURS": "2", "HOME": "/root", "CUDA_VISIBLE_DEVICES": "0",
        "NCCL_TOKEN": "t", "HANGDRILL_RUN_ID": "r", "HANGDRILL_CONTROLLER": "1:2",
    }  # fmt: skip
    assert set(travelling(environ, ("OURS", "ABSENT"))) == {"NCCL_ALGO", "TORCH_X", "OURS", "HANGDRILL_RUN_ID"}


def test_what_travels_is_what_the_fingerprint_tells_apart():
    assert set(MATTER) - set(TRAVELS) == {"NVIDIA_VISIBLE_DEVICES"}
    assert set(TRAVELS) - set(MATTER) == set()


def test_the_variables_are_words_and_the_controllers_mark_stays_here():
    words = on_node_words(
        changed(interface="ib0"),
        python="/p",
        variables={"A": "1 2"},
        directory=Path("/out/job"),
        lease=Path("/out/job/lease"),
        lease_s=30.0,
        command=("run", "it"),
    )
    assert words[:6] == ("env", "-u", "HANGDRILL_CONTROLLER", "-C", "/out/job", "A=1 2")
    assert words[6:9] == ("/p", "-m", "hangdrill.rank.canary.on_node")
    assert words[-5:] == ("--interface", "ib0", "--", "run", "it")


def test_torchrun_is_told_who_holds_the_endpoint():
    words = torchrun_words(
        SSH, python="/p", run_id="j", nnodes=2, nproc_per_node=4, max_restarts=0, program=("hangdrill.rank.canary",)
    )
    assert words[:3] == ("/p", "-m", "torch.distributed.run")
    assert any(word.startswith("is_host={holds},") for word in words)
    assert words[words.index("--rdzv-endpoint") + 1] == "node-a:29400"
    assert words[-4:] == ("-m", "hangdrill.rank", "-m", "hangdrill.rank.canary")


def test_one_rank_on_each_of_two_nodes_has_a_peer_on_the_other():
    names = {one.name for one in measured_over_nodes(plan(nproc_per_node=1))}
    assert {"p2p-latency-4kb", "p2p-start-time", "throughput", "init-time"} <= names
    assert "recovery-time" not in names
    assert "recover" not in parts_over_nodes(plan(nproc_per_node=1))
    assert "p2p" in parts_over_nodes(plan(nproc_per_node=1))


def test_the_cell_promises_a_line_for_each_measure_and_is_one_of_the_matrix():
    cell = next(cell for cell in cells_of(plan()) if cell.id == "canary/multi-node")
    assert cell.needs.programs == ("ssh",)
    assert cell.needs.gpus == 0
    assert {claim.topology for claim in cell.claims} == {"multi-node"}
    assert "canary/multi-node/collective-latency-4kb" in {claim.id for claim in cell.claims}


@pytest.mark.parametrize(("more_mb", "verdict"), [(0.0, Verdict.PASS), (200.0, Verdict.FAIL)])
def test_a_difference_over_nodes_is_found_by_the_same_rule(more_mb, verdict):
    cell = MultiNodeCell(plan())
    result = cell.judge(pair_runs(16, more_mb=more_mb), ())
    lines = {line.id: line for line in result.lines}
    assert set(lines) == {claim.id for claim in cell.claims}
    assert lines["canary/multi-node/memory-peak"].verdict is verdict
    assert lines["canary/multi-node/memory-peak"].topology == "multi-node"
    names = {difference.what for difference in result.differences}
    assert ("memory-peak (multi-node)" in names) is (verdict is Verdict.FAIL)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ""),
        (
            "ssh: connect to host node-b port 22: No route to host\n",
            "ssh: connect to host node-b port 22: No route to host",
        ),
        (
            "env: cannot change directory to '/out'\nsrun: error: n1: task 1: Exited\n",
            "env: cannot change directory to '/out': OUT must lie on a file system that all nodes share",
        ),
        (
            "hangdrill: n1: cannot write to /out\nsrun: error: n1: task 1: Exited\n",
            "n1: cannot write to /out",
        ),
        (
            'hangdrill-node: {"host": "n1"}\nRuntimeError: it broke\nhangdrill: n1: the controller ended the job\n',
            "RuntimeError: it broke",
        ),
        ("srun: error: Unable to allocate resources\n", "srun: error: Unable to allocate resources"),
        (
            "RendezvousConnectionError: no\n",
            "RendezvousConnectionError: no Is the port of nodes.endpoint open between the nodes?",
        ),
    ],
)
def test_the_reason_is_the_nodes_own_word_and_not_what_srun_adds(text, why):
    assert reason_of(text) == why


def request_in(directory: Path) -> LaunchRequest:
    environ = {"PATH": "/usr/bin:/bin", "NCCL_ALGO": "Ring", "HANGDRILL_CONTROLLER": "1:2"}
    return LaunchRequest(
        run_id="r",
        python="/stack/bin/python",
        nnodes=2,
        nproc_per_node=1,
        max_restarts=0,
        target="workload:ddp",
        args=(),
        environ=environ,
        cwd=str(directory),
        log_path=str(directory / "job.log"),
        run_dir=str(directory),
    )


def test_each_node_process_has_its_number_and_under_srun_asks_slurm_for_it(tmp_path):
    words = NodesLauncher(SSH).command(request_in(tmp_path))
    assert words[:2] == ("ssh", "node-a")
    inner = shlex.split(words[2])
    assert inner[:5] == ["env", "-u", "HANGDRILL_CONTROLLER", "-C", str(tmp_path)]
    assert "NCCL_ALGO=Ring" in inner
    assert inner[-5:] == ["hangdrill.node", "--run", str(tmp_path), "--node", "0"]
    srun = changed(names=(), run=("srun", "--nodes=2"))
    assert NodesLauncher(srun).command(request_in(tmp_path))[-2:] == ("--node", "slurm")


def test_a_job_on_nodes_is_over_when_all_are_and_tells_the_first_failure(tmp_path):
    def part(words: str):
        return start_local(("sh", "-c", words), environ={}, cwd=str(tmp_path), log_path=str(tmp_path / "log"))

    gate = tmp_path / "gate"
    os.mkfifo(gate)
    job = JobOnNodes([part("exit 7"), part(f"read line < {gate}; exit 0")])
    assert len(set(job.pids())) == 2
    assert job.poll() is None
    gate.write_text("go\n")
    assert Waiter().until(job.poll, deadline_s=30.0) == 7
    job.close()


def test_the_drill_holds_the_last_rank_of_the_last_node():
    scenario = node_scenario(plan(nproc_per_node=4))
    assert (scenario.job.nnodes, scenario.job.nproc_per_node) == (2, 4)
    assert (scenario.fault.rank, scenario.expect.culprit) == (7, 7)


def test_no_second_pair_where_no_rank_ever_started_and_one_where_some_did():
    nobody = CanaryRun(world_size=2, exit_code=1, last_line="node-b: no way")
    assert hopeless("candidate", [nobody]) == (
        "no rank of the candidate ever started: ranks 0, 1 left no record: node-b: no way"
    )
    assert hopeless("candidate", [canary_run(), nobody]) == ""


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"host": "a", "addr', '{"host": "a", "address": 1}', "[" * 5000])
def test_an_answer_of_a_node_that_is_garbled_is_its_words_and_no_bug(tmp_path, text):
    whole = '{"host": "a", "address": "10.0.0.1", "holds": true}'
    (tmp_path / "job.log").write_text(f"a banner\n0: {FACTS_WORD}{whole}\n")
    assert [one.host for one in facts_in(tmp_path)] == ["a"]  # the control
    (tmp_path / "job.1.log").write_text(f"{FACTS_WORD}{text}\n")
    with pytest.raises(MachineError, match="a node's answer is garbled"):
        facts_in(tmp_path)
