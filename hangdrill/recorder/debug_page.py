"""The page "FlightRecorder (JSON)" of torch's debug server, saved to a file: the control plane's JSON of every rank.

The server writes no dump of its own to disk: its periodic files (`fr_trace_<time>.txt`) are tables, made by torch's
analyzer, that hold less than the JSON.
"""

import html
import re

from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.pickle_walk import MAX_DUMP_BYTES

__all__ = ["split_page"]

_RANK = re.compile(rb"<h2>Rank (\d{1,9}): [^<\n]{0,1000}</h2>\s{0,100}<pre>")


def split_page(page: bytes) -> dict[int, bytes]:
    """Each rank's JSON, by rank; ranks that did not answer are left out. Raises DumpError when there is none."""
    if len(page) > MAX_DUMP_BYTES:
        raise DumpError(f"{len(page)} bytes is more than a page may have ({MAX_DUMP_BYTES})")
    found: dict[int, bytes] = {}
    starts = list(_RANK.finditer(page))
    for number, match in enumerate(starts):
        after = starts[number + 1].start() if number + 1 < len(starts) else len(page)
        end = page.find(b"</pre>", match.end(), after)
        text = page[match.end() : end if end >= 0 else after].strip()
        if b"&quot;" in text[:100]:
            text = html.unescape(text.decode("utf-8", "replace")).encode()
        if text[:1] == b"{":
            found.setdefault(int(match[1]), text)
    if not found:
        raise DumpError("the page holds no rank's JSON: save /fr_trace_json, or /fr_trace_nccl_json for nccl-legacy")
    return found
