"""A hook is called once, is told everything, and harms nothing whatever it does."""

import json
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from receivers import Receiver

from hangdrill.delivery.hook import Caller
from hangdrill.delivery.record import CALLS, read_calls
from hangdrill.delivery.secrets import Redactor
from hangdrill.model.delivery import HookKind, IncidentNews
from hangdrill.model.diagnosis import Basis, Culprit, Diagnosis, HangKind, HangVerdict, RankRoll

NEWS = IncidentNews(
    text="train: all_reduce #4 pending. hang, rank-absent: rank 3",
    key="incident-1",
    job="train",
    run_id="hd-abc",
    host="host0",
    attempt=0,
    noticed_ns=5,
    notice="all_reduce #4 pending",
    diagnosis=Diagnosis(
        verdict=HangVerdict.HANG,
        kind=HangKind.RANK_ABSENT,
        culprits=tuple(Culprit(rank=rank, basis=Basis.OBSERVED, why="") for rank in (3, 0)),
        stuck=None,
        ranks=RankRoll(expected=4, present=(), missing=()),
    ),
    evidence="/evidence",
    delivered_to="s3://dumps/train",
    complete=True,
)


def caller(evidence, *, environ=None, timeout_s=20.0, command=(), webhook=None):
    environ = {"PATH": "/usr/bin:/bin", **(environ or {})}
    return Caller(
        evidence, command=command, webhook=webhook, timeout_s=timeout_s, environ=environ, redact=Redactor(environ)
    )


def only_call(evidence):
    (call,) = read_calls(evidence).calls
    assert call.ended_ns >= call.started_ns
    return call


def run(evidence, script, **more):
    caller(evidence, command=("sh", "-c", script), **more).call(NEWS)
    return only_call(evidence)


@pytest.fixture
def receiver():
    found = Receiver()
    yield found
    found.close()


def test_a_command_is_told_by_its_standard_input_and_its_environment(tmp_path):
    call = run(
        tmp_path, f'cat > {tmp_path}/news; echo "$HANGDRILL_CULPRITS $HANGDRILL_INCIDENT $HANGDRILL_DELIVERED_TO"'
    )
    assert (call.ok, call.exit_status, call.tries, call.error) == (True, 0, 1, "")
    assert call.output == "3,0 incident-1 s3://dumps/train"
    news = json.loads((tmp_path / "news").read_bytes())
    assert (news["schema"], news["text"]) == ("hangdrill.incident/1", NEWS.text)


def test_one_incident_is_one_call_also_for_a_new_caller(tmp_path):
    script = f"echo x >> {tmp_path}/count"
    for _ in range(2):
        one = caller(tmp_path, command=("sh", "-c", script))
        one.call(NEWS)
        one.call(NEWS)
    assert (tmp_path / "count").read_text() == "x\n"
    assert len(read_calls(tmp_path).calls) == 1


def test_a_call_that_began_before_a_crash_is_not_made_again(tmp_path):
    run(tmp_path, "true")
    record = json.loads((tmp_path / CALLS).read_text())
    record["calls"][0]["ended_ns"] = None
    (tmp_path / CALLS).write_text(json.dumps(record))
    caller(tmp_path, command=("touch", f"{tmp_path}/again")).call(NEWS)
    assert not (tmp_path / "again").exists()


def test_a_command_that_fails_is_recorded_with_its_words(tmp_path):
    call = run(tmp_path, "echo no such channel >&2; exit 1")
    assert (call.ok, call.exit_status, call.error, call.output) == (False, 1, "exit status 1", "no such channel")


def test_a_command_that_is_not_there_is_recorded(tmp_path):
    caller(tmp_path, command=("/no/such/command",)).call(NEWS)
    call = only_call(tmp_path)
    assert not call.ok
    assert "cannot be started: No such file" in call.error


def test_a_command_that_hangs_is_ended_with_all_its_children(tmp_path):
    script = f"setsid sleep 1234 & echo $! > {tmp_path}/child; (sleep 1234 & echo $! > {tmp_path}/other; wait); wait"
    call = run(tmp_path, script, timeout_s=1.5)
    assert (call.ok, call.timed_out) == (False, True)
    assert "ended with everything that it started" in call.error
    for name in ("child", "other"):
        pid = int((tmp_path / name).read_text())
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_children_that_a_command_leaves_behind_are_ended_at_its_deadline(tmp_path):
    call = run(tmp_path, f"sleep 1234 & echo $! > {tmp_path}/child", timeout_s=1.5)
    assert call.ok
    pid = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_other_children_of_the_process_are_left_alone(tmp_path):
    with psutil.Popen(["sleep", "1234"]) as other:
        run(tmp_path, "sleep 1234", timeout_s=0.5)
        assert other.is_running()
        assert other.status() != psutil.STATUS_ZOMBIE
        other.kill()


def test_output_without_end_and_without_sense_is_cut_and_made_harmless(tmp_path):
    call = run(tmp_path, r"printf 'a\033[31m\377\000'; head -c 50000000 /dev/zero", timeout_s=60)
    assert call.ok
    assert len(call.output) <= 2000
    assert call.output.isprintable()


def test_secrets_of_the_environment_are_masked(tmp_path):
    call = run(tmp_path, "echo $CHAT_TOKEN", environ={"CHAT_TOKEN": "xoxb-very-secret"})
    assert call.output == "***"
    assert "xoxb" not in (tmp_path / CALLS).read_text()


