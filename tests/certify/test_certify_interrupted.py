"""Ctrl-C in the middle of a real cell: everything that it started is ended, and --resume goes on with the rest."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hangdrill.cli import run_command
from hangdrill.drill.waiting import Waiter

pytestmark = pytest.mark.torchrun


def processes_of(directory: Path) -> list[str]:
    """The command lines of all processes that know this directory."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(str(directory) in word for word in words):
            found.append(" ".join(process.cmdline()))
    return found


def test_ctrl_c_in_a_drill_leaves_nothing_running_and_resume_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    side = f'python = "{sys.executable}"'
    plan.write_text(f'title = "none"\n[baseline]\n{side}\n[candidate]\n{side}\n[workload]\ntimeout_s = 5\n')
    words = ["certify", str(plan), "--only", "controls", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "hangdrill", *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    journal = out / "cells/controls/recorder-off/run/journal.jsonl"
    try:
        launched = Waiter().until(
            lambda: (journal.is_file() and '"launched"' in journal.read_text()) or None, deadline_s=120
        )
        assert launched, "the drill never began"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=90)
    finally:
        process.kill()
    assert (process.returncode, "--resume" in told) == (130, True)
    assert processes_of(tmp_path) == []
    assert not (out / "cells/controls/recorder-off.json").exists()

    assert run_command([*words, "--resume"]) == 2  # the rest of the matrix is left out
    capsys.readouterr()
    receipt = json.loads((out / "receipt.json").read_bytes())
    ran = {cell["id"]: cell["verdict"] for cell in receipt["cells"] if cell["ran"]}
    assert ran == {"controls/recorder-off": "pass"}


@pytest.mark.timeout(900)
def test_pairs_that_had_ended_are_not_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    side = f'python = "{sys.executable}"'
    plan.write_text(
        f'title = "none"\nmeasures = ["init-time"]\n[baseline]\n{side}\n[candidate]\n{side}\n'
        "[workload]\npairs = 2\nsteps = 1\n"
    )
    words = ["certify", str(plan), "--only", "canary", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "hangdrill", *words], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    cell = out / "cells" / "canary" / "stacks"
    try:
        third = Waiter().until(lambda: (cell / "02-candidate" / "job.log").is_file() or None, deadline_s=240)
        assert third, "the second pair never began"
        process.send_signal(signal.SIGINT)
        process.wait(timeout=90)
    finally:
        process.kill()
    before = {path.name: path.read_bytes() for path in cell.glob("*.run.json")}
    assert set(before) == {"01-baseline.run.json", "01-candidate.run.json"}
    assert not (out / "cells" / "canary" / "stacks.json").exists()

    assert processes_of(tmp_path) == []
    assert run_command([*words, "--resume"]) == 2  # the rest of the matrix is left out
    capsys.readouterr()
    after = {path.name: path.read_bytes() for path in cell.glob("*.run.json")}
    assert (len(after), {name: after[name] for name in before}) == (4, before)
    assert processes_of(tmp_path) == []


def test_what_a_killed_certification_leaves_is_ended_by_clean_and_resume_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    side = f'python = "{sys.executable}"'
    plan.write_text(f'title = "none"\n[baseline]\n{side}\n[candidate]\n{side}\n')
    words = ["certify", str(plan), "--only", "binding", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "hangdrill", *words], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        log = out / "cells/binding/explicit-baseline/job.log"
        assert Waiter().until(lambda: log.is_file() or None, deadline_s=120), "the job never began"
    finally:
        process.kill()
        process.wait()
    assert run_command(["clean"]) == 0
    assert processes_of(tmp_path) == []
    capsys.readouterr()

    assert run_command([*words, "--resume"]) == 2  # the rest of the matrix is left out
    receipt = json.loads((out / "receipt.json").read_bytes())
    assert {cell["id"]: cell["verdict"] for cell in receipt["cells"] if cell["ran"]} == {"binding": "pass"}
    assert processes_of(tmp_path) == []
