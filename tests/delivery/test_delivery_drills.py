"""Whole drills with real servers: they pass where the evidence arrives, and fail with the reason where it does not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from receivers import Receiver
from s3_labs import BUCKET, SECRET

pytestmark = pytest.mark.torchrun

ROOT = Path(__file__).parents[2]
LIMIT_S = 280
JOB = """
title = "One rank of two is held"
[job]
workload = "all-reduce"
nproc_per_node = 2
timeout_s = 5
[fault]
kind = "hold"
rank = 1
before = { op = "all_reduce", nth = 4 }
[expect]
culprit = 1
"""


def hangdrill(*arguments, environ, cwd):
    """The command as a user starts it."""
    environ = {**environ, "PYTHONPATH": os.pathsep.join([str(ROOT), environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
    return subprocess.run(
        [sys.executable, "-m", "hangdrill", *map(str, arguments)],
        env=environ,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def run_drill(tmp_path, text, environ):
    """The result, by check; the run directory; the output."""
    (tmp_path / "drill.toml").write_text(JOB + text)
    done = hangdrill("run", "drill.toml", "--out", tmp_path / "out", environ=environ, cwd=tmp_path)
    run = tmp_path / "out" / "drill"
    result = json.loads((run / "result.json").read_text())
    return result, {check["name"]: check for check in result["checks"]}, run, done.stdout + done.stderr


def not_passed(checks):
    return {name: check["detail"] for name, check in checks.items() if check["verdict"] != "pass"}


def texts_of(run):
    """Everything that the drill has written, but the plan: it holds the scenario as the user wrote it."""
    files = [path for path in run.rglob("*") if path.is_file() and not path.is_symlink() and path.name != "plan.json"]
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in files if "agent" not in path.parts)


def test_evidence_reaches_a_real_bucket_and_the_hooks_are_told_once(tmp_path, seaweed):
    receiver = Receiver()
    text = f"""
[recorder]
deliver_to = "s3://{BUCKET}/drills"
keep_days = 30
[incident]
command = ["sh", "-c", "cat >> news"]
webhook = "$CHAT"
timeout_s = 60
"""
    try:
        result, checks, run, output = run_drill(tmp_path, text, seaweed.environ(CHAT=receiver.url))
        assert not_passed(checks) == {}, output
        assert result["verdict"] == "pass"
        ((_, news),) = receiver.got
    finally:
        receiver.close()
    assert [culprit["rank"] for culprit in news["diagnosis"]["culprits"]] == [1]
    assert json.loads((run / "news").read_text()) == news
    listed = seaweed.client().list_objects_v2(Bucket=BUCKET, Prefix="drills/drill/")["Contents"]
    manifest = json.loads((run / "evidence/manifest.json").read_text())
    assert len(listed) == len(manifest["artifacts"]) + 1
    diagnosed = hangdrill("diagnose", "--json", news["delivered_to"], environ=seaweed.environ(), cwd=tmp_path)
    assert [culprit["rank"] for culprit in json.loads(diagnosed.stdout)["culprits"]] == [1]
    for one in listed:
        seaweed.client().delete_object(Bucket=BUCKET, Key=one["Key"])
    assert hangdrill("check", run, environ=dict(os.environ), cwd=tmp_path).returncode == 0  # the same a week later
    told = texts_of(run) + output
    assert SECRET not in told
    assert "SECRETPATH" not in told


def test_a_server_that_is_stopped_fails_the_drill_and_is_completed_later(tmp_path, seaweed):
    url = f"s3://{BUCKET}/stopped"
    text = f"""
[recorder]
deliver_to = "{url}"
deliver_within_s = 3
[incident]
command = ["sh", "-c", "echo no such channel; exit 3"]
"""
    with seaweed.stopped():
        result, checks, run, output = run_drill(tmp_path, text, seaweed.environ())
    assert set(not_passed(checks)) == {"delivered", "hook-called"}, output
    assert result["verdict"] == "fail"
    assert checks["delivered"]["verdict"] == "fail"
    assert "not delivered" in checks["delivered"]["detail"]
    assert "hangdrill deliver" in checks["delivered"]["mend"]
    assert "exit status 3 (it said: no such channel)" in checks["hook-called"]["detail"]
    done = hangdrill("deliver", run / "evidence", url, environ=seaweed.environ(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = hangdrill("check", run, environ=dict(os.environ), cwd=tmp_path)
    assert again.returncode == 1  # the drill failed, whatever was mended since


def test_a_wrong_key_fails_the_drill_and_is_written_nowhere(tmp_path, seaweed):
    text = f"""
