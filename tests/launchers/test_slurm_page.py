"""docs/slurm.md says what the code does: its teardowns, findings, options, scenarios and numbers."""

import re
import shutil
import subprocess

import pytest
from box_requests import CHECKOUT

from hangdrill.drill.scenario_file import find_all
from hangdrill.launchers.slurm import NODE_LOCAL
from hangdrill.launchers.slurm_job import NODE_LOOK_S
from hangdrill.launchers.slurm_script import mistake_in
from hangdrill.model.scenario import TEARDOWNS_OF, Job, LauncherName
from hangdrill.preflight import CATALOGUE
from hangdrill.preflight.slurm import NODE_LOCAL as OF_PREFLIGHT

PAGE = (CHECKOUT / "docs/slurm.md").read_text()
SCRIPT = CHECKOUT / "docs/examples/collect.sbatch"


def words(pattern, text=PAGE):
    return set(re.findall(pattern, text, re.MULTILINE))


def section(title):
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_teardowns_are_those_that_slurm_can_do():
    able = {teardown.value for teardown, launchers in TEARDOWNS_OF.items() if LauncherName.SLURM in launchers}
    assert words(r"^\| `([a-z-]+)` \|", section("The ways a job ends")) - {"survives"} == able


def test_findings_are_in_the_catalogue():
    assert words(r"^\| `([a-z-]+)` \|", section("Before anything runs")) <= CATALOGUE.keys()


def test_options_that_it_calls_refused_are_refused():
    text = section("Options of your site").partition("What it sets itself")[2].partition("is refused")[0]
    named = words(r"`(--[a-z-]+)`", text)
    assert len(named) > 5
    assert all(mistake_in(option) for option in named)


def test_scenarios_exist():
    named = words(r"hangdrill (?:run|preflight) ([a-z]+/[a-z-]+)")
    assert {found.name for found in find_all(tuple(sorted(named)))} == named


def test_numbers_and_places_are_those_of_the_code():
    assert (Job().queue_s, NODE_LOOK_S) == (900.0, 120.0), "the page says 15 minutes and two minutes"
    assert all(f"`{root}`" in PAGE for root in NODE_LOCAL)
    assert set(NODE_LOCAL) == set(OF_PREFLIGHT)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_ready_script_is_whole_and_says_what_the_page_says():
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    text = SCRIPT.read_text()
    three_things = section("Your own job, with the collector beside the ranks")
    for said in ("--kill-on-bad-exit=0 --wait=0", "SRUN_CPUS_PER_TASK", "--signal=TERM@120"):
        assert f"`{said}`" in three_things
        assert said in text
