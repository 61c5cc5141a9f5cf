"""The checklist holds every line with its evidence, and nothing that a stack wrote becomes markup."""

import re
from typing import Any

import msgspec
import pytest
from canary_cases import canary_run, pair_runs, rank_record
from sample_receipts import line, receipt

from hangdrill.certify.canary_lines import judge_measure
from hangdrill.certify.canary_runs import PairRuns
from hangdrill.certify.compare_samples import Rule
from hangdrill.certify.measures import limit_of, measured_of
from hangdrill.model.certify_plan import CertifyPlan, Measure, StackPlan
from hangdrill.model.receipt import ITEM_TITLES, Item, Line, Receipt
from hangdrill.model.verdict import Verdict
from hangdrill.report.checklist import checklist_html, checklist_markdown
from hangdrill.report.checklist.numbers import numbers_of, remark_of

HOSTILE = "<script>alert(1)</script> | `x` [a](javascript:b) **c** \x1b[31m\nnext"


def every_item() -> Receipt:
    return receipt(lines=tuple(line(f"x/{item.value}/held", item=item) for item in Item))


@pytest.mark.parametrize("render", [checklist_html, checklist_markdown], ids=["html", "markdown"])
def test_every_line_with_its_evidence_and_the_sign_off_is_there(render) -> None:
    text = render(every_item())
    for item in Item:
        assert ITEM_TITLES[item] in text
        assert f"x/{item.value}/held" in text
    for wanted in ("samples.json", "Sign-off", "Certified by", "Approved for the ring benchmark-cluster by", "one-way"):
        assert wanted in text
    assert "460 MB" in text
    assert "1,440.0" in text


@pytest.mark.parametrize("verdict", list(Verdict), ids=lambda verdict: verdict.value)
def test_the_next_step_is_told_where_a_line_does_not_pass(verdict: Verdict) -> None:
    text = checklist_markdown(receipt(lines=(line(verdict=verdict, mend="look at the log"),)))
    assert ("look at the log" in text) == (verdict is not Verdict.PASS)


def test_the_top_says_what_does_not_pass_failures_first_and_what_lacks_the_same_once() -> None:
    left_out = [line(f"x/{at}", Verdict.UNKNOWN, detail="left out by --only", mend="run it too") for at in range(9)]
    text = checklist_markdown(receipt(lines=(*left_out, line("x/slow", Verdict.FAIL, claim="as fast", topology=""))))
    top = text.partition("## What does not pass")[2].partition("\n## ")[0]
    told = [row for row in top.splitlines() if row.startswith(("| FAIL", "| UNKNOWN"))]
    assert told == ["| FAIL | as fast | look at the log |", "| UNKNOWN | 9 lines: left out by --only | run it too |"]
    assert "What does not pass" not in checklist_markdown(receipt())


def test_what_others_wrote_is_no_markup() -> None:
    hostile = receipt(title=HOSTILE, who=HOSTILE, lines=(line(detail=HOSTILE, mend=HOSTILE, verdict=Verdict.FAIL),))
    page, text = checklist_html(hostile), checklist_markdown(hostile)
    assert "<script>" not in page
    assert "\x1b" not in page + text
    assert "<script>" not in text.replace("\\<", "")
    told = [re.sub(r"\\[\\`*\[\]<>|#~]", "", row) for row in text.splitlines() if "alert" in row]
    assert len(told) == 6  # the title, who certifies, twice, what was seen and, twice, the next step
    assert not set("".join(told)) & set("`*[]<>~")
    assert sorted(row.count("|") for row in told) == [0, 0, 0, 3, 4, 5]


PLAN = CertifyPlan(title="t", baseline=StackPlan(python="a"), candidate=StackPlan(python="b"))


def judged(measure: Measure, runs: PairRuns, **options: Any) -> Line:
    """A line as a certification makes it."""
    measured = next(one for one in measured_of(PLAN) if one.measure is measure)
    return judge_measure(
        measured, runs, cell="canary/stacks", limit=limit_of(measure, {}), rule=Rule(), **options
    ).line  # fmt: skip


