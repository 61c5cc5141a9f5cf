"""JSON that is cut gives the entries before the cut, and a page saved from torch's debug server all ranks' JSON."""

import json
import pickle
import random

import pytest
from hostile_pickles import DATA, entry, plain, write

from hangdrill.recorder import DumpError, parse_dump, read_evidence
from hangdrill.recorder.debug_page import split_page
from hangdrill.recorder.json_salvage import close_json

REAL = pickle.loads((DATA / "h200" / "legacy-pipeline-stall" / "fr_1").read_bytes())  # our own file


@pytest.mark.parametrize("indent", [None, 4], ids=["one-line", "indented"])
def test_every_prefix_of_a_jsons_gives_the_entries_before_the_cut(indent: int | None) -> None:
    data = json.dumps(REAL, indent=indent).encode()
    whole = parse_dump(data, rank=0).operations
    saved = -1
    for size in range((len(data) - 1) % 7, len(data), 7):
        try:
            dump = parse_dump(data[:size], rank=0)
        except DumpError:
            assert saved == -1
            continue
        assert (dump.salvaged, dump.cut_at_byte) == (True, size)
        assert dump.operations == whole[: len(dump.operations)]
        assert saved <= len(dump.operations)
        saved = len(dump.operations)
    assert saved == len(whole)


def test_damage_in_the_middle_is_where_it_is_said() -> None:
    data = json.dumps(plain(entry(), entry(record_id=1))).encode()
    at = data.index(b'{"record_id": 1') + 3
    dump = parse_dump(data[:at] + b"\x00" + data[at:], rank=0)
    assert (len(dump.operations), dump.salvaged) == (1, True)
    assert dump.cut_at_byte is not None
    assert abs(dump.cut_at_byte - at) < 3


def test_whole_json_is_not_called_salvaged() -> None:
    """The negative control."""
    assert not parse_dump(json.dumps(plain(entry())).encode(), rank=0).salvaged


@pytest.mark.parametrize(
    ("data", "closed"),
    [
        (b'{"a": 1, "b": [1, 2', b'{"a": 1, "b": [1]}'),
        (b'{"a": 1, "b": [1, {"c": [', b'{"a": 1, "b": [1]}'),
        (b'{"a": 1, "b": [{"c": "]}"}, {"d": "x', b'{"a": 1, "b": [{"c": "]}"}]}'),
        (b'{"a": "x\\"y, ', b"{}"),
        (b'{"a": 1} trailing', b'{"a": 1}'),
        (b'{"a": [1}', b'{"a": []}'),
        (b'"text', None),
        (b"", None),
    ],
)
def test_json_is_closed_behind_its_last_complete_member(data: bytes, closed: bytes | None) -> None:
    assert close_json(data) == closed


def test_json_beyond_the_bound_and_numbers_beyond_all_bounds_are_refused() -> None:
    with pytest.raises(DumpError, match="as no dump has"):
        parse_dump(b"{" + b" " * (64 * 1024 * 1024), rank=0)
    for number in ("1" * 5000, "-" + "9" * 400, "1e400", "1e5", "2.5"):
        with pytest.raises(DumpError, match=r"expected an integer|not whole JSON"):
            parse_dump(json.dumps(plain(entry(op_id=77))).encode().replace(b"77", number.encode()), rank=0)


def page(*blocks: str) -> bytes:
    """As torch 2.15 writes it: distributed/debug/_frontend.py, JSON_RESP_TEMPLATE."""
    head = "<!doctype html>\n<head>\n    <title>FlightRecorder gloo - PyTorch Distributed</title>\n<style>"
    return (head + " " * 3000 + "</style></head>\n<body>" + "".join(blocks) + "</body>").encode()


def block(rank: int, text: str) -> str:
    return (
        f"\n    \n        <h2>Rank {rank}: host-{rank}:40913</h2>\n        \n            <pre>{text}</pre>\n        \n"
    )


DUMP = json.dumps(plain(entry()), indent=2)


def test_a_page_of_the_debug_server_is_the_dump_of_every_rank_that_answered(tmp_path) -> None:
    failed = "\n <h2>Rank 1: host-1:1</h2>\n <p>Failed to fetch: status=503</p>\n <pre>rank is unset</pre>"
    write(tmp_path, fr_trace_jsonDOThtml=page(block(0, DUMP), failed, block(2, DUMP)))
    for path in (tmp_path, tmp_path / "fr_trace_json.html"):
        evidence = read_evidence(path)
        assert [(dump.rank, len(dump.operations)) for dump in evidence.dumps] == [(0, 1), (2, 1)]
        assert evidence.claimed == 2


def test_escaped_json_in_a_page_is_read_too() -> None:
    assert json.loads(split_page(page(block(4, "{&quot;version&quot;: &quot;2.10&quot;}")))[4])["version"] == "2.10"


def test_a_page_that_is_cut_gives_what_is_whole(tmp_path) -> None:
    data = page(block(0, DUMP), block(1, DUMP))
    write(tmp_path, pageDOThtml=data[: data.index(b'"retired"', data.index(b"Rank 1"))])
    evidence = read_evidence(tmp_path)
    assert [(dump.rank, len(dump.operations), dump.salvaged) for dump in evidence.dumps] == [
        (0, 1, False),
        (1, 0, True),
    ]


def test_other_pages_are_none(tmp_path) -> None:
    write(tmp_path, otherDOThtml=b"<html><title>Grafana</title>", emptyDOThtml=page())
    evidence = read_evidence(tmp_path)
    assert [file.reason for file in evidence.ignored] == ["not a dump by its name"]
    assert [(one.rank, "the page holds no rank's JSON" in one.error) for one in evidence.unreadable] == [(None, True)]


def test_a_page_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdrill.recorder.debug_page.MAX_DUMP_BYTES", 100)
    with pytest.raises(DumpError, match="more than a page may have"):
        split_page(page(block(0, DUMP)))


def test_a_rank_that_answered_in_text_is_left_out() -> None:
    assert list(split_page(page(block(0, "not found"), block(1, DUMP)))) == [1]


def test_pieces_of_a_page_in_any_order_are_read_or_refused() -> None:
    dice, data = random.Random(3), page(block(0, DUMP), block(1, DUMP))
    for _ in range(200):
        at, end = sorted(dice.sample(range(len(data)), 2))
        try:
            split_page(data[end:] + data[at:end] + data[:at])
        except DumpError as error:
            assert "no rank's JSON" in error.what  # noqa: PT017 - either outcome is right
