"""Pulling from one rank: the roads, what each failure spares the next, and what is worth keeping."""

import os
import subprocess
import sys
import time

import pytest
from fake_plane import NO_RECORDER, FakeRank, dump, operation, trace, waiting_rank

from hangdrill.collector.control import RankKey
from hangdrill.collector.control_plane import RankSocket
from hangdrill.collector.native import NativeFile
from hangdrill.collector.roads import PullOrder, pull_rank
from hangdrill.collector.sources import LEGACY, RecorderSource, sources_of
from hangdrill.collector.store import EvidenceStore
from hangdrill.collector.traces import read_trace
from hangdrill.model.run import PullReason, RankState

KEY = RankKey(0, 0)
GLOO = RecorderSource(backend="gloo")


@pytest.fixture
def pull(sockets, tmp_path):
    """Pulls from rank 0 and tells (roads in the order they were stored, report)."""
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    store = EvidenceStore(evidence)
    descriptor = os.open(sockets, os.O_RDONLY | os.O_DIRECTORY)

    def run(**changes):
        order = PullOrder(
            **{
                "key": KEY,
                "reason": PullReason.STALL,
                "state": RankState.RUNNING,
                "socket": RankSocket(descriptor, "rank_0.a0.sock"),
                "sources": (GLOO,),
                "pid": os.getpid(),
                **changes,
            }
        )
        before = len(store.manifest.artifacts)
        report = pull_rank(order, store)
        return [artifact.road for artifact in store.manifest.artifacts[before:]], report

    run.store = store
    yield run
    os.close(descriptor)


def content(pull, road):
    (artifact,) = [a for a in pull.store.manifest.artifacts if a.road == road]
    return (pull.store.directory / artifact.path).read_bytes()


def test_a_rank_that_answers_gives_everything_the_surest_first(pull, sockets):
    with waiting_rank(sockets, 0) as rank:
        roads, report = pull()
    assert roads == ["fr_trace_json", "handler", "dump_traceback", "proc"]
    assert (report.answered, report.notes, report.entries) == (True, (), {GLOO: 4})
    assert content(pull, "handler") == rank.answers["hangdrill_dump:gloo"]
    assert [target for target in rank.asked if "hangdrill_dump" in target] == [
        "/handler/hangdrill_dump?backend=gloo&stacks=0"
    ]


def test_stacks_are_asked_for_where_the_recorder_has_them(pull, sockets):
    answers = {"fr_trace_json:nccl2": trace(operation(4)), "hangdrill_dump:nccl2": dump(4)}
    with FakeRank(sockets, 0, answers=answers) as rank:
        pull(sources=(RecorderSource(backend="nccl2"),))
    assert [target[-8:] for target in rank.asked if "hangdrill_dump" in target] == ["stacks=0", "stacks=1"]


def test_a_rank_that_holds_its_gil_is_asked_once_and_then_from_outside(pull, sockets):
    hostile = {"hangdrill_dump": "silent", "dump_traceback": "silent"}
    with waiting_rank(sockets, 0, hostile=hostile) as rank:
        roads, report = pull()
    assert roads == ["fr_trace_json", "proc"]
    assert "dump_traceback" not in rank.handlers_asked()
    assert report.answered
    assert report.notes[0] == "hangdrill_dump: no answer before the deadline"
    assert report.notes[1].startswith("py-spy: not installed")


def test_a_rank_that_does_not_answer_at_all_leaves_what_was_seen_before(pull, sockets):
    seen = read_trace(trace(operation(4)), GLOO)
    with waiting_rank(sockets, 0, hostile={"*": "silent"}) as rank:
        roads, report = pull(latest=(seen,))
    assert roads == ["fr_trace_json", "proc"]
    assert rank.handlers_asked() == {"fr_trace_json"}
    assert not report.answered
    assert content(pull, "fr_trace_json") == seen.body


@pytest.mark.parametrize("behaviour", ["half", "garbage", "status", "disappears", "lies"])
def test_a_bad_dump_is_not_stored_as_one_and_its_reason_is_noted(pull, sockets, behaviour):
    with waiting_rank(sockets, 0, hostile={"hangdrill_dump": behaviour}):
        roads, report = pull()
    assert "handler" not in roads
    assert roads[0] == "fr_trace_json"
    assert report.notes[0].startswith(("hangdrill_dump", "handler"))


def test_a_rank_that_is_gone_is_not_asked(pull, sockets):
    seen = read_trace(trace(operation(4)), GLOO)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with waiting_rank(sockets, 0) as rank:
        roads, report = pull(state=RankState.GONE, latest=(seen,), pid=child.pid)
    assert (roads, rank.asked, report.answered) == (["fr_trace_json", "proc"], [], False)


def test_nothing_recent_seen_before_is_said_so(pull):
    roads, report = pull(state=RankState.GONE, pid=None)
    assert roads == []
    assert report.notes == ("no trace: the rank is gone, and none that the collector saw before is recent enough",)


def test_what_was_seen_before_the_exception_beats_what_is_said_after_it(pull, sockets):
    before = read_trace(trace(operation(4)), GLOO)
    answers = {"fr_trace_json:gloo": trace(operation(4, retired=True))}
    with waiting_rank(sockets, 0, answers=answers):
        pull(before_the_end=before)
    assert content(pull, "fr_trace_json") == before.body


