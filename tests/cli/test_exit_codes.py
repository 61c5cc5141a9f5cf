"""Every way a command can end has its own exit code and says what to do; nothing ends in a bare traceback."""

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from hangdrill.cli import cli, run_command
from hangdrill.cli.exits import Commands, exit_code_of
from hangdrill.model.errors import ExitCode, HangdrillError, InternalError, Interrupted, MachineError, UsageError


def raising(error: BaseException) -> Callable[[], object]:
    def command() -> object:
        raise error

    return command


ERRORS = [UsageError, InternalError, MachineError, Interrupted]


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_ends_with_its_own_code_and_says_what_where_and_what_next(
    kind: type[HangdrillError], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(raising(kind("it broke", where="here", next_step="mend it"))) == kind.exit_code
    assert capsys.readouterr().err == "hangdrill: here: it broke\n  next: mend it\n"


def test_no_two_causes_share_a_code() -> None:
    assert len({kind.exit_code for kind in ERRORS}) == len(ERRORS)
    assert len(set(ExitCode)) == 7


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_130(error: BaseException) -> None:
    assert exit_code_of(raising(error)) == 130


def test_any_other_exception_is_a_bug_with_its_traceback_in_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert exit_code_of(raising(ZeroDivisionError("of nothing"))) == 70
    told = capsys.readouterr().err
    assert "bug in hangdrill: ZeroDivisionError: of nothing" in told
    file = re.search(r"with (\S+\.txt)", told)
    assert file is not None
    text = Path(file[1]).read_text()
    assert "Traceback (most recent call last)" in text
    assert "hangdrill 0" in text


def test_an_end_of_file_is_no_interrupt_of_the_user(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """click answers to it as to Ctrl-D at a prompt, out of any command."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    commands = Commands(commands=[click.Command("read", callback=raising(EOFError("unexpected EOF")))])
    assert exit_code_of(lambda: commands.main(["read"], standalone_mode=False)) == ExitCode.INTERNAL
    assert "EOFError: unexpected EOF" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EROFS])
def test_what_the_system_refuses_about_a_file_is_no_bug(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(raising(OSError(number, os.strerror(number), "/there"))) == ExitCode.MACHINE
    assert capsys.readouterr().err.startswith(f"hangdrill: /there: {os.strerror(number).lower()}\n  next: look at")


def test_another_error_of_the_system_is_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert exit_code_of(raising(OSError(errno.EBADF, "bad", "/there"))) == 70
    assert exit_code_of(raising(PermissionError(errno.EPERM, "no file named"))) == 70


def test_a_value_is_the_code_and_nothing_is_pass() -> None:
    assert [exit_code_of(lambda: ExitCode.UNKNOWN), exit_code_of(lambda: None)] == [2, 0]


WRONG_USE = [
    [],
    ["nonsense"],
    ["run", "--nonsense"],
    ["run", "-j", "0"],
    ["run", "-j", "many"],
    ["run", "--hold", "1"],
    ["run", "--", "--lr", "1"],
    ["run", "quick", "--workload", "ddp"],
    ["run", "no/such"],
    ["run", "--workload", "ddp", "--hold", "1", "--fault", "stop"],
    ["run", "--workload", "ddp", "--hold", "1", "--before", "all_reduce:x"],
    ["run", "--workload", "ddp", "--hold", "1", "--group", "tp"],
    ["run", "--script", "/no/such.py"],
    ["run", "quick", "--launcher", "slurmm"],
    ["show"],
    ["show", "quick"],
    ["check", "/no/such"],
    ["schema", "nonsense"],
    ["collect"],
]


@pytest.mark.parametrize("arguments", WRONG_USE, ids=" ".join)
def test_wrong_use_is_64_and_never_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(arguments) == 64
    assert capsys.readouterr().err


@pytest.mark.parametrize("name", [[], *([name] for name in cli.commands)], ids=" ".join)
def test_every_command_has_help(name: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*name, "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: hangdrill")


@pytest.mark.parametrize("arguments", [["list", "scenarios"], ["show", "quick/ddp-hold"], ["schema", "result"]])
def test_a_reader_that_goes_away_ends_the_command_without_a_word(arguments: list[str]) -> None:
    script = f"import sys; from hangdrill.cli import run_command; sys.exit(run_command({arguments!r}))"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    told = process.stderr.read()
    process.stderr.close()
    assert (told, process.wait(timeout=60)) == (b"", 130)


def test_the_page_of_exit_codes_lists_exactly_the_codes() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/exit-codes.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([a-z]+) \|", page, flags=re.MULTILINE)
    assert {(int(code), name) for code, name in rows} == {(int(code), code.name.lower()) for code in ExitCode}
