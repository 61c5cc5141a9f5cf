"""The checklist holds every line with its evidence, and nothing that a stack wrote becomes markup."""

import msgspec
import pytest
from sample_receipts import line, receipt

from hangdrill.model.receipt import ITEM_TITLES, Item, Receipt
from hangdrill.model.verdict import Verdict
from hangdrill.report.checklist import checklist_html, checklist_markdown

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


def test_what_others_wrote_is_no_markup() -> None:
    hostile = receipt(title=HOSTILE, who=HOSTILE, lines=(line(detail=HOSTILE, mend=HOSTILE, verdict=Verdict.FAIL),))
    page, text = checklist_html(hostile), checklist_markdown(hostile)
    assert "<script>" not in page
    assert "\x1b" not in page + text
    assert "<script>" not in text.replace("\\<", "")
    table = next(row for row in text.splitlines() if "canary/dp/init-time/worse" in row)
    assert table.replace("\\|", "").count("|") == 5


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
