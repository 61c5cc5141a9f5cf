"""The order of a certification, with cells and stacks that answer at once."""

import errno
import os
import signal
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_cells import FakeCell, every_item
from fake_pythons import fake_python

from hangdrill.certify.cells import CellContext, CellResult, Needs
from hangdrill.certify.plan import LoadedPlan, plan_of
from hangdrill.certify.run import NoopWatcher, certify
from hangdrill.model.errors import Interrupted, MachineError, UsageError
from hangdrill.model.receipt import Difference, Item, Line, Receipt
from hangdrill.model.verdict import Verdict

NOW = datetime(2026, 11, 29, 23, 40, tzinfo=timezone.utc)


def a_plan(tmp_path: Path, *, more: str = "", candidate: str | None = None) -> LoadedPlan:
    baseline = fake_python(tmp_path / "a" / "python", torch="2.14.1+cu130")
    candidate = candidate or fake_python(tmp_path / "b" / "python")
    text = f'title = "up"\n{more}\n[baseline]\npython = "{baseline}"\n[candidate]\npython = "{candidate}"\n'
    return plan_of(text, path=tmp_path / "plan.toml", environ=os.environ)


def run(tmp_path: Path, cells: Sequence[FakeCell], **options: Any) -> Receipt:
    loaded = options.pop("loaded", None) or a_plan(tmp_path)
    later = options.pop("later", timedelta())
    return certify(
        loaded,
        out_dir=tmp_path / "out",
        environ=os.environ,
        who="kim",
        clock=lambda: NOW + later,
        cells=cells,
        **options,
    )


def verdicts(receipt: Receipt) -> dict[str, Verdict]:
    return {line.id: line.verdict for line in receipt.lines}


def test_every_item_passing_and_a_control_that_holds_is_a_pass(tmp_path: Path) -> None:
    receipt = run(tmp_path, every_item())
    assert receipt.verdict is Verdict.PASS, receipt.sentence
    assert receipt.valid_until == "2026-12-29T23:40:00Z"
    assert msgspec.json.decode((tmp_path / "out" / "receipt.json").read_bytes(), type=Receipt) == receipt


def test_no_cell_at_all_is_unknown(tmp_path: Path) -> None:
    receipt = run(tmp_path, [])
    assert receipt.verdict is Verdict.UNKNOWN
    assert verdicts(receipt)["certification/cells"] is Verdict.UNKNOWN


def test_a_control_that_does_not_hold_makes_the_receipt_unknown(tmp_path: Path) -> None:
    receipt = run(tmp_path, every_item(got=Verdict.PASS))
    assert receipt.verdict is Verdict.UNKNOWN
    assert verdicts(receipt)["certification/controls"] is Verdict.UNKNOWN


def test_no_control_makes_the_receipt_unknown(tmp_path: Path) -> None:
    assert run(tmp_path, every_item()[:-1]).verdict is Verdict.UNKNOWN


def test_an_item_that_nothing_measures_is_unknown(tmp_path: Path) -> None:
    cells = [cell for cell in every_item() if cell.id != "fake/memory"]
    assert verdicts(run(tmp_path, cells))["record/memory"] is Verdict.UNKNOWN


def test_a_failing_line_fails_the_receipt(tmp_path: Path) -> None:
    assert run(tmp_path, [*every_item(), FakeCell(id="bad", verdict=Verdict.FAIL)]).verdict is Verdict.FAIL


def test_a_missing_stack_makes_its_lines_unknown_and_the_rest_goes_on(tmp_path: Path) -> None:
    loaded = a_plan(tmp_path, candidate="/nowhere/bin/python")
    alone, both = FakeCell(id="alone", needs=Needs(stacks=("baseline",))), FakeCell(id="both")
    receipt = run(tmp_path, [both, alone], loaded=loaded)
    found = {line.id: line for line in receipt.lines}
    assert (found["alone/held"].verdict, found["both/held"].verdict) == (Verdict.PASS, Verdict.UNKNOWN)
    assert "no Python at /nowhere/bin/python" in found["both/held"].detail
    assert found["both/held"].mend
    assert (alone.ran, both.ran) == (["alone"], [])


