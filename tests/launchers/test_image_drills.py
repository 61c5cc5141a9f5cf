"""Whole drills in an image of the user's, by hangdrill's own command: the culprit is named, and nothing is left."""

import json
import os
import signal
import subprocess
import sys

import pytest
from box_requests import CHECKOUT
from image_labs import made_image, mounts_of_this_host

from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.engine import Engine

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(900)]

SCENARIO = """
title = "One rank of two is held, in an image"
[job]
launcher = "container"
workload = "all-reduce"
container = {{ image = "{image}", python = "{python}" }}
volumes = {volumes}
[fault]
kind = "hold"
rank = 1
before = {{ op = "all_reduce", nth = 3 }}
[expect]
culprit = 1
survives = ["job-exit", "container-removal"]
"""


@pytest.fixture(scope="module")
def engine(engines):
    """Docker's; what differs with podman is in test_image_launcher."""
    return engines("docker")


@pytest.fixture
def start(engine, tmp_path):
    """hangdrill as a user starts it, with a scenario for an image."""

    def start_one(image):
        text = SCENARIO.format(image=image, python=sys.executable, volumes=json.dumps(mounts_of_this_host(tmp_path)))
        (tmp_path / "held.toml").write_text(text)
        environ = os.environ | engine
        environ |= {"PYTHONPATH": str(CHECKOUT), "COLUMNS": "200", "HANGDRILL_RUNTIME_DIR": str(tmp_path / "runtime")}
        command = [sys.executable, "-m", "hangdrill", "run", "held.toml", "--out", "out"]
        return subprocess.Popen(
            command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    return start_one


def test_a_drill_in_an_image_names_the_culprit_and_leaves_nothing_but_the_image(start, engine, tmp_path):
    with made_image(engine, tmp_path) as image:
        with start(image) as drill:
            output, _ = drill.communicate()
        assert drill.returncode == 0, output
        assert Engine(engine).runs() == []
        assert Engine(engine).image(image) is not None
    result = json.loads((tmp_path / "out/held/result.json").read_text())
    assert [check["name"] for check in result["checks"] if check["verdict"] != "pass"] == []
    assert [(one["rank"], one["basis"]) for one in result["diagnosis"]["culprits"]] == [(1, "observed")]


def test_an_image_that_is_not_there_ends_with_75_and_the_pull_to_type(start, engine):
    with start("registry.invalid/none:1") as drill:
        output, _ = drill.communicate()
    assert drill.returncode == 75, output
    assert "docker pull registry.invalid/none:1" in output
    assert Engine(engine).runs() == []


def test_ctrl_c_in_the_middle_leaves_nothing(start, engine, tmp_path):
    journal = tmp_path / "out/held/journal.jsonl"
    with made_image(engine, tmp_path) as image, start(image) as drill:
        launched = Waiter().until(
            lambda: (journal.exists() and "launched" in journal.read_text()) or None, deadline_s=240
        )
        running = Engine(engine).runs()
        drill.send_signal(signal.SIGINT)
        output, _ = drill.communicate()
        assert launched, output
        assert running, "the container was there: else this test shows nothing"
        assert drill.returncode == 130, output
        assert Engine(engine).runs() == []
