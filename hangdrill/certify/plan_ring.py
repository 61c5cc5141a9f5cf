"""What a plan says of its ring: the keys of the receipt before, and how many of them must have signed it. Pure."""

from collections.abc import Callable, Iterator

from hangdrill.drill.scenario_shape import Problem, nearest
from hangdrill.model.certify_plan import RingPlan

__all__ = ["fill_keys", "ring_mistakes"]


def fill_keys(table: object, path: Callable[[str], str]) -> None:
    """Every key of a [ring] as a whole path. What has a wrong type is left for `convert` to say so."""
    given = table.get("key") if isinstance(table, dict) else None
    if isinstance(table, dict) and isinstance(given, str):
        table["key"] = path(given)
    elif isinstance(table, dict) and isinstance(given, list):
        table["key"] = [path(one) if isinstance(one, str) else one for one in given]


def ring_mistakes(ring: RingPlan) -> Iterator[Problem]:
    """What no single key shows."""
    if ring.name and ring.name not in ring.order:
        yield Problem("ring.name", f'unknown ring "{ring.name}"', nearest(ring.name, list(ring.order)))
    if ring.receipt_before is not None and not ring.name:
        yield Problem("ring.receipt_before", "it needs ring.name", "say which ring this is")
    if ring.key is not None and not ring.keys:
        yield Problem("ring.key", "there are none", "name the public key of whoever signs, or a list of them")
    for name in sorted({name for name in ring.keys if ring.keys.count(name) > 1}):
        yield Problem("ring.key", f'"{name}" stands there twice', "one key is one signature: name it once")
    count = len(ring.keys)
    if ring.threshold is None:
        return
    if ring.threshold < 1:
        yield Problem("ring.threshold", f"it must be 1 or more, got {ring.threshold}", "leave it out for all of them")
    elif ring.threshold > max(count, 1):
        what = f"{ring.threshold} signatures are wanted, of {count} {'key' if count == 1 else 'keys'}"
        yield Problem("ring.threshold", what, "name as many different keys in ring.key")