def test_too_few_gpus_make_the_lines_unknown(tmp_path: Path) -> None:
    receipt = run(tmp_path, [FakeCell(needs=Needs(gpus=8))])
    found = next(line for line in receipt.lines if line.id == "fake/one/held")
    assert (found.verdict, found.detail) == (Verdict.UNKNOWN, "it needs 8 GPUs, and baseline has 2 here")


def test_a_crashing_cell_is_unknown_and_leaves_its_traceback(tmp_path: Path) -> None:
    def crash(context: CellContext) -> CellResult:
        raise KeyError("lost")

    def refuse(context: CellContext) -> CellResult:
        raise MachineError("the port is taken", next_step="free it")

    receipt = run(tmp_path, [FakeCell(id="crash", does=crash), FakeCell(id="refuse", does=refuse), FakeCell(id="last")])
    found = {line.id: line for line in receipt.lines}
    assert "KeyError" in found["crash/held"].detail
    assert (found["refuse/held"].detail, found["refuse/held"].mend) == ("the port is taken", "free it")
    assert found["last/held"].verdict is Verdict.PASS
    assert "KeyError" in (tmp_path / "out" / "cells" / "crash" / "error.txt").read_text()


def test_a_full_disk_in_a_cell_is_no_bug(tmp_path: Path) -> None:
    def full(context: CellContext) -> CellResult:
        raise OSError(errno.ENOSPC, "No space left on device")

    receipt = run(tmp_path, [FakeCell(does=full), FakeCell(id="last")])
    found = {line.id: line for line in receipt.lines}
    assert (found["fake/one/held"].detail, found["fake/one/held"].mend) == (
        "the system refused: No space left on device",
        "mend that, and add --resume",
    )
    assert found["last/held"].verdict is Verdict.PASS
    assert not list((tmp_path / "out" / "cells").rglob("error.txt"))


def test_a_promise_that_is_not_kept_is_unknown(tmp_path: Path) -> None:
    receipt = run(tmp_path, [FakeCell(does=lambda context: CellResult(id="fake/one"))])
    assert verdicts(receipt)["fake/one/held"] is Verdict.UNKNOWN


def test_resume_runs_only_what_has_not_ended(tmp_path: Path) -> None:
    def stop(context: CellContext) -> CellResult:
        os.kill(os.getpid(), signal.SIGINT)
        context.interrupt.check()
        raise AssertionError

    first, second = FakeCell(id="first"), FakeCell(id="second", does=stop)
    with pytest.raises(Interrupted, match="--resume"):
        run(tmp_path, [first, second])
    again, third = FakeCell(id="first"), FakeCell(id="second")
    receipt = run(tmp_path, [again, third], resume=True)
    assert (first.ran, again.ran, third.ran) == (["first"], [], ["second"])
    assert [(cell.id, cell.resumed) for cell in receipt.cells] == [("first", True), ("second", False)]


def test_resume_runs_again_what_was_measured_on_another_stack(tmp_path: Path) -> None:
    run(tmp_path, [FakeCell()])
    fake_python(tmp_path / "b" / "python", nccl="2.31.0")
    again = FakeCell()
    loaded = plan_of((tmp_path / "out" / "plan.toml").read_text(), path=tmp_path / "p.toml", environ=os.environ)
    run(tmp_path, [again], resume=True, loaded=loaded)
    assert again.ran


def test_resume_takes_what_an_owner_of_the_fallback_does_not_change(tmp_path: Path) -> None:
    run(tmp_path, [FakeCell()])
    again = FakeCell()
    run(tmp_path, [again], resume=True, loaded=a_plan(tmp_path, more="valid_days = 3"))
    assert not again.ran


