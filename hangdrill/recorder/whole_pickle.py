"""The quick way to read a whole pickle of a recorder: its head and tail by the walk, its entries by templates.

Where anything is odd there is no answer, and the walk reads the file (`hangdrill.recorder.pickle_walk`), which says
what is wrong and saves what can be saved.
"""

import re
import threading
from struct import error
from typing import Any

from hangdrill.model.table import OperationTable
from hangdrill.recorder.dump_shape import ShapeReader
from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.memo import Memo
from hangdrill.recorder.pickle_walk import Damaged, walk_head, walk_tail
from hangdrill.recorder.templates import MAX_BYTES, Templates
from hangdrill.recorder.unfolding import check_unfolded

__all__ = ["read_whole"]

MIN_BYTES = 8192
"""Smaller files have too few entries for a template to pay."""

_ENTRIES = re.compile(rb"X\x07\x00\x00\x00entries(?:q.|r.{4})?\](?:q.|r.{4})?\(", re.DOTALL)
"""The key, the list and the mark before its items; whether the walk agrees that they are there is asked of it."""
_OF_THREAD = threading.local()
"""Its `templates`: the dumps of a job are nearly equal."""


def read_whole(data: bytes, reader: ShapeReader) -> tuple[dict[str, Any], OperationTable] | None:
    """The plain value in `data` without its entries, and these as a table; None where the walk should read it.

    reader: checks a plain entry and makes it an Operation. Raises DumpError where the file could unfold to too much.
    """
    if not MIN_BYTES <= len(data) <= MAX_BYTES or (found := _ENTRIES.search(data)) is None:
        return None
    check_unfolded(data, "")
    begin = found.end()
    try:
        memo = Memo()
        root = walk_head(data, begin - 1, memo)
        if root is None:
            return None
        entries = _templates().read(data, begin, memo, reader)
        if root.pop("entries", None) != [] or entries is None:
            return None
        table, end = entries
        tail = walk_tail(data[end + 1 :], dict(memo))
    except (Damaged, DumpError, error, LookupError, UnicodeDecodeError):
        return None
    return None if "entries" in tail else ({**root, **tail}, table)


def _templates() -> Templates:
    if not hasattr(_OF_THREAD, "templates"):
        _OF_THREAD.templates = Templates()
    templates: Templates = _OF_THREAD.templates
    return templates
