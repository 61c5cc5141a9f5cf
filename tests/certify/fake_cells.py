"""A cell that does as it is told, for tests of the order: it promises one line and answers as its function says."""

from collections.abc import Callable

import msgspec

from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.model.receipt import Control, Item, Line
from hangdrill.model.verdict import Verdict


class FakeCell(msgspec.Struct, frozen=True, kw_only=True):
    """`does` gets the context and gives the result; without it, one passing line."""

    id: str = "fake/one"
    topology: str = ""
    title: str = "a cell of a test"
    needs: Needs = Needs()
    item: Item = Item.WORK
    verdict: Verdict = Verdict.PASS
    does: Callable[[CellContext], CellResult] | None = None
    estimate_s: float = 3.0
    ran: list[str] = msgspec.field(default_factory=list)

    @property
    def claims(self) -> tuple[Claim, ...]:
        return (Claim(id=f"{self.id}/held", item=self.item, claim="it holds"),)

    def run(self, context: CellContext) -> CellResult:
        self.ran.append(self.id)
        if self.does is not None:
            return self.does(context)
        (context.cell_dir / "samples.txt").write_text("1 2 3\n")
        line = Line(id=f"{self.id}/held", item=self.item, verdict=self.verdict, claim="it holds", detail="seen")
        return CellResult(id=self.id, lines=(line,), artifacts=context.evidence(context.cell_dir / "samples.txt"))


def every_item(*, got: Verdict = Verdict.FAIL) -> list[FakeCell]:
    """One cell for each item, and a negative control that comes to `got`."""

    def control(context: CellContext) -> CellResult:
        line = Line(id="fake/control/held", item=Item.RECORDER, verdict=Verdict.PASS, claim="it holds")
        found = Control(name="fake/control", claim="what is broken is found broken", got=got)
        return CellResult(id="fake/control", lines=(line,), controls=(found,))

    cells = [FakeCell(id=f"fake/{item.value}", item=item) for item in Item]
    return [*cells, FakeCell(id="fake/control", item=Item.RECORDER, does=control)]
