"""The delivery beside the collector: a process that never holds it longer than its deadline, and outlives its death."""

import os
import signal
import subprocess
import sys
import time
import uuid

import msgspec
import psutil
import pytest
from delivery_tools import make_evidence, read_delivery, states
from s3_labs import BUCKET

from hangdrill.delivery import DeliveryOptions, NoopOutbox, check_delivery, longest_s, open_outbox
from hangdrill.delivery.orders import Line, Orders
from hangdrill.delivery.record import RECORD, read_calls
from hangdrill.model.delivery import DeliveryState
from hangdrill.model.errors import UsageError
from hangdrill.model.scenario import Incident

DELIVERED, PENDING = DeliveryState.DELIVERED, DeliveryState.PENDING
HANG = {"noticed_ns": 5, "notice": "all_reduce #4 pending", "attempt": 0, "only_asked": False}


@pytest.fixture
def evidence(tmp_path):
    directory = tmp_path / "evidence"
    make_evidence(directory, noticed=False, ranks=0)
    return directory


def options(url, **changes):
    return DeliveryOptions(url=str(url), **{"within_s": 60.0, "job": "train", "run": "hd-abc", **changes})


def test_artifacts_that_come_while_it_watches_are_delivered(evidence, tmp_path):
    outbox = open_outbox(evidence, options(tmp_path / "there"))
    make_evidence(evidence, ranks=2)
    assert outbox.finish() is None
    record = read_delivery(evidence)
    assert record.complete
    assert (tmp_path / "there").is_dir()


def test_a_job_without_a_hang_is_not_delivered(evidence, tmp_path):
    outbox = open_outbox(evidence, options(tmp_path / "there"))
    make_evidence(evidence, ranks=2, noticed=False)
    assert outbox.finish() is None
    assert read_delivery(evidence).artifacts == ()
    assert not (tmp_path / "there").exists()


def test_without_a_target_and_a_hook_there_is_no_process(evidence):
    outbox = open_outbox(evidence, DeliveryOptions())
    assert isinstance(outbox, NoopOutbox)
    outbox.incident(**HANG)
    assert outbox.finish() is None
    assert not (evidence / RECORD).exists()


def test_a_server_that_is_stopped_holds_the_collector_no_longer_than_the_deadline(seaweed, evidence, monkeypatch):
    url, wanted = f"s3://{BUCKET}/{uuid.uuid4().hex}", {"within_s": 2.0}
    with seaweed.stopped():
        outbox = open_outbox(evidence, options(url, **wanted))
        make_evidence(evidence, ranks=2)
        began_s = time.monotonic()
        problem = outbox.finish()
        held_s = time.monotonic() - began_s
    assert problem is not None
    assert "not all of it was delivered" in problem.what
    assert "hangdrill deliver" in problem.next_step
    assert held_s < longest_s(options(url, **wanted)) + 30  # a bound of the code, not a speed
    record = read_delivery(evidence)
    assert states(record) == {PENDING}
    assert record.artifacts[0].last_error
    resume = subprocess.run(
        [sys.executable, "-m", "hangdrill", "deliver", str(evidence), url], capture_output=True, text=True, check=False
    )
    assert resume.returncode == 0, resume.stderr
    assert "3 of 3 delivered and read back" in resume.stdout
    assert states(read_delivery(evidence)) == {DELIVERED}


def test_a_wrong_key_is_in_the_record_and_not_in_the_output(seaweed, evidence, monkeypatch, capfd):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    outbox = open_outbox(evidence, options(f"s3://{BUCKET}/x"))
    make_evidence(evidence, ranks=2)
    assert outbox.finish() is not None
    assert "the store refuses these credentials" in read_delivery(evidence).artifacts[0].last_error
    told = capfd.readouterr().err + (evidence / RECORD).read_text()
    assert "the store refuses these credentials" in told
    assert "a-wrong-secret" not in told


def test_when_the_collector_is_killed_the_rest_is_delivered_all_the_same(evidence, tmp_path):
    make_evidence(evidence, ranks=2)
    orders = Orders(evidence=str(evidence), options=options(tmp_path / "there"))
    process = subprocess.Popen([sys.executable, "-m", "hangdrill.delivery"], stdin=subprocess.PIPE)
    process.stdin.write(msgspec.json.encode(orders) + b"\n")
    process.stdin.close()  # without a word: as the kernel does for a collector that was killed
    assert process.wait(60) == 0
    assert read_delivery(evidence).complete


