"""Jobs over several nodes, on two hosts of this machine: each has a network, a name, pids and files of its own.

They are reached as ssh reaches a host: the command is one word for a shell, and no variable comes along.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from two_hosts import TwoHosts

import hangdrill
from hangdrill.certify.canary_nodes import MultiNodeCell
from hangdrill.certify.cells import CellContext, CellResult
from hangdrill.certify.nodes_drill import NodesDrillCell
from hangdrill.certify.nodes_job import NodesJob, run_on_nodes
from hangdrill.certify.running import run_cell
from hangdrill.certify.stacks import Stack
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.launchers.agent_path import prepare_agent_path
from hangdrill.model.certify_plan import CertifyPlan, Measure, NodesPlan, StackPlan, Topology, WorkPlan
from hangdrill.model.errors import Interrupted
from hangdrill.model.fingerprint import Fingerprint
from hangdrill.model.verdict import Verdict
from hangdrill.report.progress import NoopListener

AS_SSH = ("env", "-i", "PATH=/usr/bin:/bin", "nsenter", "--target", "{node}", "--mount", "--uts", "--net", "--pid")
LIMIT_S = 60.0
MEASURES = (Measure.INIT_TIME, Measure.P2P_LATENCY, Measure.CHECKPOINT_SAVE_TIME, Measure.THROUGHPUT)


def nodes_of(hosts: TwoHosts, **changes) -> NodesPlan:
    given = {
        "names": (str(hosts.a.pid), str(hosts.b.pid)),
        "run": (*AS_SSH, "sh", "-c", "{command}"),
        "endpoint": "host-b:29400",
    }
    return NodesPlan(**{**given, **changes})


def context_on(directory: Path, nodes: NodesPlan) -> CellContext:
    side = StackPlan(python=sys.executable)
    plan = CertifyPlan(
        title="test",
        baseline=side,
        candidate=side,
        topologies=(Topology.MULTI_NODE,),
        workload=WorkPlan(nnodes=2, nproc_per_node=1, steps=3, pairs=1, env={"OURS": "a 'b' $c"}),
        measures=MEASURES,
        nodes=nodes,
    )
    cell_dir = directory / "work"
    cell_dir.mkdir()
    return CellContext(
        plan=plan,
        stacks={name: Stack(name=name, python=sys.executable) for name in ("baseline", "candidate")},
        out_dir=directory,
        cell_dir=cell_dir,
        environ=dict(os.environ),
        interrupt=Interrupt(),
        listener=NoopListener(),
    )


def with_torch(context: CellContext, torch: str) -> CellContext:
    """The stacks have a fingerprint, which says this."""
    found = Fingerprint(python="3.12.0", torch=torch)
    stacks = {name: msgspec.structs.replace(stack, fingerprint=found) for name, stack in context.stacks.items()}
    return msgspec.structs.replace(context, stacks=stacks)


def measured_on(directory: Path, nodes: NodesPlan) -> CellResult:
    context = context_on(directory, nodes)
    return run_cell(MultiNodeCell(context.plan), context)


def sleeping_job(hosts: TwoHosts, words: str, **changes) -> NodesJob:
    """A job of two processes on each node; in `words` a shell says what they are to do."""
    directory = hosts.shared / "job"
    directory.mkdir()
    given = {
        "nodes": nodes_of(hosts),
        "command": ("sh", "-c", f"{words} touch ready.$(hostname); sleep 600 & sleep 600"),
        "python": sys.executable,
        "environ": dict(os.environ),
        "named": (),
        "agent_path": prepare_agent_path(hosts.shared / "agent"),
        "directory": directory,
        "deadline_s": LIMIT_S,
    }
    return NodesJob(**{**given, **changes})


def sleepers(hosts: TwoHosts) -> list[str]:
    return [line for host in (hosts.a, hosts.b) for line in host.processes() if "sleep" in line]


def are_ready(hosts: TwoHosts) -> bool | None:
    ready = len(list((hosts.shared / "job").glob("ready.*"))) == 2
    return True if ready and len(sleepers(hosts)) >= 4 else None


@pytest.mark.torchrun
def test_a_real_pair_over_two_hosts_answers_every_line_with_numbers_of_both(hosts):
    result = measured_on(hosts.shared, nodes_of(hosts))
    assert result.why_not == ""
    backend, *others = [line for line in result.lines if "leaves it out" not in line.detail]
    assert (backend.verdict, backend.topology) == (Verdict.PASS, "multi-node")
    assert {line.id.rpartition("/")[2] for line in others} == {
        "init-time", "p2p-latency-4kb", "p2p-latency-4mb", "checkpoint-save-time", "throughput",
    }  # fmt: skip
    assert all(line.baseline and line.candidate for line in others)
    assert {line.verdict for line in others} == {Verdict.UNKNOWN}  # one pair decides nothing
    runs = msgspec.json.decode((hosts.shared / "work/runs.json").read_bytes())
    seen = {rank["facts"]["host"] for side in ("baseline", "candidate") for run in runs[side] for rank in run["ranks"]}
    assert seen == {"host-a", "host-b"}
    assert (hosts.a.processes(), hosts.b.processes()) == ([], [])


def test_a_node_that_cannot_be_reached_is_named_with_its_own_words(hosts):
    nodes = nodes_of(hosts, names=(str(hosts.a.pid), "999999999"))
    result = measured_on(hosts.shared, nodes)
    assert "999999999: nsenter: " in result.why_not
    assert {line.verdict for line in result.lines} == {Verdict.UNKNOWN}
    assert "try it by hand: env -i" in result.lines[0].mend


def test_a_directory_that_the_nodes_do_not_see_is_said_to_be_unshared(hosts):
    """At this place each host has a directory of its own."""
    directory = Path("/var/tmp") / hosts.shared.parent.name
    directory.mkdir()
    try:
        result = measured_on(directory, nodes_of(hosts))
    finally:
        subprocess.run(["rm", "-r", str(directory)], check=True)
    assert "OUT must lie on a file system that all nodes share" in result.why_not
    assert "--out" in result.lines[0].mend


def test_a_node_that_may_not_write_to_out_says_so(hosts):
    hosts.b.run("mount", "--bind", str(hosts.shared), str(hosts.shared))
    hosts.b.run("mount", "-o", "remount,bind,ro", str(hosts.shared))
    result = measured_on(hosts.shared, nodes_of(hosts))
    assert "host-b: cannot write to" in result.why_not
    assert "Read-only file system" in result.why_not


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("10.77.0.9:29400", "no node has the address of 10.77.0.9:29400"),
        ("nowhere:29400", "the name nowhere is unknown"),
    ],
)
def test_an_endpoint_that_is_no_node_is_refused_before_a_job_starts(hosts, endpoint, why):
    result = measured_on(hosts.shared, nodes_of(hosts, endpoint=endpoint))
    assert why in result.why_not
    assert not list(hosts.shared.glob("work/01-*"))


def test_a_command_that_starts_one_node_alone_is_found_out(hosts):
    words = tuple(word.replace("{node}", str(hosts.a.pid)) for word in AS_SSH)
    result = measured_on(hosts.shared, nodes_of(hosts, names=(), run=words, endpoint="host-a:29400"))
    assert "2 nodes are planned, and 1 answered" in result.why_not


def test_an_interface_that_a_node_lacks_is_named(hosts):
    result = measured_on(hosts.shared, nodes_of(hosts, interface="ib7"))
    assert "there is no interface ib7" in result.why_not
    assert "eth0" in result.why_not


def test_an_interrupt_ends_everything_on_every_node(hosts):
    interrupt = Interrupt()
    job = sleeping_job(hosts, "")

    class Watching(Interrupt):
        """Asks for the stop once all processes are there."""

        def check(self) -> None:
            if are_ready(hosts):
                interrupt.request()
            interrupt.check()

    with pytest.raises(Interrupted), Watching() as watching:
        run_on_nodes(job, watching)
    assert (hosts.a.processes(), hosts.b.processes()) == ([], [])
    interrupt.close()


def test_a_deadline_ends_everything_also_what_ignores_the_first_signal(hosts):
    end = run_on_nodes(sleeping_job(hosts, "trap '' TERM;", deadline_s=4.0), Interrupt())
    assert end.exit_code is None
    assert (hosts.a.processes(), hosts.b.processes()) == ([], [])


def test_one_node_that_fails_ends_the_others_and_is_named(hosts):
    end = run_on_nodes(sleeping_job(hosts, "test $(hostname) = host-a || { echo it is broken; exit 7; };"), Interrupt())
    assert end.exit_code == 7
    assert end.last_line == f"{hosts.b.pid}: it is broken"
    assert (hosts.a.processes(), hosts.b.processes()) == ([], [])


def test_a_killed_controller_leaves_nothing_on_any_node_for_long(hosts, tmp_path):
    job = sleeping_job(hosts, "", lease_s=3.0, deadline_s=600.0)
    (tmp_path / "job").write_bytes(pickle.dumps(job))
    program = (
        "import pickle, sys; from pathlib import Path; from hangdrill.drill.waiting import Interrupt;"
        "from hangdrill.certify.nodes_job import run_on_nodes;"
        "run_on_nodes(pickle.loads(Path(sys.argv[1]).read_bytes()), Interrupt())"
    )
    controller = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "job")], start_new_session=True)
    try:
        assert Waiter().until(lambda: are_ready(hosts), deadline_s=LIMIT_S)
    finally:
        controller.kill()
        controller.wait()
    assert len(sleepers(hosts)) >= 4  # the control: nobody else ends them
    gone = Waiter().until(lambda: not [*hosts.a.processes(), *hosts.b.processes()] or None, deadline_s=LIMIT_S)
    assert gone, [hosts.a.processes(), hosts.b.processes()]


@pytest.mark.torchrun
def test_a_hang_over_two_hosts_leaves_every_dump_and_names_the_rank_of_the_last_node(hosts):
    import torch

    context = with_torch(context_on(hosts.shared, nodes_of(hosts)), str(torch.__version__))
    result = run_cell(NodesDrillCell(context.plan), context)
    assert result.why_not == ""
    (line,) = result.lines
    assert (line.verdict, line.detail) == (Verdict.PASS, line.detail)
    recorded = msgspec.json.decode((hosts.shared / "work/run/result.json").read_bytes())
    assert recorded["expected_culprits"] == [1]
    assert (hosts.a.processes(), hosts.b.processes()) == ([], [])


@pytest.mark.torchrun
def test_a_drill_over_two_hosts_whose_ranks_have_another_torch_says_nothing_of_the_stack(hosts):
    context = with_torch(context_on(hosts.shared, nodes_of(hosts)), "2.15.0+of.another.build")
    result = run_cell(NodesDrillCell(context.plan), context)
    assert "rank 0 on host-" in result.why_not
    assert "and the candidate is 2.15.0+of.another.build" in result.why_not
    assert [line.verdict for line in result.lines] == [Verdict.UNKNOWN]


def test_a_drill_without_hangdrill_on_a_node_says_how_to_drill_by_hand(hosts):
    package = Path(hangdrill.__file__).parent
    hosts.b.run("mount", "-t", "tmpfs", "none", str(package))
    context = context_on(hosts.shared, nodes_of(hosts))
    result = run_cell(NodesDrillCell(context.plan), context)
    assert "the drill needs hangdrill on every node" in result.why_not
    assert "--nnodes 2" in result.lines[0].mend
