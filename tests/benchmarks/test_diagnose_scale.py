"""The benchmark of `hangdrill diagnose` runs, and gives no figure for a wrong answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import diagnose_scale
from make_dumps import DumpSet

ROOT = Path(__file__).parents[2]


def test_a_small_run_gives_every_figure(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/diagnose_scale.py", "--sizes", "16", "--entries", "100", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--variants-at", "16", "--torch-up-to", "0", "--json", str(tmp_path / "rows.json")],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["set"] for row in rows] == ["fsdp-16x100", "fsdp-distinct-16x100", "pipeline-16x100"]
    for row in rows:
        assert min(row["hangdrill"]["wall_s"], row["pickle"]["cpu_s"], row["peak_bytes"], row["ratio"]) > 0
        assert list(row["phases"]) == ["read", "diagnose", "report"]
        assert row["set"] in done.stdout
    assert "goal" not in done.stdout  # which are of other sizes


def test_a_wrong_or_missing_culprit_ends_the_benchmark() -> None:
    wanted = DumpSet(16)
    diagnose_scale.check(wanted, [{"rank": 11}])
    for culprits in ([], [{"rank": 3}], [{"rank": 11}, {"rank": 3}]):
        with pytest.raises(SystemExit, match="the truth is \\[11\\]"):
            diagnose_scale.check(wanted, culprits)


def test_the_goals_stand_beside_the_figures_they_are_of() -> None:
    row = {
        "set": "fsdp-1024x2000",
        "ranks": 1024,
        "entries": 2000,
        "bytes": 392e6,
        "rounds": 5,
        "hangdrill": {"wall_s": 12.0, "cpu_s": 23.0},
        "pickle": {"wall_s": 10.0, "cpu_s": 19.0},
        "pickle_no_gc_wall_s": 9.0,
        "pickle_peak_bytes": 60e6,
        "peak_bytes": 300e6,
        "largest_process_bytes": 200e6,
        "ratio": 1.2,
        "ratio_extremes": [1.1, 1.25],
        "phases": {},
    }
    text = "\n".join(diagnose_scale.report(row))
    assert "(goal: at most 1.3 x)" in text
    assert "(goal: at most 500 MB)" in text
    assert "goal" not in "\n".join(diagnose_scale.report({**row, "ranks": 256}))
    assert diagnose_scale.growth([row]) == ""
    large = {**row, "ranks": 4096, "hangdrill": {"wall_s": 252.0}, "pickle": {"wall_s": 160.0}}
    said = diagnose_scale.growth([{**row, "ranks": 256, "hangdrill": {"wall_s": 15.0}}, large])
    assert said == "per rank, 4096 against 256: 1.05 x (goal: at most 1.1 x); pickle.load 1.00 x"