def test_signals_of_the_terminal_do_not_end_it(evidence, tmp_path):
    orders = Orders(evidence=str(evidence), options=options(tmp_path / "there"))
    process = subprocess.Popen([sys.executable, "-m", "hangdrill.delivery"], stdin=subprocess.PIPE)
    process.stdin.write(msgspec.json.encode(orders) + b"\n")
    process.stdin.flush()
    until_s = time.monotonic() + 60
    while not (evidence / RECORD).exists():
        assert time.monotonic() < until_s
        time.sleep(0.02)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process.send_signal(number)
    make_evidence(evidence, ranks=2)
    finish = Line(word="finish", by_s=time.monotonic() + 60)
    process.stdin.write(msgspec.json.encode(finish) + b"\n")
    process.stdin.close()
    assert process.wait(60) == 0
    assert read_delivery(evidence).complete


def test_the_hook_is_called_after_the_delivery_with_its_links(evidence, tmp_path):
    hook = Incident(command=("sh", "-c", f"cat > {tmp_path}/news.json"))
    outbox = open_outbox(evidence, options(tmp_path / "there", incident=hook))
    make_evidence(evidence, ranks=2)
    outbox.incident(**HANG)
    outbox.incident(**HANG)
    assert outbox.finish() is None
    news = msgspec.json.decode((tmp_path / "news.json").read_bytes())
    assert news["complete"] is True
    assert {one["state"] for one in news["artifacts"]} == {"delivered"}
    assert news["delivered_to"] == read_delivery(evidence).prefix
    assert len(read_calls(evidence).calls) == 1


def test_the_hook_is_called_without_any_delivery(evidence, tmp_path):
    hook = Incident(command=("sh", "-c", f"echo $HANGDRILL_TEXT > {tmp_path}/text"))
    outbox = open_outbox(evidence, DeliveryOptions(incident=hook, run="hd-abc", job="train"))
    make_evidence(evidence, ranks=2)
    outbox.incident(**HANG)
    assert outbox.finish() is None
    assert (tmp_path / "text").read_text().startswith("train: all_reduce #4 pending. undecided: no culprit")


def test_an_asked_for_pull_without_a_hang_calls_nobody(evidence, tmp_path):
    outbox = open_outbox(evidence, DeliveryOptions(incident=Incident(command=("touch", f"{tmp_path}/called"))))
    make_evidence(evidence, ranks=2)
    outbox.incident(**{**HANG, "only_asked": True})
    assert outbox.finish() is None
    assert not (tmp_path / "called").exists()


def test_a_delivery_that_does_not_end_is_ended_with_the_hook_that_it_runs(evidence, tmp_path, monkeypatch):
    script = f"setsid sleep 1234 & echo $! > {tmp_path}/child; wait"
    outbox = open_outbox(evidence, DeliveryOptions(incident=Incident(command=("sh", "-c", script), timeout_s=600.0)))
    make_evidence(evidence, ranks=2)
    outbox.incident(**HANG)
    until_s = time.monotonic() + 60
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text().strip():
        assert time.monotonic() < until_s
        time.sleep(0.02)
    monkeypatch.setattr("hangdrill.delivery.outbox.longest_s", lambda _options: 0.1)
    problem = outbox.finish()
    assert problem is not None
    assert "did not end in time" in problem.what
    pid = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": ""}, "has no name"),
        ({"url": "ftp://me:hunter22@host/x"}, "a password"),
        ({"url": "abfs://c@a.dfs.core.windows.net/x?sig=abcdefgh"}, r"a secret \(sig=\.\.\.\)"),
        ({"url": "/no/such/place/x"}, "is not a directory"),
        ({"url": "s3://bucket", "within_s": 0.0}, "seconds above 0"),
        ({"url": "s3://bucket", "within_s": float("inf")}, "seconds above 0"),
    ],
)
def test_what_is_plainly_wrong_is_refused_before_anything_runs(changes, words):
    with pytest.raises(UsageError, match=words) as caught:
        check_delivery(DeliveryOptions(**changes))
    assert "hunter22" not in str(caught.value)
    assert "abcdefgh" not in str(caught.value)


def test_a_user_without_a_password_is_no_secret():
    check_delivery(DeliveryOptions(url="sftp://me@host/x"))
    check_delivery(DeliveryOptions(url=f"s3://{os.sep.strip('/')}bucket/prefix"))
