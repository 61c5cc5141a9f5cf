"""`hangdrill deliver`: what it takes, what it says, and how it ends."""

import hashlib
import json
import os

import pytest
from delivery_tools import make_evidence

from hangdrill.cli import run_command


@pytest.fixture
def run(tmp_path):
    """A run directory with evidence."""
    make_evidence(tmp_path / "run" / "evidence")
    (tmp_path / "run" / "plan.json").write_text("{}")
    return tmp_path / "run"


def test_it_delivers_and_says_how_to_read_it(run, tmp_path, capfd):
    assert run_command(["deliver", str(run / "evidence"), str(tmp_path / "there"), "--job", "llm"]) == 0
    out = capfd.readouterr().out
    assert "3 of 3 delivered and read back" in out
    assert f"hangdrill diagnose {tmp_path}/there/llm/" in out


def test_a_run_directory_will_do_and_the_target_is_remembered(run, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert run_command(["deliver", "run", "there"]) == 0
    assert run_command(["deliver", "run"]) == 0
    assert run_command(["deliver", "run", str(tmp_path / "there")]) == 0
    assert run_command(["deliver", "run", "there/"]) == 0


def test_the_evidence_of_each_host_is_delivered(tmp_path, capfd):
    for node in ("node0", "node1"):
        make_evidence(tmp_path / "evidence" / node, salt=node.encode(), run=node)
    assert run_command(["deliver", str(tmp_path / "evidence"), str(tmp_path / "there"), "--json"]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [record["run"] for record in records] == ["node0", "node1"]
    assert all(record["complete"] for record in records)


def test_of_a_run_on_several_hosts_each_is_delivered_under_its_own_name(tmp_path, capfd):
    for node in ("node0", "node1"):
        make_evidence(tmp_path / "run" / "evidence" / node, salt=node.encode())
    make_evidence(tmp_path / "run" / "evidence")  # the controller's manifest of all
    (tmp_path / "run" / "plan.json").write_text("{}")
    assert run_command(["deliver", str(tmp_path / "run"), str(tmp_path / "there"), "--json"]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(record["host"], record["complete"]) for record in records] == [("node0", True), ("node1", True)]
    assert run_command(["deliver", str(tmp_path / "run")]) == 0


def test_what_is_not_delivered_is_75_with_its_reason_and_mend(run, tmp_path, capfd):
    (run / "evidence" / "rank_1.a0.dump.pickle").write_bytes(b"changed")
    assert run_command(["deliver", str(run), str(tmp_path / "there")]) == 75
    told = capfd.readouterr()
    assert "1 of 2 delivered" in told.out
    assert "rank_1.a0.dump.pickle: it has changed in the evidence directory" in told.err
    assert "next: keep others out" in told.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{run}"], "nothing says where to"),
        (["{tmp}/no", "{tmp}/there"], "no manifest.json"),
        (["{run}", "ftp://me:hunter22@x/y"], "a password"),
        (["{run}", "{tmp}/a/b"], "is not a directory"),
        (["{run}", "{tmp}/there", "--within-s", "0"], "0"),
        ([], "Usage"),
    ],
)
def test_wrong_use_is_64_and_says_what(run, tmp_path, capfd, words, says):
    assert run_command(["deliver", *(word.format(run=run, tmp=tmp_path) for word in words)]) == 64
    err = capfd.readouterr().err
    assert says in err
    assert "hunter22" not in err


def test_a_file_outside_the_evidence_directory_is_not_delivered(run, tmp_path, capfd):
    secret = tmp_path / "run" / "secret"
    secret.write_bytes(b"not evidence")
    manifest = json.loads((run / "evidence" / "manifest.json").read_text())
    digest = hashlib.sha256(b"not evidence").hexdigest()
    manifest["artifacts"][0] |= {"path": "../secret", "bytes": 12, "sha256": digest}
    (run / "evidence" / "manifest.json").write_text(json.dumps(manifest))
    assert run_command(["deliver", str(run), str(tmp_path / "there")]) == 75
    assert "the manifest names what is no file of the evidence directory" in capfd.readouterr().err
    assert not list((tmp_path / "there").rglob("*secret*"))


def test_a_pipe_in_the_place_of_a_file_holds_up_nothing(run, tmp_path, capfd):
    path = run / "evidence" / "rank_1.a0.dump.pickle"
    path.unlink()
    os.mkfifo(path)
    assert run_command(["deliver", str(run), str(tmp_path / "there")]) == 75
    assert "is no file of the evidence directory" in capfd.readouterr().err


def test_a_target_that_is_a_link_to_nowhere_is_said(run, tmp_path, capfd):
    (tmp_path / "there").symlink_to(tmp_path / "not-mounted")
    assert run_command(["deliver", str(run), str(tmp_path / "there")]) == 75
    assert "is a link that leads nowhere" in capfd.readouterr().err
