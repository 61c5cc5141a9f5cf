"""`hangdrill checkpoint look|duplicate|pairs` from outside: words and exit codes."""

import json
import os
import sys
from pathlib import Path

import pytest
from checkpoint_cases import old_form, save_alone

from hangdrill.certify.checkpoint_controls import drop_shard, flip_byte
from hangdrill.certify.out import locked
from hangdrill.cli import run_command
from hangdrill.drill.procfs import read_process
from hangdrill.model.errors import ExitCode

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "train_checkpoint.py"


@pytest.fixture
def whole(tmp_path):
    save_alone(tmp_path / "whole")
    return tmp_path / "whole"


def test_look_says_whole_and_which_torch_can_read_it(whole, tmp_path, capsys):
    assert run_command(["checkpoint", "look", str(whole)]) == ExitCode.PASS
    assert "whole\n  4 tensors and values, written in a form that can be read by torch 2.15 and newer alone" in (
        capsys.readouterr().out
    )
    with old_form():
        save_alone(tmp_path / "old")
    assert run_command(["checkpoint", "look", str(tmp_path / "old")]) == ExitCode.PASS
    assert "torch 2.14 and older too" in capsys.readouterr().out


def test_look_fails_for_damage_and_names_it(whole, capsys):
    flip_byte(whole)
    assert run_command(["checkpoint", "look", str(whole)]) == ExitCode.FAIL
    assert capsys.readouterr().out.startswith("damaged\n  __0_0.distcp, model.")
    drop_shard(whole)
    assert run_command(["checkpoint", "look", "--json", str(whole)]) == ExitCode.FAIL
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["problems"]) == ("partial", ["__0_0.distcp is missing"])


def test_a_metadata_too_large_to_be_read_is_exit_code_2_and_is_not_copied(whole, tmp_path, capsys):
    os.truncate(whole / ".metadata", (1 << 30) + 1)
    assert run_command(["checkpoint", "look", str(whole)]) == ExitCode.UNKNOWN
    told = capsys.readouterr().out
    assert told.startswith("unknown\n  .metadata: it has 1073741825 bytes")
    assert "next: restore it" in told
    assert run_command(["checkpoint", "duplicate", str(whole), str(tmp_path / "copy")]) == ExitCode.USAGE
    assert "nobody can tell whether the checkpoint is whole" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_look_at_something_else_is_the_users_mistake(tmp_path, capsys):
    assert run_command(["checkpoint", "look", str(tmp_path)]) == ExitCode.USAGE
    assert "name the directory that holds .metadata" in capsys.readouterr().err


def test_duplicate_copies_a_whole_one_and_refuses_a_broken_one(whole, tmp_path, capsys):
    assert run_command(["checkpoint", "duplicate", str(whole), str(tmp_path / "copy")]) == ExitCode.PASS
    assert "2 files" in capsys.readouterr().out
    assert run_command(["checkpoint", "look", str(tmp_path / "copy")]) == ExitCode.PASS
    flip_byte(whole)
    assert run_command(["checkpoint", "duplicate", str(whole), str(tmp_path / "again")]) == ExitCode.USAGE
    assert "not copied: the checkpoint is damaged" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_pairs_of_a_python_without_torch_are_unknown(tmp_path, capsys):
    out = tmp_path / "out"
    code = run_command(["checkpoint", "pairs", "a=/gone/python", "--out", str(out), "--layout", "plain"])
    assert code == ExitCode.UNKNOWN
    assert "/gone/python does not exist" in capsys.readouterr().out


def test_a_home_after_a_name_is_replaced_as_no_shell_does_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run_command(["checkpoint", "pairs", "--out", str(tmp_path / "out"), "old=~/bin/python"]) == ExitCode.UNKNOWN
    assert f"{tmp_path}/bin/python does not exist" in capsys.readouterr().out


