"""When the collector tells of a hang: once, not before it is sure, and never of one that it takes back."""

import msgspec
import pytest
from collector_tools import wait_until
from fake_plane import operation, trace, waiting_rank

from hangdrill.delivery import DeliveryOptions
from hangdrill.delivery.record import read_calls, read_record
from hangdrill.model.scenario import Incident

LONG_MS = 600_000


@pytest.fixture
def delivery(tmp_path):
    """A hook that leaves a line a call."""
    hook = Incident(command=("sh", "-c", f"cat >> {tmp_path}/news; echo >> {tmp_path}/news"), timeout_s=60.0)
    return DeliveryOptions(url=str(tmp_path / "there"), job="train", run="hd-1", within_s=60.0, incident=hook)


def calls(tmp_path):
    try:
        return [msgspec.json.decode(line) for line in (tmp_path / "news").read_bytes().splitlines() if line]
    except FileNotFoundError:
        return []


def stuck(sequence=4, *, timeout_ms=LONG_MS, age_s=700):
    return {"fr_trace_json:gloo": trace(operation(sequence, age_s=age_s, timeout_ms=timeout_ms))}


def test_a_hang_is_told_once_with_what_was_delivered(job, ranks, tmp_path, delivery):
    ranks += [waiting_rank(job.sockets, 0, answers=stuck()), waiting_rank(job.sockets, 1, answers=stuck(3))]
    job.start(world_size=2, delivery=delivery)
    job.await_event("complete")
    job.finish()
    (news,) = calls(tmp_path)
    assert (news["job"], news["run_id"], news["attempt"], news["complete"]) == ("train", "hd-1", 0, True)
    assert news["notice"] == job.read_manifest().notice
    assert read_record(job.evidence).complete
    assert {one["path"] for one in news["artifacts"]} <= {one.path for one in read_record(job.evidence).artifacts}


def test_a_hang_that_is_taken_back_is_told_to_nobody(job, ranks, tmp_path, delivery):
    ranks += [waiting_rank(job.sockets, 0, answers=stuck(age_s=500))]
    job.start(world_size=1, delivery=delivery)
    job.await_event("complete")
    ranks[0].answers["fr_trace_json:gloo"] = trace(operation(5, retired=True))
    wait_until(lambda: len(job.events("watching")) == 2, "it went on")
    job.finish()
    assert calls(tmp_path) == []
    assert read_calls(job.evidence) is None


def test_after_the_operations_own_timeout_it_is_told_while_the_job_still_hangs(job, ranks, tmp_path, delivery):
    ranks += [waiting_rank(job.sockets, 0, answers=stuck(timeout_ms=1))]
    job.start(world_size=1, delivery=delivery)
    wait_until(lambda: calls(tmp_path), "the hook was called while the job hangs")
    job.finish()
    assert len(calls(tmp_path)) == 1


def test_a_job_that_ends_well_is_told_to_nobody(job, ranks, tmp_path, delivery):
    ranks += [waiting_rank(job.sockets, 0, age_s=0)]
    job.start(world_size=1, delivery=delivery)
    job.await_event("rank")
    job.finish()
    assert calls(tmp_path) == []


def test_ranks_are_let_go_while_a_hook_hangs(job, ranks, tmp_path):
    hook = Incident(command=("sleep", "1234"), timeout_s=1.0)
    hanging = DeliveryOptions(url=str(tmp_path / "there"), within_s=60.0, incident=hook)
    ranks += [waiting_rank(job.sockets, 0), waiting_rank(job.sockets, 1)]
    job.start(world_size=2, delivery=hanging)
    wait_until(lambda: len(job.events("rank")) >= 2, "both ranks were seen")
    job.announce(0, "exception", code=1, exception_type="ValueError")
    job.await_ack(0)
    job.finish()
    (call,) = read_calls(job.evidence).calls
    assert call.timed_out


def test_a_hang_of_each_attempt_is_told_with_its_attempt(job, ranks, tmp_path, delivery):
    ranks += [waiting_rank(job.sockets, 0, answers=stuck())]
    job.start(world_size=1, delivery=delivery)
    job.await_event("complete")
    job.announce(0, "exception", code=1, exception_type="ValueError")
    job.await_ack(0)
    ranks += [waiting_rank(job.sockets, 0, attempt=1, answers=stuck(9))]
    job.await_event("restart")
    wait_until(lambda: len(job.events("complete")) == 2, "the second hang was pulled")
    job.finish()
    assert [news["attempt"] for news in calls(tmp_path)] == [0, 1]
    assert len({news["key"] for news in calls(tmp_path)}) == 2
