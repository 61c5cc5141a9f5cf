"""How ranks and jobs end before the collector: who is let go when, what is kept of whom, and when it ends itself."""

import os
import signal
import socket
import time

import pytest
from collector_tools import kinds, only, wait_until
from fake_plane import dump, idle_rank, operation, trace, waiting_rank

from hangdrill.collector import ranks as ranks_module
from hangdrill.collector import store as store_module
from hangdrill.model.errors import MachineError
from hangdrill.model.run import ArtifactKind, PullReason, RankState

ALL = {"dump", "trace", "stacks", "process"}


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


def test_a_restart_keeps_the_evidence_and_begins_anew(job, ranks, tmp_path):
    later = tmp_path / "later"
    later.mkdir()
    ranks += [waiting_rank(job.sockets, 0), waiting_rank(job.sockets, 1)]
    job.start(world_size=2)
    job.await_event("complete")
    for rank in ranks:
        rank.close()
    ranks += (again := [waiting_rank(later, rank, attempt=1, sequence=7) for rank in range(2)])
    for rank in again:  # both are there at once: their operation has been pending for long, and the pull comes once
        rank.path = rank.path.rename(job.sockets / rank.path.name)

    def dumps():
        return sorted(a.path for a in job.read_manifest().artifacts if a.kind is ArtifactKind.DUMP)

    wait_until(lambda: len(dumps()) == 4 or None, "the second attempt was pulled")
    manifest = job.finish()
    assert dumps() == [f"rank_{rank}.a{attempt}.dump.pickle" for rank in range(2) for attempt in range(2)]
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


class _GoesOnWhilePulled(dict):
    """The answers of a rank that enters its next operation while it is asked for its dump."""

    def __init__(self, answers, enter):
        super().__init__(answers)
        self._enter = enter

    def get(self, key, default=None):
        if str(key).startswith("hangdrill_dump"):
            self._enter()
        return super().get(key, default)

    def __getitem__(self, key):
        if str(key).startswith("hangdrill_dump"):
            self._enter()
        return super().__getitem__(key)


def test_counts_are_not_older_than_the_dump_beside_them(job, ranks, process_rank):
    groups = ({"name": "0", "desc": "default_pg", "ranks": [0, 1]},)
    late, waiting = idle_rank(job.sockets, 0, sequence=4), waiting_rank(job.sockets, 1)
    ranks += [late, waiting]
    for rank in (0, 1):
        job.facts(rank, os.getpid(), groups=groups)
        job.operations(rank, collectives=3 + rank, last_ns=1)
    late.answers = _GoesOnWhilePulled(late.answers, lambda: job.operations(0, collectives=4, last_ns=2))
    job.start(world_size=2)
    job.await_event("complete")
    manifest = job.finish()
    assert [count.collectives for count in manifest.ranks[0].counts] == [4]
