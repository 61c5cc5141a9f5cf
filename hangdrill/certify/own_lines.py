"""The lines of the certification itself: did every cell run, did the controls hold, is every difference declared, and
has every item of the record a line? They keep a receipt from being green because nothing was looked at.
"""

from collections.abc import Iterator, Sequence

from hangdrill.certify.cells import CellResult
from hangdrill.certify.declared import STACK_LINE
from hangdrill.certify.running import LEFT_OUT, RUN_IT_TOO
from hangdrill.certify.stacks import Stack
from hangdrill.model.receipt import ITEM_TITLES, Control, Difference, Item, Line
from hangdrill.model.verdict import Verdict

__all__ = ["CELLS_LINE", "CONTROLS_LINE", "cells_line", "controls_line", "differences_line", "named", "not_measured"]

CELLS_LINE = "certification/cells"
CONTROLS_LINE = "certification/controls"
MOST_NAMED = 5
HANGDRILL = "package:hangdrill"


def cells_line(results: Sequence[CellResult]) -> Line:
    """UNKNOWN when a cell did not run, and when there is none."""
    claim = "every cell of the plan ran to its end"
    idle = [result for result in results if not result.ran]
    detail, mend = f"{len(results)} cells", ""
    if not results:
        detail, mend = "the plan has no cell, so nothing was measured", "name topologies in the plan"
    elif idle:
        told = named([f"{result.id} ({result.why_not})" for result in idle])
        detail, mend = f"{len(idle)} of {len(results)} did not: {told}", "mend that, and add --resume"
        if all(result.why_not == LEFT_OUT for result in idle):
            mend = RUN_IT_TOO
    verdict = Verdict.PASS if results and not idle else Verdict.UNKNOWN
    return Line(id=CELLS_LINE, item=Item.DIFFERENCES, verdict=verdict, claim=claim, detail=detail, mend=mend)


def controls_line(controls: Sequence[Control]) -> Line:
    """UNKNOWN when a control did not hold, and when there is none."""
    claim = "what was broken on purpose (a recorder switched off) was found broken"
    broken = [control for control in controls if not control.held]
    detail, mend = f"{len(controls)} negative controls held", ""
    if not controls:
        detail, mend = "no negative control ran: a PASS would prove nothing", "run the cells of controls"
    elif broken:
        detail = "; ".join(f"{one.name} came to {one.got.value}, not {one.expected.value}" for one in broken)
        mend = "trust no line of this receipt before it is known why"
    verdict = Verdict.PASS if controls and not broken else Verdict.UNKNOWN
    evidence = tuple(path for control in controls for path in control.evidence)
    return Line(
        id=CONTROLS_LINE,
        item=Item.RECORDER,
        verdict=verdict,
        claim=claim,
        detail=detail,
        mend=mend,
        evidence=evidence,
    )


def differences_line(differences: Sequence[Difference], baseline: Stack, candidate: Stack) -> Line:
    """FAIL when one is not declared; UNKNOWN when a stack cannot be looked at."""
    claim = "every difference between the stacks is declared in the plan"
    undeclared = [difference.what for difference in differences if not difference.declared]
    missing = next((stack for stack in (baseline, candidate) if not stack.works), None)
    verdict, mend = Verdict.PASS, ""
    detail = f"{len(differences)} differences, all declared" if differences else "no difference"
    if undeclared:
        verdict = Verdict.FAIL
        detail = f"{len(undeclared)} of {len(differences)} are not declared: {named(undeclared)}"
        mend = "make the stacks alike, or name what is meant to differ in declared, in the plan"
        if HANGDRILL in undeclared:
            mend = f"hangdrill is installed in one of the stacks: certify an environment without it; then, {mend}"
    elif missing is not None:
        verdict, detail, mend = Verdict.UNKNOWN, missing.missing, missing.next_step
    return Line(id=STACK_LINE, item=Item.DIFFERENCES, verdict=verdict, claim=claim, detail=detail, mend=mend)


def not_measured(lines: Sequence[Line]) -> Iterator[Line]:
    """An UNKNOWN line for every item of the record that has none."""
    told = {line.item for line in lines}
    for item in Item:
        if item not in told:
            yield Line(
                id=f"record/{item.value}",
                item=item,
                verdict=Verdict.UNKNOWN,
                claim=f"there is evidence of this item: {ITEM_TITLES[item]}",
                detail="no cell of this plan measures it",
                mend="name a topology, a backend or a script in the plan that does",
            )


def named(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