def test_a_measured_line_has_its_numbers_by_name_and_nothing_of_them_in_what_was_seen() -> None:
    found = judged(Measure.CHECKPOINT_SAVE_TIME, pair_runs(8))
    assert [name for name, _ in numbers_of(found)] == ["baseline", "candidate", "ratio", "interval", "pairs"]
    assert dict(numbers_of(found))["pairs"] == "8"
    assert remark_of(found) == ""
    slower = judged(Measure.CHECKPOINT_SAVE_TIME, pair_runs(24, scale=1.5))
    assert (slower.verdict, remark_of(slower)) == (Verdict.FAIL, "")
    declared = msgspec.structs.replace(slower, detail=f"{slower.detail}; the plan declares it")
    assert remark_of(declared) == "the plan declares it"
    few = judged(Measure.CHECKPOINT_SAVE_TIME, pair_runs(2))
    assert [name for name, _ in numbers_of(few)] == ["baseline", "candidate", "pairs"]
    assert remark_of(few) == "2 of the 8 pairs that a confidence of 0.99 needs"


def test_two_implementations_of_one_stack_keep_their_names() -> None:
    found = judged(Measure.INIT_TIME, pair_runs(8), names=("nccl-legacy", "nccl"), variants=True)
    assert [name for name, _ in numbers_of(found)][:2] == ["nccl-legacy", "nccl"]
    assert remark_of(found) == ""


def test_from_nothing_to_something_has_no_ratio_and_keeps_its_difference() -> None:
    none, some = (canary_run(*(rank_record(rank, init_bytes=size) for rank in (0, 1))) for size in (0.0, 482e6))
    found = judged(Measure.MEMORY_BEFORE_FIRST_STEP, PairRuns(baseline=(none,) * 8, candidate=(some,) * 8))
    assert numbers_of(found) == (("baseline", "0 MB"), ("candidate", "482 MB"), ("pairs", "8"))
    assert remark_of(found) == "+482 MB [+482, +482]"


@pytest.mark.parametrize(
    "detail",
    [
        "as fast",
        "baseline 7 s, candidate 1.2 s, 3 pairs; ratio 1.09 [0.98, 1.2]",
        "runs without this measure: baseline 0, candidate 2; rank 1 died",
        "baseline 1.1 s, candidate 1.2 s, 30 pairs",
    ],
)
def test_a_detail_that_says_anything_else_stays_whole(detail: str) -> None:
    assert remark_of(line(detail=detail)) == detail
    assert dict(numbers_of(line(detail=detail)))["candidate"] == "1.2 s"


@pytest.mark.parametrize("render", [checklist_html, checklist_markdown], ids=["html", "markdown"])
def test_no_number_stands_twice_and_the_id_is_labelled(render) -> None:
    detail = "baseline 1.1 s, candidate 1.2 s, 3 pairs; ratio 1.09 [0.98, 1.2]; the machine was busy"
    name = "canary/stacks/dp/x"
    text = render(receipt(lines=(line(name, detail=detail),), unresolved=()))
    for once in ("1.1 s", "1.2 s", "1.09", "0.98 to 1.2", "the machine was busy", "worse when the median ratio"):
        assert text.count(once) == 1, once
    label = f'<dt>id</dt><dd class="mono">{name}</dd>' if "<html" in text else f"\n  - id: {name}\n"
    assert label in text


@pytest.mark.parametrize("render", [checklist_html, checklist_markdown], ids=["html", "markdown"])
def test_the_page_says_with_which_key_it_was_signed_or_that_it_was_not(render) -> None:
    assert "not signed" in render(receipt())
    assert "aabbcc" in render(receipt(), key_id="aabbcc")
    assert "not signed" not in render(receipt(), key_id="aabbcc")


def test_equal_receipts_give_equal_pages() -> None:
    again = msgspec.json.decode(msgspec.json.encode(receipt()), type=Receipt)
    assert checklist_html(receipt()) == checklist_html(again)
    assert checklist_markdown(receipt()) == checklist_markdown(again)


def test_the_page_runs_no_script_and_loads_nothing() -> None:
    page = checklist_html(receipt())
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
