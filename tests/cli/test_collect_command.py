"""`hangdrill collect` hands its options to the collector, and INT, TERM or HUP ends it in order."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hangdrill.cli import run_command
from hangdrill.collector import CollectorOptions
from hangdrill.delivery import DeliveryOptions
from hangdrill.model.run import Manifest
from hangdrill.model.scenario import Incident

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPED = """
import signal
import hangdrill.collector
from hangdrill.model.run import Manifest, RankPull, RankState

def collect(options, stop):
    assert not stop.is_set()
    signal.raise_signal({number})
    print("finishes what it has" if stop.is_set() else "goes on")
    return Manifest(ranks=(RankPull(rank=0, state=RankState.GONE),))

hangdrill.collector.collect = collect
from hangdrill.cli import main
main()
"""


def told_to_end(number: int, place: Path, *, is_ignored: bool = False) -> tuple[int, str]:
    script = STOPPED.format(number=int(number))
    if is_ignored:
        script = f"import signal; signal.signal({int(number)}, signal.SIG_IGN)\n{script}"
    words = [sys.executable, "-c", script, "collect", "--sockets", str(place), "--to", str(place / "to")]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("number", ENDING, ids=str)
def test_a_signal_asks_it_to_finish(number: int, tmp_path: Path) -> None:
    assert told_to_end(number, tmp_path) == (0, "finishes what it has\n")


def test_under_nohup_it_goes_on(tmp_path: Path) -> None:
    assert told_to_end(signal.SIGHUP, tmp_path, is_ignored=True) == (0, "goes on\n")


def test_every_option_of_the_collector_can_be_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[CollectorOptions] = []

    def collect(options: CollectorOptions, stop: Any) -> Manifest:
        given.append(options)
        return Manifest()

    monkeypatch.setattr("hangdrill.collector.collect", collect)
    before = {number: signal.getsignal(number) for number in ENDING}
    wanted = CollectorOptions(
        sockets=tmp_path, to=tmp_path / "to", control=tmp_path, run_id="r", world_size=2, backends=("gloo", "nccl"),
        stall_after_s=3.0, poll_s=0.1, settle_s=0.2, linger_s=1.0, native_prefix="/p/fr_", parent_pid=7,
        delivery=DeliveryOptions(
            url="s3://dumps/x", within_s=7.0, job="train", host="h7", run="r",
            incident=Incident(command=("notify.sh", "gpu oncall"), webhook="https://chat/x", timeout_s=4.0),
        ),
    )  # fmt: skip
    words = ["collect", "--sockets", str(tmp_path), "--to", str(tmp_path / "to"), "--control", str(tmp_path)]
    words += [
        "--run-id",
        "r",
        "--world-size",
        "2",
        "--backend",
        "gloo",
        "--backend",
        "nccl",
        "--stall-after-s",
        "3",
        "--poll-s",
        "0.1",
    ]
    words += ["--settle-s", "0.2", "--linger-s", "1", "--native-prefix", "/p/fr_", "--parent-pid", "7"]
    words += [
        "--deliver-to",
        "s3://dumps/x",
        "--deliver-within-s",
        "7",
        "--job",
        "train",
        "--host",
        "h7",
        "--hook-timeout-s",
        "4",
    ]
    words += ["--on-hang-command", "notify.sh 'gpu oncall'", "--on-hang-webhook", "https://chat/x"]
    try:
        assert run_command(words) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert given == [wanted]


def test_a_collector_without_ranks_ends_in_order_when_its_parent_is_gone(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    (tmp_path / "sockets").mkdir()
    command = [sys.executable, "-m", "hangdrill", "collect", "--sockets", str(tmp_path / "sockets")]
    command += ["--to", str(tmp_path / "to"), "--parent-pid", str(dead.pid)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=environ, timeout=60, check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert "no rank ever answered here" in done.stderr
    assert json.loads((tmp_path / "to/manifest.json").read_text())["schema"] == "hangdrill.manifest/1"
    assert run_command(["diagnose", str(tmp_path / "to")]) == 2  # no evidence is told there