def test_resume_makes_no_measurement_younger(tmp_path: Path) -> None:
    run(tmp_path, [FakeCell(id="first")])
    again, new = FakeCell(id="first"), FakeCell(id="second")
    receipt = run(tmp_path, [again, new], resume=True, later=timedelta(days=29))
    assert (again.ran, new.ran) == ([], ["second"])
    assert (receipt.began_at, receipt.valid_until) == ("2026-11-29T23:40:00Z", "2026-12-29T23:40:00Z")
    assert receipt.made_at == "2026-12-28T23:40:00Z"


def test_resume_measures_again_what_is_older_than_the_receipt_may_be(tmp_path: Path) -> None:
    run(tmp_path, [FakeCell(id="first")])
    again = FakeCell(id="first")
    receipt = run(tmp_path, [again], resume=True, later=timedelta(days=31))
    assert again.ran
    assert receipt.valid_until == "2027-01-29T23:40:00Z"


def test_resume_runs_again_what_could_not_begin(tmp_path: Path) -> None:
    run(tmp_path, [FakeCell(needs=Needs(programs=("no-such-program",)))])
    again = FakeCell()
    run(tmp_path, [again], resume=True)
    assert again.ran


def test_only_leaves_the_others_out_as_unknown(tmp_path: Path) -> None:
    one, other = FakeCell(id="canary/dp"), FakeCell(id="checkpoint/pair")
    receipt = run(tmp_path, [one, other], only=["canary"])
    assert (one.ran, other.ran) == (["canary/dp"], [])
    assert verdicts(receipt)["checkpoint/pair/held"] is Verdict.UNKNOWN
    (all_ran,) = [line for line in receipt.lines if line.id == "certification/cells"]
    assert (all_ran.verdict, all_ran.mend.startswith("run it too")) == (Verdict.UNKNOWN, True)


@pytest.mark.parametrize(
    ("only", "told"),
    [([], ["1/3 a/one", "2/3 b/one", "3/3 b/two"]), (["b"], ["1/2 b/one", "2/2 b/two"])],
    ids=["all", "a part"],
)
def test_what_runs_is_counted_and_nothing_else(tmp_path: Path, only: list[str], told: list[str]) -> None:
    class Counting(NoopWatcher):
        def begins(self, cell_id: str, title: str, number: int, total: int) -> None:
            seen.append(f"{number}/{total} {cell_id}")

    seen: list[str] = []
    run(tmp_path, [FakeCell(id=name) for name in ("a/one", "b/one", "b/two")], only=only, watcher=Counting())
    assert seen == told


def test_only_with_an_unknown_pattern_offers_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="canary/dp"):
        run(tmp_path, [FakeCell(id="canary/dp")], only=["canary/pd"])


def test_a_directory_in_use_or_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        run(tmp_path, [])
    with pytest.raises(UsageError, match="no certification to resume"):
        run(tmp_path, [], resume=True)


def test_two_certifications_do_not_share_a_directory(tmp_path: Path) -> None:
    def second(context: CellContext) -> CellResult:
        with pytest.raises(UsageError, match="another hangdrill works"):
            run(tmp_path, [], resume=True)
        return CellResult(id="fake/one")

    run(tmp_path, [FakeCell(does=second)])


def test_a_disk_that_refuses_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "out" / "plan.toml").mkdir(parents=True)
    with pytest.raises(UsageError, match="no certification to resume"):
        run(tmp_path, [], resume=True)

    def block(context: CellContext) -> CellResult:
        (context.out_dir / "receipt.json").mkdir()
        return CellResult(id="fake/one")

    with pytest.raises(MachineError):
        run(tmp_path / "2", [FakeCell(does=block)])


def test_an_undeclared_difference_is_a_finding_and_a_declared_one_is_not(tmp_path: Path) -> None:
    changed = fake_python(tmp_path / "c" / "python", nccl="2.31.0")
    found = run(tmp_path, every_item(), loaded=a_plan(tmp_path, candidate=changed))
    assert found.verdict is Verdict.FAIL
    assert [one.what for one in found.differences if not one.declared] == ["nccl"]
    declared = a_plan(tmp_path, candidate=changed, more='declared = ["torch", "nccl"]')
    assert run(tmp_path / "2", every_item(), loaded=declared).verdict is Verdict.PASS


