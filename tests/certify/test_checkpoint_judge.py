"""Which failures are version trouble, what is one-way, and what that means for the upgrade."""

import pytest
from checkpoint_cases import row, table

from hangdrill.certify.checkpoint_judge import BAD_ENDS, judged
from hangdrill.certify.checkpoint_lines import (
    WAY_BACK,
    KnownGood,
    checkpoint_lines,
    one_way_difference,
    unresolved_of,
)
from hangdrill.model.receipt import CheckpointOutcome as Outcome
from hangdrill.model.verdict import Verdict
from hangdrill.report.checkpoint_table import cell_word, pairs_markdown, reasons

KNOWN = KnownGood(own="cells/checkpoint/baseline/plain-sync", step="3")
NAMED = KnownGood(own=KNOWN.own, step="3", given="/ckpt/step_900", detail="the baseline reads 9 tensors")
COPIES = ("cells/checkpoint/candidate/plain-sync.copy",)
SIDES = {"a": "baseline", "b": "candidate"}


def outcomes(pairs):
    return {f"{pair.saved_by}>{pair.restored_by}": (pair.outcome, pair.one_way) for pair in judged(pairs)}


def lines(outcomes, *, known=KNOWN, copies=COPIES, declared=("torch",)):
    pairs = judged(row(SIDES[pair.saved_by], SIDES[pair.restored_by], pair.outcome) for pair in table(outcomes))
    found = checkpoint_lines(pairs, known, copies=copies, declared=declared)
    return {line.id.rpartition("/")[2]: line for line in found}


def test_all_equal_is_neither_one_way_nor_anything():
    assert set(outcomes(table({})).values()) == {(Outcome.EQUAL, False)}


@pytest.mark.parametrize("outcome", BAD_ENDS)
def test_a_way_that_only_goes_forth_is_one_way(outcome):
    found = outcomes(table({"b>a": outcome}))
    assert found["b>a"] == (outcome, True)
    assert found["a>b"] == (Outcome.EQUAL, False)


def test_no_version_is_blamed_when_the_saver_cannot_restore_it_either():
    found = judged(table({"b>a": Outcome.REFUSED, "b>b": Outcome.REFUSED}))
    assert [(pair.outcome, pair.one_way) for pair in found if pair.saved_by == "b"] == [(Outcome.FAILED, False)] * 2
    assert "the stack that saved it cannot restore it either" in found[2].detail


def test_no_version_is_blamed_when_it_is_unknown_whether_the_saver_can():
    assert outcomes(table({"b>a": Outcome.REFUSED, "b>b": Outcome.UNKNOWN}))["b>a"] == (Outcome.UNKNOWN, False)


@pytest.mark.parametrize("outcome", [Outcome.DAMAGED, Outcome.PARTIAL, Outcome.UNKNOWN])
def test_damage_and_ignorance_are_never_one_way(outcome):
    assert outcomes(table({"b>a": outcome}))["b>a"] == (outcome, False)


def test_two_refusals_are_two_way_trouble():
    found = outcomes(table({"b>a": Outcome.REFUSED, "a>b": Outcome.REFUSED}))
    assert (found["b>a"], found["a>b"]) == ((Outcome.REFUSED, False), (Outcome.REFUSED, False))


def test_each_layout_is_judged_by_its_own_rows():
    pairs = [*table({"b>a": Outcome.REFUSED}), *table({"b>b": Outcome.REFUSED}, layout="fsdp2")]
    found = {(pair.layout, pair.saved_by, pair.restored_by): pair for pair in judged(pairs)}
    assert found["plain", "b", "a"].one_way
    assert found["fsdp2", "b", "b"].outcome is Outcome.FAILED


def test_all_equal_passes_every_line():
    assert {line.verdict for line in lines({}, known=NAMED).values()} == {Verdict.PASS}


def test_the_drills_own_checkpoint_is_no_last_known_good_of_the_real_job():
    found = lines({})
    assert {name for name, line in found.items() if line.verdict is not Verdict.PASS} == {"last-known-good"}
    line = found["last-known-good"]
    assert line.verdict is Verdict.UNKNOWN
    assert "the plan names none of the real job" in line.detail
    assert "checkpoint.known_good" in line.mend


@pytest.mark.parametrize("named", [True, False])
def test_a_baseline_that_does_not_restore_its_own_has_no_last_known_good(named):
    assert lines({"a>a": Outcome.FAILED}, known=NAMED if named else KNOWN)["last-known-good"].verdict is Verdict.FAIL


