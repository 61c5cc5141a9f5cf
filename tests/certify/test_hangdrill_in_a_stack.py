"""Who certifies the environment in which hangdrill itself lives is told so."""

from pathlib import Path

from fake_pythons import fake_python

from hangdrill.certify.fingerprints import read_stack
from hangdrill.certify.own_lines import differences_line
from hangdrill.certify.stacks import Stack
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.receipt import Difference
from hangdrill.model.verdict import Verdict


def stack(tmp_path: Path, name: str) -> Stack:
    with Interrupt() as interrupt:
        return read_stack(name, fake_python(tmp_path / name / "python"), env={}, environ={}, interrupt=interrupt)


def test_the_mend_of_undeclared_packages_names_hangdrill(tmp_path: Path) -> None:
    both = stack(tmp_path, "baseline"), stack(tmp_path, "candidate")
    for what, wanted in (("package:hangdrill", True), ("package:numpy", False)):
        line = differences_line([Difference(line="differences/declared", what=what, baseline="", candidate="1")], *both)
        assert line.verdict is Verdict.FAIL
        assert ("hangdrill is installed in one of the stacks" in line.mend) is wanted
