"""`hangdrill run --sbatch`: a site's options come after the scenario's, are checked, and stay with Slurm."""

import pytest

from hangdrill.cli import run_command
from hangdrill.cli.run import _with_launcher
from hangdrill.drill.scenario_file import find_all, validate

SCENARIO = {
    "title": "t",
    "job": {"launcher": "slurm", "workload": "ddp", "sbatch": ["--qos=low"]},
    "fault": {"kind": "hold", "rank": 1, "before": {"op": "all_reduce"}},
}


@pytest.fixture
def items():
    return [validate(SCENARIO, name="x", path=None)]


def test_options_of_the_command_come_last(items):
    (named,) = _with_launcher(items, None, ("--partition=gpu", "--qos=high"))
    assert named.scenario.job.sbatch == ("--qos=low", "--partition=gpu", "--qos=high")


def test_options_are_not_taken_along_to_another_launcher(items):
    (named,) = _with_launcher(items, "torchrun", ())
    assert named.scenario.job.sbatch == ()


def test_scenario_of_another_launcher_takes_the_options_with_slurm():
    (named,) = _with_launcher(find_all(("quick/ddp-hold",)), "slurm", ("--partition=gpu",))
    assert (named.scenario.job.launcher.value, named.scenario.job.sbatch) == ("slurm", ("--partition=gpu",))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--launcher", "slurm", "--sbatch=--nodes=3"], "hangdrill needs --nodes itself"),
        (["--launcher", "slurm", "--sbatch=gpu"], "one long option"),
        (["--sbatch=--partition=gpu"], "torchrun submits no batch job"),
    ],
)
def test_option_that_cannot_be_passed_is_bad_usage(words, why, capsys, tmp_path):
    assert run_command(["run", "quick/ddp-hold", *words, "--out", str(tmp_path / "out")]) == 64
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
