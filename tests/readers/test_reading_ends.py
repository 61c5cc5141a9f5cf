"""However the command ends, no process of it is left."""

from pathlib import Path

import pytest
from command_tools import held_command
from reader_tools import DEADLINE_S, path_jobs, session_members

from hangdrill.model.errors import ExitCode


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    place = tmp_path / "dumps"
    place.mkdir()
    path_jobs(place, 40)
    return place


def test_ctrl_c_leaves_no_process_and_says_one_line(dumps: Path, tmp_path: Path) -> None:
    with held_command(tmp_path, str(dumps), "--jobs", "2") as command:
        command.wait_for_readers(2)
        assert len(session_members(command.process.pid)) >= 3
        command.interrupt_all()
        assert command.process.wait(timeout=DEADLINE_S) == ExitCode.INTERRUPTED
        command.assert_nothing_left()
        assert command.errors.read_text().lstrip() == "hangdrill: interrupted\n"


def test_a_killed_command_leaves_no_reader(dumps: Path, tmp_path: Path) -> None:
    with held_command(tmp_path, str(dumps), "--jobs", "2") as command:
        command.wait_for_readers(2)
        assert len(session_members(command.process.pid)) >= 3
        command.process.kill()
        command.process.wait(timeout=DEADLINE_S)
        command.assert_nothing_left()


def test_with_one_job_this_process_alone_reads(dumps: Path, tmp_path: Path) -> None:
    with held_command(tmp_path, str(dumps), "--jobs", "1") as command:
        command.wait_for_readers(1)
        assert session_members(command.process.pid) == {command.process.pid}
        assert [path.stem for path in command.gate.glob("*.pid")] == [str(command.process.pid)]
