"""The whole collector against fake ranks: what it notices, and what it pulls from whom in which order."""

import os
import time

import msgspec
import pytest
from collector_tools import kinds, only, wait_until
from fake_plane import dump, idle_rank, operation, trace, waiting_rank

from hangdrill.model.run import ArtifactKind, Manifest, PullReason, RankState

ALL = {"dump", "trace", "stacks", "process"}


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
    patient = {"fr_trace_json:gloo": trace(operation(4, age_s=0.5, timeout_ms=600_000))}
    ranks += [idle_rank(job.sockets, 0), waiting_rank(job.sockets, 1, answers=patient)]
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
    stuck = {"fr_trace_json:gloo": trace(operation(4, age_s=600, timeout_ms=600_000))}
    ranks += [waiting_rank(job.sockets, 0, answers=stuck)]
    job.start(world_size=1)
    job.await_event("complete")
    ranks[0].answers["fr_trace_json:gloo"] = trace(operation(5, retired=True))
    wait_until(lambda: len(job.events("watching")) == 2, "it went on")
    withdrawn = msgspec.json.decode((job.evidence / "manifest.json").read_bytes(), type=Manifest)
    assert (withdrawn.noticed_ns, withdrawn.notice) == (None, "")
    ranks[0].answers["fr_trace_json:gloo"] = trace(operation(6, age_s=60))
    wait_until(lambda: len(job.events("noticed")) == 2, "the second stall")
    wait_until(lambda: len(job.events("complete")) == 2, "the second pull")
    assert job.finish().notice.startswith("all_reduce #6")


def test_what_begins_after_the_timeout_is_no_recovery(job, ranks):
    """nccl2 lets a rank out of a hung batch of sends and receives when it times out, and the rank goes on a little."""
    stuck = {"fr_trace_json:gloo": trace(operation(4, age_s=60, timeout_ms=1))}
    ranks += [waiting_rank(job.sockets, 0, answers=stuck)]
    job.start(world_size=1)
    job.await_event("complete")
    ranks[0].answers["fr_trace_json:gloo"] = trace(operation(5, retired=True))
    seen = len(ranks[0].asked)
    wait_until(lambda: len(ranks[0].asked) > seen + 5, "it was watched on")
    job.finish()
    assert len(job.events("watching")) == len(job.events("noticed")) == 1


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
