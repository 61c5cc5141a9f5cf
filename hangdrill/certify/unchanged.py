"""Was each stack at the end what it was at the beginning? A package that is installed between two cells makes
two stacks of one.

Both fingerprints are of the same environment on the same host, so every difference is a change. Pure.
"""

from collections.abc import Callable, Mapping, Sequence

from hangdrill.certify.cells import CellResult
from hangdrill.certify.own_lines import named
from hangdrill.certify.stacks import Stack
from hangdrill.model.fingerprint import changes
from hangdrill.model.receipt import Item, Line
from hangdrill.model.verdict import Verdict

__all__ = ["unchanged_lines"]

AGAIN = "let nothing change it meanwhile, and run it again"


def unchanged_lines(
    before: Mapping[str, Stack], results: Sequence[CellResult], read_again: Callable[[], Mapping[str, Stack]] | None
) -> tuple[Line, ...]:
    """One line for each stack. read_again: None when every result is an earlier one, which its own key holds to the
    fingerprint; not called when nothing ran."""
    if not any(result.ran for result in results):
        return tuple(_line(name, Verdict.UNKNOWN, "nothing was measured", "run its cells") for name in before)
    if read_again is None:
        detail = "nothing was measured in this run, and the earlier results are of this fingerprint"
        return tuple(_line(name, *_of_earlier(stack, detail)) for name, stack in before.items())
    after = read_again()
    return tuple(_line(name, *_judged(stack, after[name])) for name, stack in before.items())


def _judged(before: Stack, after: Stack) -> tuple[Verdict, str, str]:
    if before.fingerprint is None:
        return Verdict.UNKNOWN, before.missing, before.next_step
    if after.fingerprint is None:
        return Verdict.UNKNOWN, f"it cannot be looked at any more: {after.missing}", after.next_step
    found = changes(before.fingerprint, after.fingerprint)
    if found:
        told = named([f"{one.what} ({one.before or 'not there'} -> {one.after or 'gone'})" for one in found])
        return Verdict.FAIL, f"the stack changed while it was measured: {told}", AGAIN
    return Verdict.PASS, f"the fingerprint is {before.fingerprint.digest[:12]} before and after", ""


def _of_earlier(stack: Stack, detail: str) -> tuple[Verdict, str, str]:
    if stack.fingerprint is None:
        return Verdict.UNKNOWN, stack.missing, stack.next_step
    return Verdict.PASS, detail, ""


def _line(name: str, verdict: Verdict, detail: str, mend: str) -> Line:
    return Line(
        id=f"stack/{name}/unchanged",
        item=Item.BUILD,
        verdict=verdict,
        claim=f"the {name} stack is at the end what it was before the first cell",
        detail=detail,
        mend=mend,
    )