def test_a_one_way_candidate_fails_the_way_back_and_says_where_to_restart():
    found = lines({"b>a": Outcome.REFUSED})
    assert {name: line.verdict for name, line in found.items()} == {
        "own": Verdict.PASS,
        "forward": Verdict.PASS,
        "way-back": Verdict.FAIL,
        "last-known-good": Verdict.UNKNOWN,
        "duplicate": Verdict.PASS,
    }
    assert "one-way" in found["way-back"].detail
    assert "restarts from the baseline's last checkpoint" in found["way-back"].detail
    assert f"the drill's own did: {KNOWN.own} (step 3)" in found["way-back"].detail
    assert "declared" in found["way-back"].mend


def test_a_declared_one_way_passes_while_an_older_checkpoint_is_proven():
    found = lines({"b>a": Outcome.REFUSED}, declared=("checkpoint/way-back",))["way-back"]
    assert (found.verdict, found.mend) == (Verdict.PASS, "")
    assert "the plan declares it" in found.detail


def test_a_declared_one_way_fails_without_an_older_checkpoint():
    known = KnownGood(own="x", given="/old", verdict=Verdict.FAIL, detail="the baseline does not read it")
    found = lines({"b>a": Outcome.REFUSED}, declared=(WAY_BACK,), known=known)
    assert found["way-back"].verdict is Verdict.FAIL
    assert found["last-known-good"].verdict is Verdict.FAIL
    assert "no older checkpoint is proven" in found["way-back"].detail


@pytest.mark.parametrize("outcome", [Outcome.DAMAGED, Outcome.PARTIAL])
def test_a_declaration_does_not_excuse_damage(outcome):
    found = lines({"b>a": outcome}, declared=(WAY_BACK,))["way-back"]
    assert found.verdict is Verdict.FAIL
    assert found.mend.startswith("no version trouble")


def test_the_plans_own_checkpoint_is_the_one_to_go_back_to():
    found = lines({"b>a": Outcome.REFUSED}, known=NAMED)
    assert "a rollback restarts from /ckpt/step_900" in found["way-back"].detail
    assert unresolved_of(NAMED, judged(table({"b>a": Outcome.REFUSED}))) == ()


def test_one_way_without_a_checkpoint_of_the_real_job_stays_unresolved():
    (found,) = unresolved_of(KNOWN, judged(table({"b>a": Outcome.REFUSED})))
    assert "known_good" in found.next_step
    assert unresolved_of(KNOWN, judged(table({}))) == ()


def test_the_difference_is_named_by_itself_and_only_when_there_is_one():
    pairs = judged([row("candidate", "baseline", Outcome.REFUSED), *_all_equal()])
    (found,) = one_way_difference(pairs, torch=("2.14.1", "2.15.0"), declared=())
    assert found.line == WAY_BACK
    assert "torch 2.15.0" in found.what
    assert not found.declared
    assert one_way_difference(judged([*_all_equal()]), torch=("", ""), declared=()) == ()


def _all_equal():
    return [
        row("baseline", "baseline"),
        row("baseline", "candidate"),
        row("candidate", "candidate"),
    ]


def test_nothing_tried_is_unknown():
    found = checkpoint_lines([], KnownGood(own="nothing"), copies=(), declared=())
    assert {line.verdict for line in found} == {Verdict.UNKNOWN}


def test_an_unknown_row_makes_its_lines_unknown():
    found = lines({"a>b": Outcome.UNKNOWN})
    assert found["forward"].verdict is Verdict.UNKNOWN
    assert found["way-back"].verdict is Verdict.PASS


def test_a_missing_copy_is_unknown():
    assert lines({}, copies=())["duplicate"].verdict is Verdict.UNKNOWN


def test_the_table_says_yes_no_and_one_way():
    pairs = judged(table({"b>a": Outcome.REFUSED}))
    text = pairs_markdown(pairs)
    assert "| a | yes | yes |" in text
    assert "| b | NO (one-way) | yes |" in text
    assert text.endswith("- b -> a (plain sync): d\n")


def test_a_cell_whose_layouts_differ_names_those_that_are_no_yes():
    rows = [row("b", "a"), row("b", "a", Outcome.HUNG, layout="fsdp2", mode="async")]
    assert cell_word(rows) == "fsdp2 async: NO: hung"
    assert cell_word([]) == "not tried"


def test_equal_reasons_of_one_cell_are_told_once():
    rows = [row("b", "a", Outcome.REFUSED), row("b", "a", Outcome.REFUSED, mode="async")]
    assert reasons(rows) == ("b -> a (plain sync, plain async): d",)
