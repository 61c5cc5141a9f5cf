"""How many operations a dump holds, to tell whether a second one adds anything. It judges nothing else."""

from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.pickle_walk import walk_pickle

__all__ = ["count_entries"]


def count_entries(data: bytes) -> int | None:
    """The number of entries, None when the bytes are not a whole dump."""
    try:
        tree = walk_pickle(data)
    except DumpError:
        return None
    if tree.cut_at_byte is not None or not isinstance(tree.value, dict) or "version" not in tree.value:
        return None
    entries = tree.value.get("entries", [])
    return len(entries) if isinstance(entries, list | tuple) else None
