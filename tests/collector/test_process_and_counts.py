"""What is known from outside: /proc, and the agent's own count of operations."""

import os
import signal
import subprocess
import sys

import msgspec
import pytest
from collector_tools import wait_until

from hangdrill.collector import stacks
from hangdrill.collector.operations_file import OperationsFile, Progress, SlotCount, count_groups
from hangdrill.collector.procfs import process_state, read_process, read_stat
from hangdrill.model.run import AgentFacts, GroupCount, RankState


@pytest.fixture
def child():
    script = "import sys; print('ready', flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def state_of(child):
    return process_state(child.pid)


def test_running_stopped_and_gone_are_told_apart(child):
    ticks = read_stat(child.pid).started_ticks
    assert process_state(child.pid, ticks) is RankState.RUNNING
    child.send_signal(signal.SIGSTOP)
    wait_until(lambda: state_of(child) is RankState.STOPPED, "SIGSTOP took")
    child.send_signal(signal.SIGCONT)
    wait_until(lambda: state_of(child) is RankState.RUNNING, "SIGCONT took")
    child.kill()
    wait_until(lambda: state_of(child) is RankState.GONE, "a zombie counts as gone")
    assert read_stat(child.pid).letter == "Z"


def test_another_process_with_the_same_pid_is_not_the_rank(child):
    ticks = read_stat(child.pid).started_ticks
    assert process_state(child.pid, ticks - 1) is RankState.GONE


def test_a_look_at_a_process_shows_what_the_kernel_knows(child):
    record = read_process(child.pid, looked_ns=7)
    assert (record.pid, record.looked_ns, record.state) == (child.pid, 7, RankState.RUNNING)
    assert record.cmdline[0] == sys.executable
    assert record.status["PPid"] == str(os.getpid())
    assert [thread.id for thread in record.threads] == [child.pid]
    assert child.pid in read_process(os.getpid(), looked_ns=7).children


def test_a_look_at_nobody_says_gone(child):
    child.kill()
    child.wait()
    assert read_process(child.pid, looked_ns=7).state is RankState.GONE
    assert read_stat(child.pid) is None


def test_the_agents_count_is_read_while_it_changes(job):
    job.operations(0, collectives=3, p2p=2, last_ns=99)
    counts = OperationsFile(job.control / "rank_0.a0.ops")
    assert counts.progress() == Progress(steps=0, last_operation_ns=99)
    assert (counts.slot(0), counts.slot(1)) == (
        SlotCount(collectives=3, p2p=2, last_operation_ns=99),
        SlotCount(collectives=0, p2p=0),
    )
    assert (counts.slot(-1), counts.slot(256)) == (None, None)
    job.operations(0, collectives=4, p2p=2, last_ns=100)
    assert counts.slot(0) == SlotCount(collectives=4, p2p=2, last_operation_ns=100)
    counts.close()


def test_counts_belong_to_the_groups_of_the_facts_and_only_a_pre_hook_counts_everything(job):
    job.operations(0, collectives=3, p2p=2, last_ns=99)
    group = GroupCount(name="0", desc="default_pg", ranks=(0, 1))
    facts = AgentFacts(rank=0, pid=1, groups=(group,))
    counts = OperationsFile(job.control / "rank_0.a0.ops")
    counted = GroupCount(name="0", desc="default_pg", ranks=(0, 1), collectives=3, p2p=2, last_operation_ns=99)
    assert count_groups(counts, facts) == (counted,)
    assert count_groups(counts, msgspec.structs.replace(facts, placement="wrapped")) == ()
    counts.close()


@pytest.mark.parametrize("data", [b"", b"short", b"\0" * 16448])
def test_another_file_is_no_ops_file(tmp_path, data):
    path = tmp_path / "rank_0.a0.ops"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"rank_0|empty"):
        OperationsFile(path)


@pytest.fixture
def real_pyspy(monkeypatch):
    monkeypatch.undo()
    stacks.find_pyspy.cache_clear()
    if stacks.find_pyspy() is None:
        pytest.skip("py-spy is not installed")


def test_stacks_of_a_stopped_process_come_from_outside(child, real_pyspy):
    child.send_signal(signal.SIGSTOP)
    wait_until(lambda: state_of(child) is RankState.STOPPED, "SIGSTOP took")
    text = stacks.dump_with_pyspy(child.pid)
    assert isinstance(text, bytes), text
    assert b"<module>" in text
    assert state_of(child) is RankState.STOPPED, "looking must not wake it"


def test_pyspy_that_fails_or_is_missing_is_a_sentence(real_pyspy, monkeypatch):
    assert stacks.dump_with_pyspy(2**22 + 1).startswith("py-spy: ended with")
    monkeypatch.setattr(stacks, "find_pyspy", lambda: None)
    assert stacks.dump_with_pyspy(1).startswith("py-spy: not installed")
