"""What the names of dumps say: the rank, the attempt, and which names are no dump at all.

A *strong* name is one that only a recorder gives (`comm_lib_trace_rank_3`, `fr_3`, `_dump_3`): such a file is a dump,
however broken. A weak name (`rank3.pkl`, `job-17-3`) says a rank too, but other files are called so as well; the file
counts as a dump if it also begins like one.
"""

import posixpath
import re
from typing import Literal

import msgspec

__all__ = ["Claim", "claim_of", "rank_in_name", "why_ignored"]

_BORDER = r"(?=$|[._@-])"
_START = r"(?:^|[._@-])"
_NUMBER = r"(\d{1,9})"
_OWN = re.compile(rf"^rank_{_NUMBER}\.a{_NUMBER}\.(dump(?:\.\d+)?\.pickle|trace(?:\.\d+)?\.json)$")
_STRONG = tuple(
    re.compile(rf"{prefix}{_NUMBER}{_BORDER}")
    for prefix in (
        r"comm_lib_trace_rank_",
        r"nccl_trace_rank_",
        rf"{_START}_dump_",  # NVIDIA Resiliency Extension
        rf"{_START}fr_(?:trace_)?",  # hangdrill, torchcomms
    )
)
_WEAK = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_START}dump[_-]?{_NUMBER}{_BORDER}",
        rf"{_START}rank[_-]?{_NUMBER}{_BORDER}",
        rf"^{_NUMBER}$",  # a prefix that ends in a slash
        rf"[_-]{_NUMBER}(?:\.(?:pickle|pkl|json|bin|dump|trace))*$",
        rf"(?:trace|rank|dump|fr){_NUMBER}(?:\.(?:pickle|pkl|json|bin|dump|trace))*$",  # a prefix without a separator
    )
)
_QUORUM = re.compile(rf"_quorum_{_NUMBER}$")
_TEMPORARY = re.compile(r"\.(?:tmp|temp|part|partial|incomplete|swp|lock)(?:[._-]\w+)?$|~$")
_ARCHIVE = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".zip")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_OTHER = (
    ".log", ".txt", ".md", ".toml", ".yaml", ".yml", ".py", ".csv", ".html", ".xml", ".out", ".err", ".so", ".pt",
    ".pth", ".process.json", ".facts.json", ".fault.json", ".exit.json", ".ack", ".ops", ".sock", ".pipe",
)  # fmt: skip


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a name says. attempt: of a restart (`series` "attempt") or of torchft ("quorum"); only the last one counts.
    road: hangdrill's own "dump" or "trace", two roads out of one rank that do not contradict each other."""

    rank: int
    strong: bool = False
    series: Literal["", "attempt", "quorum"] = ""
    attempt: int = 0
    road: str = ""


def claim_of(path: str, prefix: str | None = None) -> Claim | None:
    """The claim of a file, by its path with `/`. With a prefix (of the name) only the digits behind it count."""
    folder, name = posixpath.split(path)
    if prefix is not None:
        match = re.search(re.escape(prefix) + _NUMBER + _BORDER, name)
        return Claim(rank=int(match[1]), strong=True) if match else None
    if match := _OWN.search(name):
        return Claim(
            rank=int(match[1]), strong=True, series="attempt", attempt=int(match[2]), road=match[3].partition(".")[0]
        )
    if name.isascii() and name.isdigit() and len(name) < 10 and (quorum := _QUORUM.search(folder)):
        return Claim(rank=int(name), strong=True, series="quorum", attempt=int(quorum[1]))
    for patterns in (_STRONG, _WEAK):
        for pattern in patterns:
            if match := pattern.search(name):
                return Claim(rank=int(match[1]), strong=patterns is _STRONG)
    return None


def rank_in_name(name: str, prefix: str | None = None) -> int | None:
    """The global rank a file's name claims, or None."""
    claim = claim_of(name, prefix)
    return None if claim is None else claim.rank


def why_ignored(path: str) -> str | None:
    """Why a file is no dump, judged by its name alone; None when it may be one."""
    name = posixpath.basename(path)
    if name.startswith(".") or _TEMPORARY.search(name):
        return "a temporary or hidden file"
    if name.endswith(_ARCHIVE):
        return "an archive inside a directory; name it as a PATH to have it read"
    if name.endswith(_COMPRESSED):
        return "compressed; unpack it to have it read"
    if name.endswith(_OTHER):
        return "not a dump by its name"
    return None
