"""The whole collector against fake ranks: what it notices, in which order it pulls and lets go, and when it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from collector_tools import kinds, only, wait_until
from fake_plane import dump, idle_rank, operation, trace, waiting_rank

from hangdrill.collector import ranks as ranks_module
from hangdrill.collector import store as store_module
from hangdrill.model.errors import MachineError
from hangdrill.model.run import ArtifactKind, PullReason, RankState

ALL = {"dump", "trace", "stacks", "process"}


@pytest.fixture
def ranks():
    """Fake ranks of the test; all closed at its end."""
    made = []
    yield made
    for rank in made:
        rank.close()


@pytest.fixture
def process_rank(job):
    """Starts a fake rank as a process of its own."""
    started = []

    def start(rank, mode):
        program = Path(__file__).with_name("fake_plane.py")
        command = [sys.executable, str(program), str(job.sockets), str(rank), mode]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_a_stall_is_noticed_and_everything_pulled_from_every_rank(job, ranks, culprit):
    ranks += [(idle_rank if rank == culprit else waiting_rank)(job.sockets, rank) for rank in range(3)]
    job.start(world_size=3)
    job.await_event("complete")
    manifest = job.finish()
    assert "all_reduce #4 of default_pg pending for" in manifest.notice
    assert (manifest.complete, manifest.run_id, manifest.world_size) == (True, "hd-1", 3)
    for rank in range(3):
        assert kinds(manifest, rank) == ALL
        assert only(manifest, rank, ArtifactKind.DUMP).reason is PullReason.STALL
    assert [(pull.rank, pull.pid, pull.state, pull.answered) for pull in manifest.ranks] == [
        (rank, os.getpid(), RankState.RUNNING, True) for rank in range(3)
    ]


def test_a_healthy_job_is_left_alone(job, ranks):
    ranks += [idle_rank(job.sockets, 0), waiting_rank(job.sockets, 1, age_s=0.5)]
    job.start()
    wait_until(lambda: len(ranks[0].asked) > 20 and len(ranks[1].asked) > 20, "it was watched for a while")
    manifest = job.finish()
    assert (manifest.noticed_ns, manifest.complete, manifest.artifacts) == (None, False, ())
    for rank in ranks:
        assert rank.handlers_asked() <= {"fr_trace_json", "c10d_health_check"}


@pytest.mark.parametrize("behaviour", ["silent", "slow", "half", "garbage", "status", "disappears", "lies"])
def test_one_hostile_rank_costs_the_others_nothing(job, ranks, behaviour):
    ranks += [waiting_rank(job.sockets, 0, hostile={"*": behaviour}), *(waiting_rank(job.sockets, r) for r in (1, 2))]
    job.start(world_size=3)
    job.await_event("complete")
    manifest = job.finish()
    assert kinds(manifest, 1) == kinds(manifest, 2) == ALL
    assert "dump" not in kinds(manifest, 0)
    assert manifest.complete


@pytest.mark.parametrize("hostile", [0, 1, 2])
def test_a_rank_that_answers_late_is_pulled_last(job, ranks, hostile):
    late = {"hangdrill_dump": "silent"}
    ranks += [waiting_rank(job.sockets, rank, hostile=late if rank == hostile else {}) for rank in range(3)]
    job.start(world_size=3)
    job.await_event("complete")
    job.finish()
    assert [event.rank for event in job.events("pulled")][-1] == hostile


def test_a_rank_that_never_showed_up_is_given_up_and_said_so(job, ranks):
    ranks += [waiting_rank(job.sockets, 0)]
    job.start(world_size=3)
    job.await_event("complete")
    manifest = job.finish()
    assert [(pull.rank, pull.state) for pull in manifest.ranks] == [
        (0, RankState.RUNNING),
        (1, RankState.NEVER_SEEN),
        (2, RankState.NEVER_SEEN),
    ]
    assert manifest.ranks[2].notes == ("never seen: no socket that answers and no agent",)


def test_a_good_end_is_pulled_and_let_go_and_the_job_is_over(job, process_rank):
    processes = [process_rank(rank, "idle") for rank in range(2)]
    for rank, process in enumerate(processes):
        job.facts(rank, process.pid)
    job.start(world_size=2)
    for rank, process in enumerate(processes):
        job.announce(rank)
        job.await_ack(rank)
        process.stdin.close()
        process.wait()
    manifest = job.finish(ask=False)
    assert (manifest.noticed_ns, manifest.complete) == (None, True)
    for rank in range(2):
        artifact = only(manifest, rank, ArtifactKind.DUMP)
        assert (artifact.reason, kinds(manifest, rank)) == (PullReason.EXIT, {"dump"})
    assert [pull.state for pull in manifest.ranks] == [RankState.EXITED] * 2


def test_in_a_hang_no_rank_is_let_go_before_all_were_pulled(job, ranks):
    ranks += [idle_rank(job.sockets, 0), waiting_rank(job.sockets, 1, age_s=0.1)]
    job.start(world_size=2)
    job.await_event("rank", 1)
    job.announce(0, "exception", exception_type="ValueError", exception_message="no")
    job.await_ack(0)
    manifest = job.finish()
    order = [event.event.value for event in job.events()]
    assert order.index("acked") > max(index for index, name in enumerate(order) if name == "pulled")
    assert manifest.notice == "rank 0 raised ValueError: no"
    assert only(manifest, 0, ArtifactKind.DUMP).reason is PullReason.EXCEPTION
    assert manifest.ranks[0].exit.exception_type == "ValueError"
    assert job.acks() == {"rank_0.a0.ack"}, "rank 1 has not ended"


def test_what_a_rank_says_after_it_gave_up_does_not_replace_what_it_said_before(job, ranks):
    ranks += [waiting_rank(job.sockets, 0), waiting_rank(job.sockets, 1)]
    job.start(world_size=2)
    job.await_event("complete")
    asked = list(ranks[0].asked)
    ranks[0].answers["hangdrill_dump:gloo"] = dump(9)
    job.announce(0, "exception", exception_type="DistBackendError", in_distributed=True, last_sequence=4)
    job.await_ack(0)
    manifest = job.finish()
    assert only(manifest, 0, ArtifactKind.DUMP).reason is PullReason.STALL
    assert manifest.ranks[0].exit.exception_type == "DistBackendError"
    assert sum("hangdrill_dump" in target for target in ranks[0].asked[len(asked) :]) == 0
    assert len(job.events("noticed")) == 1


def test_a_rank_that_gave_no_dump_is_asked_for_it_once_more_at_its_end_and_for_nothing_else(job, ranks):
    ranks += [waiting_rank(job.sockets, 0, hostile={"hangdrill_dump": "status"}), waiting_rank(job.sockets, 1)]
    job.start(world_size=2)
    job.await_event("complete")
    ranks[0].hostile.clear()
    ranks[0].asked.clear()
    job.announce(0, "exception", exception_type="RuntimeError", in_distributed=True, last_sequence=4)
    job.await_ack(0)
    manifest = job.finish()
    assert ranks[0].handlers_asked() - {"fr_trace_json", "c10d_health_check"} == {"hangdrill_dump"}
    assert only(manifest, 0, ArtifactKind.DUMP).reason is PullReason.EXCEPTION
    assert only(manifest, 0, ArtifactKind.TRACE).reason is PullReason.STALL


def test_a_trace_from_before_the_exception_is_the_one_that_is_kept(job, ranks):
    ranks += [waiting_rank(job.sockets, 0, age_s=0.2), waiting_rank(job.sockets, 1, age_s=0.2)]
    job.start(world_size=2)
    wait_until(lambda: len(ranks[0].asked) > 3, "rank 0 was seen waiting")
    job.announce(0, "exception", exception_type="RuntimeError", in_distributed=True, last_sequence=4)
    ranks[0].answers["fr_trace_json:gloo"] = trace(operation(4, retired=True))
    job.await_ack(0)
    manifest = job.finish()
    stored = (job.evidence / only(manifest, 0, ArtifactKind.TRACE).path).read_bytes()
    assert b'"retired": false' in stored


def test_a_good_end_that_leaves_others_waiting_is_a_hang(job, ranks):
    ranks += [idle_rank(job.sockets, 0), waiting_rank(job.sockets, 1, age_s=0.0)]
    group = ({"name": "0", "desc": "default_pg", "ranks": [0, 1]},)
    job.facts(0, os.getpid(), groups=group)
    job.operations(0, collectives=3, last_ns=1)
    job.start(world_size=2)
    job.await_event("rank", 1)
    job.announce(0)
    job.await_ack(0)
    manifest = job.finish()
    assert manifest.notice == "rank 0 exited with 0 before all_reduce #4 of default_pg, in which rank 1 waits"
    assert kinds(manifest, 1) == ALL


def test_a_rank_that_is_killed_is_noticed_and_its_last_trace_kept(job, ranks, process_rank):
    killed = process_rank(0, "idle")
    ranks += [waiting_rank(job.sockets, 1, age_s=0.2)]
    job.facts(0, killed.pid)
    job.start(world_size=2)
    job.await_event("rank", 0)
    wait_until(lambda: len(ranks[0].asked) > 3, "both were watched")
    killed.kill()
    job.await_event("complete")
    manifest = job.finish()
    assert manifest.notice == "rank 0 is gone without announcing an exit"
    assert (manifest.ranks[0].state, manifest.ranks[0].answered) == (RankState.GONE, False)
    assert kinds(manifest, 0) == {"trace", "process"}
    assert only(manifest, 0, ArtifactKind.TRACE).reason is PullReason.GONE


def test_a_last_trace_that_the_rank_has_outrun_is_not_stored(job, ranks, process_rank):
    killed = process_rank(0, "idle")
    ranks += [waiting_rank(job.sockets, 1, age_s=0.2)]
    job.facts(0, killed.pid, groups=({"name": "0", "desc": "default_pg", "ranks": [0, 1]},))
    job.operations(0, collectives=4, last_ns=time.time_ns() + 3600 * 10**9)
    job.start(world_size=2)
    wait_until(lambda: len(ranks[0].asked) > 3, "both were watched")
    killed.kill()
    job.await_event("complete")
    manifest = job.finish()
    assert kinds(manifest, 0) == {"process"}
    assert [(count.name, count.collectives) for count in manifest.ranks[0].counts] == [("0", 4)]
    assert manifest.ranks[1].counts == (), "no agent counts there"


def test_the_manifest_keeps_the_state_of_the_moment_of_the_pull(job, process_rank):
    stopped = process_rank(0, "idle")
    process_rank(1, "waiting")
    job.facts(0, stopped.pid)
    job.start(world_size=2, stall_after_s=1e6, settle_s=0)
    job.await_event("complete")
    stopped.send_signal(signal.SIGSTOP)
    wait_until(lambda: job.events("rank")[-1].detail.startswith("stopped"), "it is stopped")
    (job.control / "collect_now").touch()
    wait_until(lambda: len(job.events("complete")) == 2, "the pull from the stopped rank")
    stopped.send_signal(signal.SIGCONT)
    wait_until(lambda: job.events("rank")[-1].detail.startswith("running"), "it runs again")
    job.announce(0)
    (job.control / "teardown").touch()
    manifest = job.finish(ask=False)
    assert (manifest.ranks[0].state, manifest.ranks[0].exit) == (RankState.STOPPED, None)


def test_no_progress_with_nothing_pending_is_noticed(job, ranks):
    ranks += [idle_rank(job.sockets, 0), idle_rank(job.sockets, 1)]
    for rank in range(2):
        job.operations(rank, p2p=3, last_ns=1)
    job.start(world_size=2, stall_after_s=0.3)
    job.await_event("complete")
    assert job.finish().notice.endswith("on ranks 0, 1; the recorder shows nothing pending")


def test_the_controller_may_ask_and_ask_again(job, ranks):
    ranks += [idle_rank(job.sockets, 0)]
    job.start(world_size=1)
    job.await_event("rank", 0)
    (job.control / "collect_now").touch()
    wait_until(lambda: len(job.events("pulled")) == 1, "the first pull")
    ranks[0].answers["hangdrill_dump:gloo"] = dump(7)
    os.utime(job.control / "collect_now")
    wait_until(lambda: len(job.events("pulled")) == 2, "the second pull")
    manifest = job.finish()
    dumps = [artifact for artifact in manifest.artifacts if artifact.kind is ArtifactKind.DUMP]
    assert [(a.path, a.reason) for a in dumps] == [
        ("rank_0.a0.dump.pickle", PullReason.ASKED),
        ("rank_0.a0.dump.2.pickle", PullReason.ASKED),
    ]


def test_a_job_that_goes_on_after_all_is_watched_anew(job, ranks):
    ranks += [waiting_rank(job.sockets, 0, sequence=4)]
    job.start(world_size=1)
    job.await_event("complete")
    ranks[0].answers["fr_trace_json:gloo"] = trace(operation(5, retired=True))
    wait_until(lambda: len(job.events("watching")) == 2, "it went on")
    ranks[0].answers["fr_trace_json:gloo"] = trace(operation(6, age_s=60))
    wait_until(lambda: len(job.events("noticed")) == 2, "the second stall")
    wait_until(lambda: len(job.events("complete")) == 2, "the second pull")
    assert job.finish().notice.startswith("all_reduce #6")


def test_an_operation_that_raised_is_no_recovery(job, ranks):
    ranks += [waiting_rank(job.sockets, 0), waiting_rank(job.sockets, 1)]
    job.start(world_size=2)
    job.await_event("complete")
    for rank in ranks:
        rank.answers["fr_trace_json:gloo"] = trace(operation(4, retired=True))
    seen = [len(rank.asked) for rank in ranks]
    wait_until(lambda: all(len(r.asked) > n + 5 for r, n in zip(ranks, seen, strict=True)), "it was watched on")
    job.finish()
    assert len(job.events("watching")) == len(job.events("noticed")) == 1


def test_a_restart_keeps_the_evidence_and_begins_anew(job, ranks):
    ranks += [waiting_rank(job.sockets, 0), waiting_rank(job.sockets, 1)]
    job.start(world_size=2)
    job.await_event("complete")
    for rank in ranks:
        rank.close()
    ranks += [waiting_rank(job.sockets, rank, attempt=1, sequence=7) for rank in range(2)]
    wait_until(lambda: len(job.events("complete")) == 2, "the second attempt was pulled")
    manifest = job.finish()
    dumps = sorted(a.path for a in manifest.artifacts if a.kind is ArtifactKind.DUMP)
    assert dumps == [f"rank_{rank}.a{attempt}.dump.pickle" for rank in range(2) for attempt in range(2)]
    assert [event.detail for event in job.events("restart")] == ["attempt 1"]
    assert manifest.notice.startswith("all_reduce #7")


def test_a_dead_ranks_socket_is_nobody(job, ranks):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(job.sockets / "rank_0.a3.sock"))
    ranks += [idle_rank(job.sockets, 0)]
    job.start(world_size=1)
    job.await_event("rank", 0)
    assert [(pull.rank, pull.attempt) for pull in job.finish().ranks] == [(0, 0)]


def test_teardown_ends_the_watch_and_lets_everybody_go(job, ranks):
    ranks += [idle_rank(job.sockets, 0)]
    job.start(world_size=1)
    job.await_event("rank", 0)
    (job.control / "teardown").touch()
    job.announce(0, "signal", code=15)
    manifest = job.finish(ask=False)
    assert job.events("stopping")[0].detail == "the job is being torn down"
    assert manifest.noticed_ns is None or manifest.complete


def test_a_foreign_job_ends_the_watch_when_its_ranks_are_gone(job, process_rank):
    processes = [process_rank(rank, "idle") for rank in range(2)]
    job.start(control=None, run_id="")
    wait_until(lambda: len({event.rank for event in job.events("rank")}) == 2, "both were seen")
    for process in processes:
        process.kill()
    manifest = job.finish(ask=False)
    assert [pull.state for pull in manifest.ranks] == [RankState.GONE] * 2
    assert (manifest.noticed_ns, manifest.artifacts) == (None, ())


@pytest.mark.parametrize(("long_s", "left"), [(0.0, {"trace", "process"}), (3600.0, set())])
def test_a_foreign_rank_that_dies_after_waiting_long_leaves_its_last_trace(
    job, process_rank, monkeypatch, long_s, left
):
    monkeypatch.setattr(ranks_module, "WAITS_LONG_S", long_s)
    waiting = process_rank(0, "patient")
    job.start(control=None, run_id="")
    job.await_event("rank", 0)
    waiting.kill()
    manifest = job.finish(ask=False)
    assert kinds(manifest, 0) == left
    assert manifest.noticed_ns is None


def test_a_disk_that_is_full_does_not_keep_a_rank_from_going(job, ranks, monkeypatch):
    ranks += [idle_rank(job.sockets, 0), idle_rank(job.sockets, 1)]
    job.start(world_size=2)
    job.await_event("rank", 1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module, "_write_all", full)
    job.announce(0)
    job.announce(1, "exception", exception_type="ValueError")
    job.await_ack(0)
    job.await_ack(1)
    with pytest.raises(MachineError, match="No space left on device"):
        job.finish()


def test_a_native_file_is_copied_and_never_asked_for_again(job, ranks, tmp_path):
    answers = {"fr_trace_json": trace(operation(4, age_s=60)), "fr_dump_file": b"ok"}
    ranks += [waiting_rank(job.sockets, 0, answers=answers, hostile={"hangdrill_dump": "status"})]
    native = tmp_path / "fr_0"
    native.write_bytes(dump(4))
    os.utime(native, ns=(time.time_ns(), time.time_ns()))
    job.start(world_size=1, backends=("nccl2",), native_prefix=str(tmp_path / "fr_"))
    job.await_event("complete")
    wait_until((job.evidence / "rank_0.a0.native.pickle").exists, "the copy")
    job.finish()
    assert "fr_dump_file" not in ranks[0].handlers_asked()
