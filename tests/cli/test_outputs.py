"""Where a command's output goes may be full, closed or gone: that is the machine's fault, and no bug."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdrill.cli.output import write_file
from hangdrill.model.errors import ExitCode

ROOT = Path(__file__).parents[2]
COMMANDS = ["--help", "schema result", "list"]


def run(line: str, words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-c", line, sys.executable, *words.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_behind_stdout_is_the_machines_fault(words: str) -> None:
    done = run('"$0" -m hangdrill "$@" >/dev/full', words)
    assert (done.returncode, done.stdout) == (ExitCode.MACHINE, "")
    assert done.stderr.startswith("hangdrill: ")
    assert "no space left" in done.stderr.lower()
    assert done.stderr.count("\n") == 2


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", COMMANDS)
def test_a_closed_output_changes_no_exit_code(words: str, closed: str) -> None:
    done = run(f'"$0" -m hangdrill "$@" {closed}', words)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.PASS, "", "")


def test_nothing_is_printed_into_the_first_file_that_is_opened() -> None:
    script = "import os, sys; from hangdrill.cli.exits import open_streams; open_streams(); "
    script += "sys.stderr.write(str(os.open('/dev/zero', os.O_RDONLY) > 2))"
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" <&- >&-', sys.executable, script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == "True"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As /dev/null and /dev/stdout would be, for root."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file(pipe, b"<testsuites/>")
    assert os.read(reader, 100) == b"<testsuites/>"
    os.close(reader)
    assert (pipe.is_fifo(), list(tmp_path.iterdir())) == (True, [pipe])


def test_a_file_of_somebody_else_beside_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "page.html.tmp").write_text("mine")
    write_file(tmp_path / "page.html", b"<html>")
    assert (tmp_path / "page.html").read_bytes() == b"<html>"
    assert {path.name: path.read_text() for path in tmp_path.glob("*.tmp")} == {"page.html.tmp": "mine"}


def test_an_interrupt_leaves_no_half_of_a_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self, target) -> None:
        assert list(tmp_path.iterdir()) == [self]
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "page.html", b"<html>")
    assert list(tmp_path.iterdir()) == []
