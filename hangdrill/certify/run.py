"""One certification from plan to receipt: the only module of this room that knows the order.

 1. out           the directory, locked; the plan as given is kept in it
 2. fingerprints  of every stack that the plan names; a stack that is missing is no reason to stop
 3. ring          it opens only with a valid receipt of the one before
 4. cells         one after the other; each result is a file as soon as the cell has ended
 5. fingerprints  once more: a stack that changed meanwhile was not measured
 6. receipt       from the fingerprints and the cells' results: lines, differences, verdict

With `resume`, a cell that has ended is not run again, as long as the plan and its stacks are the same (`key_of`) and it
was measured less than `valid_days` ago; one that was interrupted goes on after its last pair, save or restore, if it
can (`GoesOn`).
Ctrl-C ends the running cell and everything that it started; what has ended stays.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from hangdrill.certify.cells import Cell, CellContext, CellResult, GoesOn
from hangdrill.certify.fingerprints import read_stack
from hangdrill.certify.matrix import cells_of
from hangdrill.certify.out import Out, open_out
from hangdrill.certify.plan import LoadedPlan
from hangdrill.certify.receipt import Made, cell_record, receipt_of, time_text
from hangdrill.certify.rings import open_ring
from hangdrill.certify.running import blocked_by, key_of, left_out, run_cell
from hangdrill.certify.selection import chosen
from hangdrill.certify.stacks import BASELINE, CANDIDATE, Stack
from hangdrill.certify.unchanged import unchanged_lines
from hangdrill.drill.layout import write_json
from hangdrill.drill.waiting import Interrupt, handling_signals
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.errors import Interrupted, MachineError
from hangdrill.model.receipt import CellRecord, Line, Receipt, StackRecord
from hangdrill.model.verdict import Verdict
from hangdrill.report.progress import Listener, NoopListener

__all__ = ["NoopWatcher", "Watcher", "certify"]


class Watcher(Protocol):
    """Who watches a certification. It must not fail and must not block."""

    def stack(self, stack: StackRecord) -> None:
        """A stack was looked at."""

    def begins(self, cell_id: str, title: str, number: int, total: int) -> None:
        """A cell begins; number counts from 1, and total is what `only` has chosen."""

    def ended(self, record: CellRecord, lines: Sequence[Line]) -> None:
        """A cell has ended, or its earlier result is taken."""


class NoopWatcher:
    """Watches nothing."""

    def stack(self, stack: StackRecord) -> None:
        """Nothing."""

    def begins(self, cell_id: str, title: str, number: int, total: int) -> None:
        """Nothing."""

    def ended(self, record: CellRecord, lines: Sequence[Line]) -> None:
        """Nothing."""


def certify(
    loaded: LoadedPlan,
    *,
    out_dir: Path,
    environ: Mapping[str, str],
    who: str,
    clock: Callable[[], datetime],
    resume: bool = False,
    only: Sequence[str] = (),
    watcher: Watcher | None = None,
    listener: Listener | None = None,
    cells: Sequence[Cell] | None = None,
) -> Receipt:
    """Run the plan and write OUT/receipt.json. clock: gives the time in UTC. cells: those of the plan, unless given.

    Raises UsageError, MachineError, or Interrupted once everything that was started has ended.
    """
    watcher = watcher or NoopWatcher()
    plan = loaded.plan
    # What is declared is looked at last, by the receipt: so it may be changed without measuring again.
    measured = msgspec.structs.replace(plan, declared=())
    every = tuple(cells) if cells is not None else cells_of(measured)
    selected = {cell.id: number for number, cell in enumerate(chosen(every, only), 1)}
    began = clock()
    with open_out(out_dir, resume=resume) as out, Interrupt() as interrupt, handling_signals(interrupt):
        try:
            out.plan.write_text(loaded.record.text, encoding="utf-8")
            stacks = read_stacks(loaded, environ, interrupt, watcher)
            write_json(out.stacks, [stack.record() for stack in stacks.values()])
            before = open_ring(plan.ring, stacks[CANDIDATE], now=began, environ=environ)
            home = Path(loaded.record.path).absolute().parent
            run = _Run(
                measured, out, stacks, environ, interrupt, listener or NoopListener(), watcher, resume, home, clock
            )
            results = [run.take_or_run(cell, selected) for cell in every]
            unchanged = run.look_again(results, lambda: read_stacks(loaded, environ, interrupt, NoopWatcher()))
        except OSError as error:
            what = f"the system refused: {error.strerror or error}"
            hint = f"mend it; the same command with --resume --out {out_dir} goes on"
            raise MachineError(what, where=error.filename or "", next_step=hint) from error
        except Interrupted as error:
            hint = f"the same command with --resume --out {out_dir} goes on"
            raise Interrupted(error.what, next_step=hint) from error
        made = Made(
            loaded=loaded,
            stacks=stacks,
            who=who,
            began=began,
            ended=clock(),
            ring_before=before,
            unchanged=unchanged,
        )
        receipt = receipt_of(made, results, resumed=run.resumed, out_dir=out.root)
        write_json(out.receipt, receipt)
    return receipt


def read_stacks(
    loaded: LoadedPlan, environ: Mapping[str, str], interrupt: Interrupt, watcher: Watcher
) -> dict[str, Stack]:
    """Every stack of the plan by name, the two sides first."""
    plan = loaded.plan
    wanted = [(BASELINE, plan.baseline), (CANDIDATE, plan.candidate)]
    wanted += [(stack.name, stack) for stack in plan.checkpoint.stack]
    stacks = {}
    for name, one in wanted:
        stacks[name] = read_stack(
            name,
            one.python,
            env=one.env,
            environ=environ,
            interrupt=interrupt,
            image=one.image,
            mounts=one.mounts,
        )
        watcher.stack(stacks[name].record())
    return stacks


class _Run(msgspec.Struct, frozen=True):
    """What all cells share."""

    plan: CertifyPlan
    out: Out
    stacks: dict[str, Stack]
    environ: Mapping[str, str]
    interrupt: Interrupt
    listener: Listener
    watcher: Watcher
    resume: bool
    plan_dir: Path
    clock: Callable[[], datetime]
    resumed: set[str] = msgspec.field(default_factory=set)

    def take_or_run(self, cell: Cell, selected: Mapping[str, int]) -> CellResult:
        """The earlier result if it is still good, else the cell is run, if it is selected and can be. selected: the ids
        of what is to run, with their numbers from 1 on."""
        self.interrupt.check()
        key = key_of(cell, self.plan, self.stacks)
        earlier = self.out.finished(cell.id, key, since=self._since()) if self.resume else None
        if earlier is not None:
            self.resumed.add(cell.id)
            self.watcher.ended(cell_record(earlier, self.resumed), earlier.lines)
            return earlier
        if cell.id not in selected:
            return left_out(cell)
        self.watcher.begins(cell.id, cell.title, selected[cell.id], len(selected))
        result = self._run(cell, key)
        self.out.require()
        if result.ran or not self.out.is_measured(cell.id):  # what cannot begin now must not cost hours of measuring
            self.out.write_result(result)
        if result.ran:
            self.out.end(cell.id)
        self.watcher.ended(cell_record(result), result.lines)
        return result

    def look_again(self, results: list[CellResult], read: Callable[[], Mapping[str, Stack]]) -> tuple[Line, ...]:
        """A line for each stack. Where one changed, what was measured in this run is not taken by a later one, nor does
        a later one go on with a cell that could not end."""
        fresh = [one for one in results if one.ran and one.id not in self.resumed]
        lines = unchanged_lines(self.stacks, results, read if fresh else None)
        if any(line.verdict is Verdict.FAIL for line in lines):
            for one in fresh:
                self.out.write_result(msgspec.structs.replace(one, key=""))
            for one in results:
                self.out.end(one.id)
        return lines

    def _run(self, cell: Cell, key: str) -> CellResult:
        blocked = blocked_by(cell, self.stacks, self.environ)
        if blocked is not None:
            return blocked
        now = time_text(self.clock())
        directory, began_at = self.out.begin(
            cell.id, key, goes_on=isinstance(cell, GoesOn), now=now, since=self._since()
        )
        context = CellContext(
            plan=self.plan,
            stacks=self.stacks,
            out_dir=self.out.root,
            cell_dir=directory,
            environ=self.environ,
            interrupt=self.interrupt,
            listener=self.listener,
            plan_dir=self.plan_dir,
        )
        began_s = time.monotonic()
        result = run_cell(cell, context)
        wall_s = round(time.monotonic() - began_s, 3)
        return msgspec.structs.replace(result, key=key, wall_s=wall_s, began_at=began_at)

    def _since(self) -> str:
        """What was measured earlier is too old for this plan."""
        return time_text(self.clock() - timedelta(days=self.plan.valid_days))
