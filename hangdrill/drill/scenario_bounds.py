"""Bounds that the rules of a scenario share. Pure."""

from collections.abc import Iterator

from hangdrill.drill.scenario_shape import Problem

__all__ = ["between", "in_world"]


def in_world(key: str, ranks: tuple[int, ...], world: int) -> Iterator[Problem]:
    """Each rank is one of the world's."""
    for rank in ranks:
        if not 0 <= rank < world:
            yield Problem(key, f"rank {rank} is outside the world of {world}", f"use a rank from 0 to {world - 1}")


def between(
    key: str, value: float, low: float, high: float, unit: str = "", *, above: bool = False
) -> Iterator[Problem]:
    """low <= value <= high, or low < value when `above`; nan lies outside."""
    if not (low < value if above else low <= value) or not value <= high:
        words = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        yield Problem(key, f"{value:g} is out of bounds", f"use a number {words} {unit}".rstrip())