def test_pairs_never_writes_into_a_directory_that_is_not_empty(tmp_path, capsys):
    (tmp_path / "x").touch()
    assert run_command(["checkpoint", "pairs", "a=/gone", "--out", str(tmp_path)]) == ExitCode.USAGE
    assert "name a new directory" in capsys.readouterr().err


def test_a_python_that_hangs_or_leaves_processes_is_ended(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules["hangdrill.cli.checkpoint"], "PROBE_DEADLINE_S", 3.0)
    hanging, holding, pid = tmp_path / "hanging", tmp_path / "holding", tmp_path / "pid"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    holding.write_text(f'#!/bin/sh\nsleep 600 &\necho $! >"{pid}"\nexit 1\n')
    for program in (hanging, holding):
        program.chmod(0o755)
    words = ["checkpoint", "pairs", f"a={hanging}", f"b={holding}", "--out", str(tmp_path / "out"), "--layout", "plain"]
    assert run_command([*words, "--json"]) == ExitCode.UNKNOWN
    told = capsys.readouterr().out
    assert "gave no answer within 3 s" in told
    assert "has no torch" in told
    left = read_process(int(pid.read_text()))
    assert left is None or not left.alive


@pytest.mark.parametrize("limit", ["nan", "inf", "0", "-1"])
def test_a_limit_that_is_none_is_refused(tmp_path, capsys, limit):
    words = ["checkpoint", "pairs", "a=/gone", "--out", str(tmp_path / "o"), "--limit-s", limit]
    assert run_command(words) == ExitCode.USAGE
    assert "limit_s" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_a_mode_that_is_named_twice_is_drilled_once(tmp_path, capsys):
    words = ["checkpoint", "pairs", "a=/gone", "--out", str(tmp_path / "o"), "--layout", "plain", "--json"]
    run_command([*words, "--mode", "sync", "--mode", "sync"])
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_a_strange_name_of_a_stack_is_refused(tmp_path, capsys):
    assert run_command(["checkpoint", "pairs", "../x=/gone", "--out", str(tmp_path / "o")]) == ExitCode.USAGE
    assert "not a name of a stack" in capsys.readouterr().err


@pytest.mark.torchrun
@pytest.mark.timeout(900)
def test_the_example_of_the_page_is_restored_bit_equal_as_a_script_of_ones_own(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(EXAMPLE.parents[2])
    page = (EXAMPLE.parents[1] / "checkpoints.md").read_text()
    words = {key: page.partition(f'    {key} = "')[2].partition('"')[0] for key in ("save", "restore")}
    assert all("docs/examples/train_checkpoint.py" in word for word in words.values())
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    layouts = ["--layout", "plain", "--mode", "sync", "--save", words["save"], "--restore", words["restore"]]
    out = ["--out", str(tmp_path / "out"), "--json"]
    code = run_command(["checkpoint", "pairs", f"a={sys.executable}", *out, *layouts])
    rows = {row["layout"]: row for row in json.loads(capsys.readouterr().out)}
    assert code == ExitCode.PASS, rows
    assert {layout: row["outcome"] for layout, row in rows.items()} == {"plain": "equal", "script": "equal"}
    assert rows["script"]["detail"] == "16 tensors and 26 values of 2 ranks are bit-equal"


def test_pairs_leave_a_directory_alone_in_which_others_work(tmp_path, capsys):
    words = ["checkpoint", "pairs", "a=/gone/python", "--layout", "plain", "--out", str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out"):
        assert run_command(words) == ExitCode.USAGE
        assert "another hangdrill works in this directory" in capsys.readouterr().err
    assert run_command(words) == ExitCode.UNKNOWN
    assert run_command(words) == ExitCode.USAGE
    assert "not empty" in capsys.readouterr().err


def test_pairs_that_cannot_make_their_directory_say_so(tmp_path, capsys):
    (tmp_path / "file").touch()
    words = ["checkpoint", "pairs", "a=/gone/python", "--out", str(tmp_path / "file" / "out")]
    assert run_command(words) == ExitCode.MACHINE
    assert "cannot make the directory: Not a directory" in capsys.readouterr().err
