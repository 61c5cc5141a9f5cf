"""One node's part of a job: what it finds, what it starts, and that it leaves nothing when its time is over."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hangdrill.certify.nodes_job import FACTS_WORD, LEASE_S, LeaseFile
from hangdrill.drill.waiting import Waiter
from hangdrill.rank.canary import lease, on_node
from hangdrill.rank.canary.addresses import holds, interface_of, is_free, own_address

CHECKOUT = Path(__file__).parents[2]
LIMIT_S = 60.0


@pytest.fixture
def part(tmp_path):
    """Starts the program with a lease of its own; everything is ended afterwards."""
    started: list[subprocess.Popen[bytes]] = []
    LeaseFile(tmp_path / "lease").beat()

    def start(*command: str, endpoint: str = "localhost:29400", limit_s: float = 60.0) -> "subprocess.Popen[bytes]":
        words = ("--lease", str(tmp_path / "lease"), "--endpoint", endpoint, "--limit-s", f"{limit_s:g}")
        process = subprocess.Popen(
            [sys.executable, "-m", "hangdrill.rank.canary.on_node", *words, "--", *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
    for left in _living(tmp_path):
        left.kill()


def _living(directory: Path) -> list[psutil.Process]:
    """The sleepers that a test has started: they stand in its directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(directory) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _sleeping(directory: Path, count: int) -> bool | None:
    return sum(process.name() == "sleep" for process in _living(directory)) == count or None


def _wait_for_sleepers(directory: Path, count: int) -> bool:
    return bool(Waiter().until(lambda: _sleeping(directory, count), deadline_s=LIMIT_S))


TWO_SLEEPERS = ("sh", "-c", "sleep 600 & sleep 600")


def test_both_sides_agree_on_the_words():
    assert (LEASE_S, FACTS_WORD) == (lease.LIMIT_S, on_node.FACTS_WORD)


def test_the_command_is_filled_in_and_its_exit_code_is_handed_on(part):
    process = part("sh", "-c", "echo {holds} $GLOO_SOCKET_IFNAME; exit 3", endpoint="127.0.0.1:1")
    output = process.communicate(timeout=LIMIT_S)[0].decode()
    assert process.returncode == 3
    assert output.splitlines()[1].startswith("1 ")


def test_what_the_command_leaves_behind_is_killed(part, tmp_path):
    assert part("sh", "-c", "sleep 600 & exit 0").wait(LIMIT_S) == 0
    assert _living(tmp_path) == []


@pytest.mark.parametrize("how", ["the lease ends", "the lease stays as it is", "the part is told to end"])
def test_everything_ends_when(how, part, tmp_path):
    process = part(*TWO_SLEEPERS, limit_s=1.0 if how == "the lease stays as it is" else 600.0)
    if how != "the lease stays as it is":
        assert _wait_for_sleepers(tmp_path, 2)
    if how == "the lease ends":
        LeaseFile(tmp_path / "lease").end()
    elif how == "the part is told to end":
        process.terminate()
    assert process.wait(LIMIT_S) == lease.ENDED
    assert _living(tmp_path) == []


def test_a_lease_lasts_while_it_is_rewritten_and_no_longer(tmp_path, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    file = LeaseFile(tmp_path / "lease")
    file.beat()
    seen = lease.Lease(file.path, limit_s=30.0)
    for _ in range(5):
        now_s[0] += 29.0
        file.beat()
        assert seen.look()
        assert seen.over() == ""
    now_s[0] += 31.0
    assert seen.look()
    assert "for 30 s" in seen.over()


def test_the_launcher_is_killed_with_the_part(part, tmp_path):
    process = part("sleep", "600")
    assert _wait_for_sleepers(tmp_path, 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert _wait_for_sleepers(tmp_path, 0)


def test_a_rank_ends_by_itself_with_the_lease_of_its_environment(tmp_path):
    file = LeaseFile(tmp_path / "lease")
    file.beat()
    program = (
        "import os, time; from hangdrill.rank.canary.lease import end_with_lease;"
        "end_with_lease(os.environ); print('up', flush=True); time.sleep(600)"
    )
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT), lease.LEASE_VARIABLE: str(file.path)}
    with subprocess.Popen([sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"up\n"
            file.end()
            assert process.wait(LIMIT_S) == lease.ENDED
        finally:
            process.kill()


def test_a_part_without_a_lease_or_with_an_unknown_name_says_so(part, tmp_path):
    output = part("true", endpoint="no-such-node.invalid:29400").communicate(timeout=LIMIT_S)[0].decode()
    assert "the name no-such-node.invalid is unknown" in output
    (tmp_path / "lease").unlink()
    output = part("true").communicate(timeout=LIMIT_S)[0].decode()
    assert "OUT must lie on a file system that all nodes share" in output


def test_a_port_is_free_until_somebody_listens():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_a_port_that_is_taken_is_waited_for_and_not_for_ever(part, monkeypatch, tmp_path, capsys):
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        waiting = part("true", endpoint=f"127.0.0.1:{port}")
        monkeypatch.setattr(on_node, "PORT_S", 0.0)
        words = ("--lease", str(tmp_path / "lease"), "--endpoint", f"127.0.0.1:{port}")
        monkeypatch.setattr(sys, "argv", ["on_node", *words])
        assert on_node.main() == lease.ENDED
        assert f"another program has the port {port}" in capsys.readouterr().err
    assert waiting.wait(LIMIT_S) == 0


def test_this_host_holds_its_own_names_and_no_other():
    assert holds("127.0.0.1")
    assert holds("localhost")
    assert not holds("192.0.2.1")
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") == ""
    assert own_address("localhost", "lo") == "127.0.0.1"
    with pytest.raises(OSError, match="there is no interface ib7"):
        own_address("localhost", "ib7")
    with pytest.raises(socket.gaierror):
        holds("no-such-node.invalid")
