"""How ranks, sizes and lists are said in a sentence, the same in every check and report."""

from collections.abc import Sequence

from hangdrill.diagnosis.words import name_ranks as ranks_text

__all__ = ["count_text", "list_text", "range_text", "ranks_text", "size_text"]


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
    """ "812 bytes", "31.2 KiB", "4.0 MiB", "63.0 GiB"."""
    if size_bytes < 1024:
        return count_text(size_bytes, "byte")
    if size_bytes < 1024 * 1024:
        return f"{size_bytes / 1024:.1f} KiB"
    if size_bytes < 1024**3:
        return f"{size_bytes / 1024**2:.1f} MiB"
    return f"{size_bytes / 1024**3:.1f} GiB"
