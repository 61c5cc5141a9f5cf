"""The collector as a process of its own: its options, its exit codes, its signals, and that torch stays out of it."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from collector_tools import wait_until
from fake_plane import waiting_rank

from hangdrill.collector.__main__ import main, parse
from hangdrill.collector.options import CollectorOptions, check_options
from hangdrill.delivery import DeliveryOptions
from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.run import Manifest
from hangdrill.model.scenario import Incident

COMMAND = [sys.executable, "-m", "hangdrill.collector"]


@pytest.fixture
def start(job):
    started = []

    def run(*arguments):
        options = ["--sockets", str(job.sockets), "--to", str(job.evidence), "--poll-s", "0.02", *arguments]
        process = subprocess.Popen([*COMMAND, *options], stderr=subprocess.PIPE)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()


def test_the_drills_command_line_becomes_options():
    command = (
        "--sockets S --control C --to T --run-id hd-1 --world-size 4 --backend gloo --backend nccl "
        "--stall-after-s 4.0 --native-prefix N/fr_ --parent-pid 7"
    )
    assert parse(command.split()) == CollectorOptions(
        sockets=Path("S"),
        control=Path("C"),
        to=Path("T"),
        run_id="hd-1",
        world_size=4,
        backends=("gloo", "nccl"),
        stall_after_s=4.0,
        native_prefix="N/fr_",
        parent_pid=7,
        delivery=DeliveryOptions(run="hd-1"),
    )


def test_what_a_drill_delivers_and_whom_it_tells_becomes_options(tmp_path):
    hooks = tmp_path / "hooks.json"
    incident = Incident(command=("notify.sh",), webhook="$CHAT")
    hooks.write_bytes(msgspec.json.encode(incident))
    command = (
        "--sockets S --to T --run-id hd-1 --job quick/x --started-ns 5 --deliver-to s3://dumps --deliver-within-s 9 "
        f"--incident {hooks}"
    )
    wanted = DeliveryOptions(url="s3://dumps", within_s=9.0, job="quick/x", run="hd-1", started_ns=5, incident=incident)
    assert parse(command.split()).delivery == wanted
    hooks.write_text("{")
    with pytest.raises(UsageError, match="cannot read the hooks"):
        parse(command.split())


def test_what_is_not_said_has_the_defaults_of_the_options():
    assert parse(["--sockets", "S", "--to", "T"]) == CollectorOptions(sockets=Path("S"), to=Path("T"))


def test_torch_is_never_imported():
    code = "import hangdrill.collector.__main__, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_good_order(job, start, number):
    with waiting_rank(job.sockets, 0, age_s=0):
        process = start()
        wait_until(lambda: job.events("rank"), "a rank was seen")
        process.send_signal(number)
        assert process.wait(30) == 0
    assert [pull.rank for pull in job.read_manifest().ranks] == [0]
    assert job.events("stopping")[0].detail == "asked to stop"


def test_a_signal_during_a_pull_lets_the_pull_finish(job, start):
    with waiting_rank(job.sockets, 0, hostile={"hangdrill_dump": "silent"}) as rank:
        process = start("--backend", "gloo")
        wait_until(lambda: "hangdrill_dump" in rank.handlers_asked(), "the pull is under way")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    manifest = job.read_manifest()
    assert manifest.complete
    assert {artifact.kind.value for artifact in manifest.artifacts} >= {"trace", "process"}


def test_it_ends_when_its_parent_is_gone(job, start):
    parent = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    process = start("--parent-pid", str(parent.pid))
    wait_until(lambda: job.events("watching"), "it watches")
    assert process.poll() is None
    parent.kill()
    assert process.wait(30) == 0
    parent.wait()
    parent.stdin.close()
    assert job.events("stopping")[0].detail == "the parent is gone"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sockets", "{tmp}/file", "--to", "{tmp}/e"], "--sockets: {tmp}/file is not a directory"),
        (["--sockets", "{tmp}/file/sockets", "--to", "{tmp}/e"], "--sockets: cannot make {tmp}/file/sockets"),
        (["--sockets", "{tmp}", "--to", "{tmp}/none/e"], "--to: {tmp}/none is not a directory"),
        (["--sockets", "{tmp}", "--to", "{tmp}/file"], "is a file"),
        (["--sockets", "{tmp}", "--to", "{tmp}/e", "--control", "{tmp}/none"], "--control"),
        (["--sockets", "{tmp}", "--to", "{tmp}/e", "--poll-s", "0"], "--poll-s"),
        (["--sockets", "{tmp}", "--to", "{tmp}/e", "--stall-after-s", "-1"], "--stall-after-s"),
        (["--sockets", "{tmp}", "--to", "{tmp}/e", "--settle-s", "nan"], "--settle-s"),
        (["--sockets", "{tmp}", "--to", "{tmp}/e", "--world-size", "0"], "--world-size"),
    ],
)
def test_a_mistake_of_the_user_is_exit_code_64_and_says_where(tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    (tmp_path / "file").touch()
    assert main([part.format(tmp=tmp_path) for part in arguments]) == 64
    assert words.format(tmp=tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["--to", "T"], ["--sockets", "S", "--to", "T", "--poll-s", "soon"], ["--no"]]
)
def test_a_command_line_that_does_not_parse_is_exit_code_64(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert caught.value.code == 64
    assert "usage:" in capsys.readouterr().err


def test_the_sockets_directory_is_made_if_missing_as_the_ranks_do(tmp_path):
    sockets = tmp_path / "job/sockets"
    check_options(CollectorOptions(sockets=sockets, to=tmp_path / "job/evidence"))
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    sockets.chmod(0o750)
    check_options(CollectorOptions(sockets=sockets, to=tmp_path / "job/evidence"))
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o750  # one that is there stays as it is


def test_the_parent_of_the_evidence_is_not_made(tmp_path):
    with pytest.raises(UsageError, match=r"--to: .*none is not a directory"):
        check_options(CollectorOptions(sockets=tmp_path / "sockets", to=tmp_path / "none/evidence"))


def test_a_sockets_directory_that_cannot_be_made_is_exit_code_75(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["--sockets", "/proc/self/sockets", "--to", str(tmp_path / "e")]) == 75
    assert "--sockets: cannot make /proc/self/sockets" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize(("mode", "is_refused"), [(0o700, True), (0o755, True), (0o777, False)])
def test_a_sockets_directory_of_somebody_else_is_refused(mode, is_refused):
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o777)
        sockets = place / "sockets"
        sockets.mkdir()
        sockets.chmod(mode)
        os.chown(sockets, 12345, -1)
        os.seteuid(12346)
        try:
            with pytest.raises(MachineError, match="somebody else's") if is_refused else nullcontext():
                check_options(CollectorOptions(sockets=sockets, to=place / "evidence"))
        finally:
            os.seteuid(0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_exit_code_75(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    locked = tmp_path / "evidence"
    locked.mkdir(mode=0o500)
    assert main(["--sockets", str(tmp_path), "--to", str(locked)]) == 75
    assert "cannot write" in capsys.readouterr().err


def test_a_directory_on_a_file_system_that_refuses_is_exit_code_75(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["--sockets", str(tmp_path), "--to", "/proc/self/evidence"]) == 75
    assert "/proc/self/evidence" in capsys.readouterr().err


def test_the_evidence_of_another_run_is_not_mixed_in(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    (evidence / "manifest.json").write_bytes(msgspec.json.encode(Manifest(run_id="hd-0")))
    assert main(["--sockets", str(tmp_path), "--to", str(evidence), "--run-id", "hd-1"]) == 64
    assert "evidence of another run" in capsys.readouterr().err
