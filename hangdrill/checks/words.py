"""How ranks, sizes and lists are said in a sentence, the same in every check and report."""

from collections.abc import Iterable, Sequence

__all__ = ["count_text", "list_text", "range_text", "ranks_text", "size_text"]

MOST_RANKS_LISTED = 8
"""Above this many ranks, neighbours are joined to ranges: "ranks 0-6, 8-1023"."""


def ranks_text(ranks: Iterable[int]) -> str:
    """ "rank 3", "ranks 0, 2, 3", "no rank"; long lists as ranges."""
    ordered = sorted(set(ranks))
    if not ordered:
        return "no rank"
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    parts = [str(rank) for rank in ordered] if len(ordered) <= MOST_RANKS_LISTED else _ranges(ordered)
    return "ranks " + ", ".join(parts)


def list_text(items: Sequence[str], most: int = 5) -> str:
    """The first items, and how many more there are."""
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def count_text(count: int, noun: str) -> str:
    """ "1 dump", "4 dumps"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def range_text(least: object, most: object) -> str:
    """ "3 to 4", or "4" when there is nothing between."""
    return str(least) if str(least) == str(most) else f"{least} to {most}"


def size_text(size_bytes: int) -> str:
    """ "812 bytes", "31.2 KiB", "4.0 MiB"."""
    if size_bytes < 1024:
        return count_text(size_bytes, "byte")
    if size_bytes < 1024 * 1024:
        return f"{size_bytes / 1024:.1f} KiB"
    return f"{size_bytes / 1024 / 1024:.1f} MiB"


def _ranges(ordered: Sequence[int]) -> list[str]:
    starts = [rank for index, rank in enumerate(ordered) if index == 0 or ordered[index - 1] != rank - 1]
    ends = [rank for index, rank in enumerate(ordered) if index == len(ordered) - 1 or ordered[index + 1] != rank + 1]
    return [str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)]
