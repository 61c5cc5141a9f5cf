"""Two real jobs that write their dumps to one path: the one whose dumps were overwritten fails, the other passes."""

import os
import shutil
import signal
from pathlib import Path

import psutil
import pytest
from controls_lab import CHECKOUT, not_passed, result_of, run_hangdrill, start_hangdrill

from hangdrill.drill.waiting import Waiter

pytestmark = [
    pytest.mark.torchrun,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed"),
]

SCENARIO = """
title = "{name}"
[job]
launcher = "bwrap"
script = "{script}"
args = ["--timeout-s", "{timeout_s}"]
nproc_per_node = 2
timeout_s = 5
volumes = ["{directory}/shared:/mnt/dumps"]
[fault]
kind = "hold"
rank = 1
before = {{ op = "all_reduce", nth = 5 }}
[recorder]
trigger = "native"
dump_to = "/mnt/dumps"
[expect]
culprit = 1
within_s = 600
"""
REACH_S = 240.0


def write(directory: Path, name: str, timeout_s: int) -> str:
    script = CHECKOUT / "scenarios/controls/dumping.py"
    text = SCENARIO.format(name=name, script=script, timeout_s=timeout_s, directory=directory)
    (directory / f"{name}.toml").write_text(text)
    return f"{name}.toml"


def ranks_of(run_dir: Path) -> list[psutil.Process]:
    """The ranks of a drill that runs: they know its agent's orders, and their own rank."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
        except psutil.Error:
            continue
        if environ.get("HANGDRILL_AGENT", "").startswith(f"{run_dir}/") and "LOCAL_RANK" in environ:
            found.append(process)
    return found


def test_job_whose_dumps_another_one_overwrote_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o700)
    out, journal = tmp_path / "out", tmp_path / "out/first/journal.jsonl"
    first, second = write(tmp_path, "first", 600), write(tmp_path, "second", 5)
    with start_hangdrill(["run", first, "--out", str(out)], tmp_path) as process:
        dumped = Waiter().until(
            lambda: ((tmp_path / "shared/fr_0").exists() and '"noticed"' in journal.read_text()) or None,
            deadline_s=REACH_S,
        )
        code, told = run_hangdrill(["run", second, "--out", str(tmp_path / "other")], tmp_path)
        for rank in ranks_of(out / "first"):  # else they wait for ten minutes
            os.kill(rank.pid, signal.SIGKILL)
        output, _ = process.communicate()
    assert dumped, output
    assert (code, not_passed(result_of(tmp_path / "other", "second"))) == (0, {}), told
    assert process.returncode == 1, output
    failed = not_passed(result_of(out, "first"), "fail")
    assert set(failed) == {"own-dump"}, output
    assert failed["own-dump"]["ranks"] == {"0": "fail", "1": "fail"}
    assert "put the job's id into TORCH_FR_DUMP_TEMP_FILE" in failed["own-dump"]["mend"]
    assert "was written by another job or host: its all_reduce #" in failed["own-dump"]["detail"]
    assert "s after this rank's own" in failed["own-dump"]["detail"]
