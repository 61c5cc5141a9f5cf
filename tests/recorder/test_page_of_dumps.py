"""docs/reference/dump-format.md says what the code does: names, passed-over files, keys and bounds."""

import pickle
import re
from pathlib import Path

import pytest
from hostile_pickles import DATA

from hangdrill.recorder import evidence, places
from hangdrill.recorder.dump_shape import MAX_MEMBERS, MAX_OPERATIONS
from hangdrill.recorder.names import claim_of, why_ignored
from hangdrill.recorder.pickle_walk import MAX_DEPTH, MAX_DUMP_BYTES
from hangdrill.recorder.tar_stream import FREE_BYTES, MAX_RATIO, MAX_TOTAL_BYTES
from hangdrill.recorder.unfolding import MAX_UNFOLDED_BYTES, MAX_UNFOLDED_RATIO

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "dump-format.md").read_text()
NAMES = re.findall(r"^\| `([^`]+)` \| (\d+) \| .* \| (yes|no) \|$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize(("name", "rank", "strong"), NAMES)
def test_each_name_of_the_table_says_its_rank(name: str, rank: str, strong: str) -> None:
    claim = claim_of(name)
    assert claim is not None
    assert (str(claim.rank), "yes" if claim.strong else "no") == (rank, strong)
    assert why_ignored(name) is None


def test_the_table_was_found() -> None:
    assert len(NAMES) == 17


@pytest.mark.parametrize(
    "end", re.findall(r"`([^`]+)`", PAGE[PAGE.index("temporary files (") : PAGE.index(", dot-files")])
)
def test_each_temporary_ending_is_passed_over(end: str) -> None:
    assert why_ignored(f"fr_3{end}") == "a temporary or hidden file"


@pytest.mark.parametrize("case", ["h200/nccl-stall/fr_0", "nvrx/lock_gil_1st/_dump_0", "gloo/hold-rank-1-of-3/fr_0"])
def test_the_keys_of_real_dumps_are_on_the_page(case: str) -> None:
    whole = pickle.loads((DATA / case).read_bytes())  # our own file
    for key in (*whole, *whole["entries"][0]):
        assert f"`{key}`" in PAGE


def test_the_bounds_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE[PAGE.index("| bound |") :], flags=re.MULTILINE))
    mib, gib = 1024**2, 1024**3
    assert rows["one dump, or one page"] == f"{MAX_DUMP_BYTES // mib} MiB"
    unfolded = rows["what a pickle may unfold to in memory"]
    assert unfolded.startswith(f"{MAX_UNFOLDED_BYTES // mib} MiB, or {MAX_UNFOLDED_RATIO} bytes for each of its own")
    assert rows["values inside each other"] == str(MAX_DEPTH)
    assert rows["operations of one dump"] == f"{MAX_OPERATIONS:,}"
    assert rows["members of all its groups together"] == f"{MAX_MEMBERS:,}"
    assert rows["files at a PATH"] == f"{places.MAX_FILES:,}"
    archive = f"{MAX_TOTAL_BYTES // gib} GiB, and {MAX_RATIO} times its size (beyond {FREE_BYTES // mib} MiB)"
    assert rows["an archive, unpacked"] == archive
    assert rows["the world size that a manifest may tell"] == f"{evidence.MAX_WORLD:,}"
    assert f"entered {['', '', '', '', 'four'][places.MAX_DEPTH]} levels deep" in PAGE
