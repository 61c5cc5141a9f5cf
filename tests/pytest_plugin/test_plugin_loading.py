"""The plugin costs nothing when it is not used, and works with xdist."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]
HEAVY = ("torch", "rich", "msgspec", "click", "psutil", "numpy", "hangdrill.drill", "hangdrill.model")


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    script = f"import sys, hangdrill.pytest_plugin; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_a_session_without_drills_imports_nothing_heavy(inner_process: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import sys
        def test_it():
            assert [name for name in {HEAVY!r} if name in sys.modules] == []
    """)
    inner_process().assert_outcomes(passed=1)


def test_workers_of_xdist_share_one_out_directory(
    inner_process: Run, pytester: pytest.Pytester, scenario_file: Callable[..., Path]
) -> None:
    for name in ("a.toml", "b.toml", "c.toml", "d.toml"):
        scenario_file(name)
    pytester.makeconftest("""
        import hangdrill.drill.run
        from hangdrill.model.run import DrillResult, Environment, Timings
        from hangdrill.model.verdict import Verdict

        def fake(name, scenario, *, run_dir, **options):
            run_dir.mkdir(parents=True)
            return DrillResult(scenario=name, verdict=Verdict.PASS, checks=(), diagnosis=None, expected_culprits=None,
                               timings=Timings(), environment=Environment(), artifacts=())

        hangdrill.drill.run.run_drill = fake
    """)
    inner_process("-p", "xdist", "-n", "2").assert_outcomes(passed=4)
    (out,) = (pytester.path / "hangdrill-runs").iterdir()
    assert sorted(path.name for path in out.iterdir()) == ["a", "b", "c", "d"]