def test_a_webhook_is_posted_to_once_with_a_key(tmp_path, receiver):
    one = caller(tmp_path, webhook=receiver.url)
    one.call(NEWS)
    one.call(NEWS)
    ((headers, body),) = receiver.got
    assert (headers["Idempotency-Key"], headers["Content-Type"]) == ("incident-1", "application/json")
    assert body["text"] == NEWS.text
    call = only_call(tmp_path)
    assert (call.kind, call.ok, call.http_status, call.tries) == (HookKind.WEBHOOK, True, 200, 1)
    assert call.output == r"said\x1b[31m so"


def test_the_path_of_a_webhook_is_a_secret(tmp_path, receiver):
    receiver.answers = [404]
    caller(tmp_path, webhook=receiver.url).call(NEWS)
    caller(tmp_path, webhook="http://127.0.0.1:1/SECRETPATH").call(NEWS)
    assert "SECRETPATH" not in (tmp_path / CALLS).read_text()


def test_a_webhook_may_stand_in_the_environment(tmp_path, receiver):
    caller(tmp_path, webhook="$CHAT", environ={"CHAT": receiver.url}).call(NEWS)
    assert (only_call(tmp_path).ok, only_call(tmp_path).target) == (True, "$CHAT")


def test_a_webhook_whose_variable_is_not_set_is_recorded(tmp_path):
    caller(tmp_path, webhook="$CHAT").call(NEWS)
    assert only_call(tmp_path).error == "$CHAT is not set in the environment of the collector"


def test_a_server_in_trouble_is_asked_again_with_the_same_key(tmp_path, receiver):
    receiver.answers = [503, 200]
    caller(tmp_path, webhook=receiver.url).call(NEWS)
    call = only_call(tmp_path)
    assert (call.ok, call.tries, call.http_status) == (True, 2, 200)
    assert [headers["Idempotency-Key"] for headers, _ in receiver.got] == ["incident-1"] * 2


@pytest.mark.parametrize(
    ("answer", "tries", "words"),
    [
        (500, 3, "HTTP status 500"),
        (404, 1, "HTTP status 404"),
        (302, 1, "HTTP status 302"),
        ("garbage", 3, "BadStatusLine"),
    ],
)
def test_an_answer_that_is_no_yes_is_recorded(tmp_path, receiver, answer, tries, words):
    receiver.answers = [answer] * 3
    caller(tmp_path, webhook=receiver.url).call(NEWS)
    call = only_call(tmp_path)
    assert (call.ok, call.tries, len(receiver.got)) == (False, tries, tries)
    assert words in call.error


def test_a_server_that_does_not_answer_is_left_at_the_deadline(tmp_path, receiver):
    receiver.answers = ["hang"] * 3
    caller(tmp_path, webhook=receiver.url, timeout_s=0.7).call(NEWS)
    call = only_call(tmp_path)
    assert (call.ok, call.timed_out, call.error) == (False, True, "no answer in time")


def test_nobody_there_is_recorded(tmp_path):
    caller(tmp_path, webhook="http://127.0.0.1:1/x", timeout_s=3.0).call(NEWS)
    call = only_call(tmp_path)
    assert "ConnectionRefusedError" in call.error
    assert call.tries >= 2


def test_a_webhook_is_no_way_to_read_files(tmp_path):
    caller(tmp_path, webhook="file:///etc/passwd").call(NEWS)
    assert only_call(tmp_path).error == "it is no http:// or https:// URL"


def test_a_disk_that_refuses_the_record_prevents_the_call(tmp_path):
    gone = Path(tmp_path / "gone")
    caller(gone, command=("touch", f"{tmp_path}/called")).call(NEWS)
    assert not (tmp_path / "called").exists()


def test_the_example_of_the_docs_posts_to_a_chat(tmp_path, receiver):
    example = Path(__file__).parents[2] / "docs/examples/notify_chat.py"
    one = caller(tmp_path, command=(sys.executable, str(example)), environ={"CHAT_WEBHOOK": receiver.url}, timeout_s=60)
    one.call(NEWS)
    assert (only_call(tmp_path).ok, only_call(tmp_path).output) == (True, "the chat said 200")
    ((headers, body),) = receiver.got
    assert (headers["Idempotency-Key"], body) == ("incident-1", {"content": NEWS.text})


def test_a_text_that_is_too_long_for_a_variable_still_reaches_the_command(tmp_path):
    news = msgspec.structs.replace(NEWS, text="x" * 300_000, job="jo\0b")
    script = 'printf %s "$HANGDRILL_JOB" "${#HANGDRILL_TEXT}"; wc -c'
    caller(tmp_path, command=("sh", "-c", script)).call(news)
    call = only_call(tmp_path)
    assert call.ok, call
    said, size = call.output.removeprefix("job").split(" ")[0], int(call.output.split()[-1][-6:])
    assert said.startswith("30000")
    assert size > 300_000


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/SECRET PATH", "http://[::1/SECRETPATH", "http://me:SECRETPATH@127.0.0.1/"],
)
def test_a_url_that_is_not_well_written_is_recorded_without_its_secret(tmp_path, url, capfd):
    caller(tmp_path, webhook="$CHAT", environ={"CHAT": url}, timeout_s=5.0).call(NEWS)
    call = only_call(tmp_path)
    assert (call.ok, call.tries) == (False, 1)
    assert "SECRET" not in (tmp_path / CALLS).read_text()
    assert "Traceback" not in capfd.readouterr().err


def test_a_webhook_that_was_read_from_a_file_may_end_with_a_newline(tmp_path, receiver):
    caller(tmp_path, webhook="$CHAT", environ={"CHAT": f"{receiver.url}\n"}).call(NEWS)
    assert only_call(tmp_path).ok


def test_an_end_by_a_signal_without_a_name_is_recorded(tmp_path):
    call = run(tmp_path, "kill -40 $$")
    assert (call.ok, call.exit_status, call.error) == (False, -40, "ended by signal 40")