def test_a_difference_that_a_cell_finds_must_be_declared_too(tmp_path: Path) -> None:
    def differ(context: CellContext) -> CellResult:
        one = Difference(line="gpu/memory/more", what="memory before the first step", baseline="0", candidate="460 MB")
        return CellResult(id="gpu/memory", differences=(one,))

    cell = FakeCell(id="gpu/memory", does=differ)
    receipt = run(tmp_path, [cell])
    assert [one.what for one in receipt.unresolved] == ["memory before the first step: 0 -> 460 MB"]
    assert receipt.unresolved[0].next_step == "find the cause, or declare gpu/memory/more"
    declared = run(tmp_path / "2", [cell], loaded=a_plan(tmp_path, more='declared = ["torch", "gpu/memory/*"]'))
    assert not declared.unresolved


@pytest.mark.parametrize(("declarable", "verdict"), [(True, Verdict.PASS), (False, Verdict.FAIL)])
def test_what_is_declared_later_is_accepted_without_measuring_again(
    tmp_path: Path, declarable: bool, verdict: Verdict
) -> None:
    def worse(context: CellContext) -> CellResult:
        assert context.plan.declared == ()
        line = Line(
            id="gpu/memory/more",
            item=Item.MEMORY,
            verdict=Verdict.FAIL,
            claim="no more memory",
            declarable=declarable,
        )
        one = Difference(line=line.id, what="memory before the first step", baseline="0", candidate="460 MB")
        return CellResult(id="gpu/memory", lines=(line,), differences=(one,))

    cell = FakeCell(id="gpu/memory", does=worse)
    assert verdicts(run(tmp_path, [cell]))["gpu/memory/more"] is Verdict.FAIL
    declared = a_plan(tmp_path, more='declared = ["torch", "memory before*"]')
    again = run(tmp_path, [cell], loaded=declared, resume=True)
    assert (cell.ran, verdicts(again)["gpu/memory/more"]) == (["gpu/memory"], verdict)
    withdrawn = run(tmp_path, [cell], loaded=a_plan(tmp_path), resume=True)
    assert (cell.ran, verdicts(withdrawn)["gpu/memory/more"]) == (["gpu/memory"], Verdict.FAIL)


@pytest.mark.parametrize(
    ("backend", "expires", "until"),
    [
        ("nccl", "2026-12-01", "2026-12-01T00:00:00Z"),
        ("nccl", "2027-12-01", "2026-12-29T23:40:00Z"),
        ("cpu:gloo,cuda:nccl", "2026-12-01", "2026-12-01T00:00:00Z"),
        ("gloo", "2026-12-01", "2026-12-29T23:40:00Z"),
        ("gloo", "2020-01-01", "2026-12-29T23:40:00Z"),
    ],
)
def test_a_fallback_that_expires_first_ends_the_receipt_where_there_is_one(
    tmp_path: Path, backend: str, expires: str, until: str
) -> None:
    loaded = plan_of(
        f'{a_plan(tmp_path).record.text}[rollback]\nexpires = "{expires}"\n[workload]\nbackend = "{backend}"\n',
        path=tmp_path / "plan.toml",
        environ=os.environ,
    )
    assert run(tmp_path, [], loaded=loaded).valid_until == until
    told = [text for text in loaded.warnings if "rollback.expires is not used" in text]
    assert bool(told) is (backend == "gloo")


def test_a_stack_without_torch_is_not_compared_package_by_package(tmp_path: Path) -> None:
    bare = fake_python(tmp_path / "c" / "python", torch="", packages=())
    receipt = run(tmp_path, every_item(), loaded=a_plan(tmp_path, candidate=bare))
    assert (receipt.verdict, receipt.differences) == (Verdict.UNKNOWN, ())
    assert verdicts(receipt)["differences/declared"] is Verdict.UNKNOWN