[recorder]
deliver_to = "s3://{BUCKET}/wrong"
keep_days = 30
"""
    environ = seaweed.environ(AWS_SECRET_ACCESS_KEY="a-wrong-secret-key")
    result, checks, run, output = run_drill(tmp_path, text, environ)
    assert (result["verdict"], set(not_passed(checks))) == ("fail", {"delivered", "retained"}), output
    assert "the store refuses these credentials" in checks["delivered"]["detail"]
    assert checks["retained"]["verdict"] == "unknown"
    assert "a-wrong-secret-key" not in texts_of(run) + output


def test_the_shipped_drill_delivers_to_a_directory(tmp_path):
    done = hangdrill("run", "delivery/to-directory", "--out", "out", environ=dict(os.environ), cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "delivered" in done.stdout
    assert list((tmp_path / "hangdrill-delivered").rglob("manifest.json"))


HANGING = """
import time
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=9))
for step in range(5):
    if step == 3 and dist.get_rank() == 1:
        time.sleep(25)
    dist.all_reduce(torch.ones(1))
"""


def test_a_real_job_without_any_drill_is_delivered_and_told_once(tmp_path, seaweed):
    receiver = Receiver()
    (tmp_path / "train.py").write_text(HANGING)
    (tmp_path / "sockets").mkdir(mode=0o700)
    environ = seaweed.environ(
        HANGDRILL_ON_HANG_WEBHOOK=receiver.url, HANGDRILL_SOCKETS=str(tmp_path / "sockets"), PYTHONPATH=str(ROOT)
    )
    words = ["--sockets", "sockets", "--to", "evidence", "--job", "llm", "--run-id", "8812", "--linger-s", "1"]
    words += [
        "--deliver-to",
        f"s3://{BUCKET}/hangs",
        "--on-hang-command",
        "sh -c 'cat >> news'",
        "--stall-after-s",
        "3",
    ]
    collector = subprocess.Popen([sys.executable, "-m", "hangdrill", "collect", *words], env=environ, cwd=tmp_path)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "hangdrill.rank", "train.py"]
    try:
        subprocess.run([sys.executable, *torchrun], env=environ, cwd=tmp_path, timeout=LIMIT_S, check=False)
        assert collector.wait(LIMIT_S) == 0
        ((_, news),) = receiver.got
    finally:
        collector.kill()
        collector.wait()
        receiver.close()
    assert json.loads((tmp_path / "news").read_text()) == news
    assert [culprit["rank"] for culprit in news["diagnosis"]["culprits"]] == [1]
    assert (news["complete"], news["job"], news["run_id"]) == (True, "llm", "8812")
    listed = seaweed.client().list_objects_v2(Bucket=BUCKET, Prefix="hangs/llm/")["Contents"]
    assert {one["Key"].rpartition("/")[2] for one in listed} >= {"manifest.json", "rank_1.a0.dump.pickle"}


def test_two_hosts_deliver_side_by_side_and_one_of_them_tells(tmp_path):
    there, news = tmp_path / "there", tmp_path / "news"
    text = (
        JOB.replace("nproc_per_node = 2", "nproc_per_node = 1\nnnodes = 2")
        + f"""
[recorder]
deliver_to = "{there}"
[incident]
command = ["sh", "-c", "cat >> {news}"]
timeout_s = 60
"""
    )
    (tmp_path / "drill.toml").write_text(text)
    words = ["run", "drill.toml", "--out", "out", "--address", "127.0.0.1"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    other = subprocess.Popen(
        [sys.executable, "-m", "hangdrill", *words, "--node-rank", "1"],
        env=environ,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    try:
        done = hangdrill(*words, environ=dict(os.environ), cwd=tmp_path)
        assert other.wait(60) == 0
    finally:
        other.kill()
        other.wait()
    assert done.returncode == 0, done.stdout
    (run,) = (there / "drill").iterdir()
    assert [host.name.rpartition(".")[2] for host in sorted(run.iterdir())] == ["node0", "node1"]
    assert all((host / "manifest.json").is_file() for host in run.iterdir())
    assert len(json.loads(news.read_text())["artifacts"]) >= 2  # one object, so one call
    diagnosed = hangdrill("diagnose", "--json", run, environ=dict(os.environ), cwd=tmp_path)
    assert [culprit["rank"] for culprit in json.loads(diagnosed.stdout)["culprits"]] == [1]
