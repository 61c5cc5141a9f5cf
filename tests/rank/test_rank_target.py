"""A program under the agent is the program alone: its argv, `__main__`, status and output; and torch is not needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from hangdrill.rank.target import Target, TargetError, parse_target

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments, **environ):
    return subprocess.run(
        [sys.executable, *arguments],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["train.py", "--lr", "1"], Target(args=("--lr", "1"), script=Path("train.py"))),
        (["-m", "package.train", "x"], Target(args=("x",), module="package.train")),
        (["workload:ddp"], Target(args=(), module="hangdrill.rank.workloads.ddp")),
    ],
)
def test_a_target_is_a_script_a_module_or_a_workload(argv, expected):
    assert parse_target(argv) == expected


@pytest.mark.parametrize("argv", [[], ["-m"], ["--help"], ["workload:dpd"]])
def test_no_target_is_a_mistake(argv):
    with pytest.raises(TargetError):
        parse_target(argv)


def test_without_orders_the_program_runs_untouched_and_without_torch(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nassert __name__ == '__main__' and 'torch' not in sys.modules\nprint(sys.argv, __file__)\n"
    )
    alone, wrapped = run(str(script), "a"), run("-m", "hangdrill.rank", str(script), "a")
    assert (wrapped.stdout, wrapped.stderr, wrapped.returncode) == (alone.stdout, "", 0)


def test_without_orders_it_ends_as_it_ends_alone(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(7)\n")
    assert run("-m", "hangdrill.rank", str(script)).returncode == 7


def test_a_missing_script_is_a_mistake_of_the_user(tmp_path):
    done = run("-m", "hangdrill.rank", str(tmp_path / "absent.py"))
    assert done.returncode == 64
    assert "absent.py: cannot read the script" in done.stderr
