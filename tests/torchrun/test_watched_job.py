"""A job of one's own with the collector beside it, as docs/collect.md says: no orders, no hooks, the culprit named."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hangdrill import diagnose
from hangdrill.rank.record import HEADER_WORDS

pytestmark = pytest.mark.torchrun

ROOT = Path(__file__).resolve().parents[2]
JOB = """
import sys, time
from datetime import timedelta
import torch, torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=15))
for step in range(6):
    if step == 4 and dist.get_rank() == int(sys.argv[1]):
        time.sleep(300)
    dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


def watched(place: Path, culprit: int) -> tuple[int, int]:
    """Exit codes of the job and of the collector."""
    (place / "job.py").write_text(JOB)
    (place / "sockets").mkdir()
    environ = {
        "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(place), "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo", "HANGDRILL_SOCKETS": str(place / "sockets"),
    }  # fmt: skip
    collect = [sys.executable, "-m", "hangdrill", "collect", "--sockets", str(place / "sockets")]
    collect += ["--to", str(place / "evidence"), "--stall-after-s", "3", "--linger-s", "1"]
    job = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    job += ["-m", "hangdrill.rank", "job.py", str(culprit)]
    with (place / "said").open("wb") as said:
        collector = subprocess.Popen(collect, env=environ, stderr=said)
    try:
        done = subprocess.run(job, env=environ, cwd=place, timeout=120, check=False, stderr=subprocess.DEVNULL)
        return done.returncode, collector.wait(60)
    finally:
        collector.kill()
        collector.wait()


def counted(place: Path, rank: int) -> int:
    """All that the agent counted in the groups of one rank."""
    words = memoryview((place / f"sockets/rank_{rank}.a0.ops").read_bytes()).cast("Q")
    return sum(words[HEADER_WORDS:])


def test_every_rank_of_a_stuck_job_is_pulled_and_the_culprit_is_named(tmp_path):
    assert watched(tmp_path, culprit=1) == (1, 0)
    said = (tmp_path / "said").read_text()
    assert re.match(
        r"noticed: all_reduce #\d+ of default_pg pending .* on rank 0; evidence of 2 of 2 ranks is in ", said
    ), said
    assert said.endswith(f"next: hangdrill diagnose {tmp_path}/evidence\n")
    manifest = json.loads((tmp_path / "evidence/manifest.json").read_text())
    assert sorted(item["rank"] for item in manifest["artifacts"] if item["kind"] == "dump") == [0, 1]
    found = diagnose(tmp_path / "evidence")
    assert [culprit.rank for culprit in found.culprits] == [1]
    assert [counted(tmp_path, rank) for rank in (0, 1)] == [0, 0]  # no hooks


def test_a_job_that_goes_well_ends_well_and_leaves_no_socket(tmp_path):
    assert watched(tmp_path, culprit=7) == (0, 0)
    assert (tmp_path / "said").read_text() == ""
    assert not list((tmp_path / "sockets").glob("*.sock"))
    assert not diagnose(tmp_path / "evidence").culprits


def test_the_directory_is_made_for_its_owner_only(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text("print('ran')\n")
    for sockets, code in ((str(tmp_path / "deep/sockets"), 0), ("sockets", 64)):
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "HANGDRILL_SOCKETS": sockets}
        words = [sys.executable, "-m", "hangdrill.rank", str(script)]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
        assert done.returncode == code, done.stderr
    assert "expected an absolute directory, got 'sockets'" in done.stderr
    assert stat.S_IMODE((tmp_path / "deep/sockets").stat().st_mode) == 0o700
