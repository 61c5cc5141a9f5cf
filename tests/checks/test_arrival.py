"""every-rank-dumped quotes the arrival table, and arrival-as-known holds it against what arrived."""

from healthy_runs import WORLD, held_run, lose_rank, mutate, none_run, scenario, with_agent

from hangdrill.checks.arrival_known import CHECK as AS_KNOWN
from hangdrill.checks.every_rank_dumped import CHECK
from hangdrill.model.run import Manifest, RankPull, RankState
from hangdrill.model.scenario import FaultKind, Trigger
from hangdrill.model.verdict import Verdict

NATIVE = Trigger.NATIVE


def nccl2_run(*dumping, fault=FaultKind.HOLD):
    """A stall of rank 1 under nccl2 with torch alone: only these ranks left a dump."""
    run = held_run(scenario=scenario(recorder={"trigger": NATIVE}, fault={"kind": fault}), manifest=Manifest())
    for rank in WORLD:
        run = with_agent(run, rank, backend_class="ProcessGroupNCCL2", torch="2.15.0+cu132")
        run = run if rank in dumping else lose_rank(run, rank)
    return run


def test_the_known_loss_of_the_stalled_ranks_dump_passes_as_known():
    answer = AS_KNOWN.judge(nccl2_run(0, 2, 3))
    assert answer.verdict is Verdict.PASS
    assert answer.detail.startswith("ranks 0, 2, 3 left a dump, as known: nccl2 dumps only where")


def test_a_torch_that_delivers_more_or_less_than_is_known_is_noticed():
    more, less = AS_KNOWN.judge(nccl2_run(0, 1, 2, 3)), AS_KNOWN.judge(nccl2_run(0, 2))
    assert (more.verdict, less.verdict) == (Verdict.FAIL, Verdict.FAIL)
    assert "rank 1: a dump arrived, though it is known not to" in more.detail
    assert "rank 3: no dump arrived, though one is known to" in less.detail
    assert "hangdrill/arrival/table.py" in more.mend


def test_a_dump_that_a_script_may_have_written_says_nothing_of_torch():
    script = scenario(recorder={"trigger": NATIVE}, job={"workload": None, "script": "/train.py"})
    answer = AS_KNOWN.judge(mutate(nccl2_run(0, 1, 2, 3), scenario=script))
    assert answer.verdict is Verdict.PASS
    assert answer.detail.startswith("ranks 0, 1, 2, 3 left a dump; rank 1: the script may have written it")
    assert AS_KNOWN.judge(mutate(nccl2_run(0, 2), scenario=script)).verdict is Verdict.FAIL


def test_the_kind_of_fault_decides_what_is_known():
    assert AS_KNOWN.judge(nccl2_run(0, 1, 2, 3, fault=FaultKind.WRONG_OP)).verdict is Verdict.PASS
    assert AS_KNOWN.judge(nccl2_run(fault=FaultKind.RAISE)).verdict is Verdict.PASS


def test_nothing_is_known_of_a_backend_that_was_never_measured():
    run = nccl2_run(0, 2, 3)
    for rank in WORLD:
        run = with_agent(run, rank, backend_class="FancyBackend")
    assert AS_KNOWN.judge(run).verdict is Verdict.UNKNOWN


def test_a_trace_from_before_a_stop_may_be_there_or_not():
    stopped = held_run(scenario=scenario(fault={"kind": FaultKind.STOP}))
    assert AS_KNOWN.judge(stopped).verdict is Verdict.PASS
    assert AS_KNOWN.judge(lose_rank(stopped, 1)).verdict is Verdict.PASS
    assert AS_KNOWN.judge(lose_rank(stopped, 0)).verdict is Verdict.FAIL


def test_native_gloo_fails_with_the_reason_and_the_mend():
    run = held_run(scenario=scenario(recorder={"trigger": NATIVE}), manifest=Manifest(complete=True))
    for rank in WORLD:
        run = lose_rank(run, rank)
    answer = CHECK.judge(run)
    assert answer.verdict is Verdict.FAIL
    assert answer.detail == (
        "0 of 4 dumps arrived; ranks 0, 1, 2, 3: missing: gloo has no abort hook, so torch never dumps by itself"
    )
    assert answer.mend == 'use trigger = "collector"'


def test_missing_dump_quotes_what_the_collector_saw():
    run = lose_rank(held_run(), 2)
    pull = RankPull(rank=2, state=RankState.GONE, notes=("the socket refused",))
    answer = CHECK.judge(mutate(run, manifest=mutate(run.manifest, ranks=(pull,))))
    assert answer.detail == "3 of 4 dumps arrived; rank 2: missing: the process was last seen gone, the socket refused"


def test_dump_that_was_not_expected_is_a_remark():
    answer = CHECK.judge(held_run(scenario=scenario(expect={"dumps": (0, 2, 3)})))
    assert (answer.verdict, answer.detail) == (
        Verdict.PASS,
        "3 of 3 dumps arrived; rank 1 left one too, which was not expected",
    )


def test_notice_is_quoted_where_no_hang_was_expected():
    manifest = mutate(none_run().manifest, noticed_ns=1, notice="all_reduce #4 pending for 4.0 s")
    answer = CHECK.judge(none_run(manifest=manifest))
    assert answer.detail == "the collector noticed all_reduce #4 pending for 4.0 s, but no hang was expected"