def test_an_orderly_end_costs_one_question(pull, sockets):
    with waiting_rank(sockets, 0) as rank:
        roads, _ = pull(brief=True, reason=PullReason.EXIT)
    assert (roads, rank.asked) == (["handler"], ["/handler/hangdrill_dump?backend=gloo&stacks=0"])


def test_a_second_dump_is_kept_only_when_it_holds_more(pull, sockets):
    with waiting_rank(sockets, 0) as rank:
        _, report = pull()
        for entries, kept in ((4, False), (2, False), (5, True)):
            rank.answers["hangdrill_dump:gloo"] = dump(entries)
            roads, report = pull(entries=report.entries)
            assert ("handler" in roads) is kept, entries
    assert (pull.store.directory / "rank_0.a0.dump.2.pickle").read_bytes() == rank.answers["hangdrill_dump:gloo"]


def test_both_recorders_of_a_rank_are_kept_and_empty_ones_are_not(pull, sockets):
    answers = {"hangdrill_dump:gloo": dump(2), "hangdrill_dump:nccl2": dump(1), "hangdrill_dump:nccl": dump(0)}
    traces = {f"fr_trace_json:{name}": trace(operation(1)) for name in ("gloo", "nccl2")}
    with FakeRank(sockets, 0, answers={**answers, **traces, "fr_trace_json": NO_RECORDER}):
        roads, _ = pull(sources=sources_of(["cpu:gloo,cuda:nccl2"]))
    assert roads.count("handler") == 2
    assert roads.count("fr_trace_json") == 2


def test_an_empty_dump_is_evidence_when_there_is_no_other(pull, sockets):
    answers = {"fr_trace_json": NO_RECORDER, "hangdrill_dump": dump(0)}
    with FakeRank(sockets, 0, answers=answers):
        roads, _ = pull(sources=sources_of(["nccl2"]))
    assert roads == ["handler", "proc"]


def test_an_empty_dump_of_a_recorder_that_is_not_the_ranks_is_no_evidence(pull, sockets):
    answers = {"dump_nccl_trace_pickle": dump(0), "dump_nccl_trace_json": trace()}
    with FakeRank(sockets, 0, answers=answers):
        roads, _ = pull(sources=(LEGACY,), live=(GLOO,), pid=None)
    assert "dump_nccl_trace_pickle" not in roads


def test_an_empty_dump_is_not_asked_for_its_stacks(pull, sockets):
    nccl2 = RecorderSource(backend="nccl2")
    with FakeRank(sockets, 0, answers={"fr_trace_json:nccl2": trace(), "hangdrill_dump:nccl2": dump(0)}) as rank:
        pull(sources=(nccl2,), pid=None)
    assert [target for target in rank.asked if "hangdrill_dump" in target] == [
        "/handler/hangdrill_dump?backend=nccl2&stacks=0"
    ]


def test_a_dump_is_stamped_when_it_was_asked_for_and_not_when_its_stacks_were_symbolised(pull, sockets):
    before_ns = time.time_ns()
    with waiting_rank(sockets, 0):
        pull(pid=None)
    times_ns = {artifact.road: artifact.pulled_ns for artifact in pull.store.manifest.artifacts}
    assert before_ns <= times_ns["handler"] <= times_ns["dump_traceback"]


def test_without_an_agent_the_trace_and_the_stacks_are_what_there_is(pull, sockets):
    answers = {"fr_trace_json:gloo": trace(operation(4)), "dump_traceback": b"Thread 1"}
    with FakeRank(sockets, 0, answers=answers):
        roads, report = pull()
    assert roads == ["fr_trace_json", "dump_traceback", "proc"]
    assert report.notes == ("hangdrill_dump: this process has no such handler",)


def test_legacy_has_roads_of_its_own(pull, sockets):
    answers = {"dump_nccl_trace_json": trace(operation(4)), "dump_nccl_trace_pickle": dump(4)}
    with FakeRank(sockets, 0, answers=answers) as rank:
        roads, _ = pull(sources=(LEGACY,))
    assert roads[:2] == ["dump_nccl_trace_json", "dump_nccl_trace_pickle"]
    assert "/handler/dump_nccl_trace_pickle?includestacktraces=true" in rank.asked


def test_torch_is_asked_for_its_own_file_only_when_there_is_none(pull, sockets, tmp_path):
    nccl2 = RecorderSource(backend="nccl2")
    answers = {"fr_trace_json": trace(operation(4)), "fr_dump_file": b"ok"}
    native = NativeFile(str(tmp_path / "fr_"), 0)
    with FakeRank(sockets, 0, answers=answers) as rank:
        native.path.write_bytes(dump(3))
        pull(sources=(nccl2,), native=native)
        assert "fr_dump_file" not in rank.handlers_asked()
        native.path.unlink()
        pull(sources=(nccl2,), native=native)
        assert "fr_dump_file" in rank.handlers_asked()


@pytest.mark.parametrize(("source", "dump_answer"), [(GLOO, None), (RecorderSource(backend="nccl2"), dump(4))])
def test_torch_is_not_asked_for_its_own_file_when_it_cannot_or_need_not(pull, sockets, tmp_path, source, dump_answer):
    answers = {"fr_trace_json": trace(operation(4)), "fr_dump_file": b"ok"}
    if dump_answer:
        answers["hangdrill_dump"] = dump_answer
    with FakeRank(sockets, 0, answers=answers) as rank:
        pull(sources=(source,), native=NativeFile(str(tmp_path / "fr_"), 0))
    assert "fr_dump_file" not in rank.handlers_asked()
