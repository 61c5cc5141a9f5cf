"""What the names of dumps say: the rank, and which names are no dump at all."""

import re

__all__ = ["is_known_name", "rank_in_name", "why_ignored"]

_OWN = re.compile(r"rank_(\d{1,9})\.a\d{1,9}\.(?:dump\.pickle|trace\.json)$")
_BORDER = r"(?=$|[._@-])"
_KNOWN = tuple(
    re.compile(rf"(?:^|[^A-Za-z0-9])?{prefix}(\d{{1,9}}){_BORDER}")
    for prefix in (
        r"comm_lib_trace_rank_",
        r"nccl_trace_rank_",
        r"(?:^|[._@-])_?dump_",
        r"(?:^|[._@-])fr_(?:trace_)?",
        r"(?:^|[._@-])rank[_-]?",
    )
)
_TRAILING = re.compile(r"[_-](\d{1,9})(?:\.(?:pickle|pkl|json|bin|dump|trace))*$")
_TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".swp", ".lock", "~")
_OTHER = (
    ".log", ".txt", ".md", ".toml", ".yaml", ".yml", ".py", ".csv", ".html", ".xml", ".out", ".err", ".so", ".pt",
    ".pth",     ".stacks.txt", ".process.json", ".facts.json", ".fault.json", ".exit.json", ".ack", ".ops", ".sock",
)  # fmt: skip


def rank_in_name(name: str, prefix: str | None = None) -> int | None:
    """The global rank a file's name claims, or None. With a prefix (of the name): the digits behind it."""
    if prefix is not None:
        match = re.match(re.escape(prefix) + r"(\d{1,9})" + _BORDER, name)
        return int(match[1]) if match else None
    for pattern in (_OWN, *_KNOWN):
        if match := pattern.search(name):
            return int(match[1])
    match = _TRAILING.search(name)
    return int(match[1]) if match else None


def is_known_name(name: str) -> bool:
    """Whether the name is one that a recorder gives; a name that just ends in a number is not."""
    return any(pattern.search(name) for pattern in (_OWN, *_KNOWN))


def why_ignored(name: str) -> str | None:
    """Why a file of this name is no dump, judged by the name alone; None when it may be one."""
    if name.startswith(".") or name.endswith(_TEMPORARY):
        return "a temporary or hidden file"
    if name.endswith(_OTHER):
        return "not a dump by its name"
    return None
