"""A sample of the mutations and prefixes of `fuzz_reading.py`, and proof that its guard hears what it must hear."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_mutations import seeds

SCRIPT = Path(__file__).with_name("fuzz_reading.py")
COUNT = int(os.environ.get("HANGDRILL_MUTATIONS", "400"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def test_mutated_dumps_end_in_a_diagnosis_or_one_error_within_the_limits() -> None:
    done = run("--mutations", str(COUNT), "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{COUNT} files read" in done.stdout
    assert "violations: 0" in done.stdout


def test_so_do_cut_files() -> None:
    done = run("--prefixes", "--stride", "701")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violations: 0" in done.stdout


def test_a_mutation_can_be_read_again() -> None:
    assert run("--only", "17").stdout == run("--only", "17").stdout != ""


def test_every_sort_of_file_is_among_the_seeds() -> None:
    names = {seed.name for seed in seeds()}
    assert {"fr_0", "fr_1", "_dump_0", "fr_0.json", "all.tar", "all.tar.gz", "all.zip"} <= names


GUARDED = """
import sys, time
sys.path[:0] = [{here!r}, {root!r}]
import fuzz_reading
fuzz_reading.MAX_SECONDS = 1
guard = fuzz_reading.Guard()
def what():
    {what}
    return "read"
try:
    print(guard.read(what))
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("pass", "read"),
        ("import os; os.system('true')", "Executed"),
        ("import pickle; pickle.loads({evil!r})", "Executed"),
        ("open('/dev/null', 'w')", "Executed"),
        ("exec('1')", "Executed"),
        ("time.sleep(60)", "Hang"),
    ],
)
def test_the_guard_hears_code_a_write_and_a_hang(what: str, said: str) -> None:
    """The positive control of the fuzzing."""
    code = GUARDED.format(
        here=str(SCRIPT.parent),
        root=str(SCRIPT.parents[2]),
        what=what.format(evil=pickle.dumps(json.loads, protocol=2)),
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == said, done.stderr
