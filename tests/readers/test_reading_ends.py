"""However the command ends, no process of it is left."""

import signal
from pathlib import Path

import pytest
from command_tools import held_command
from reader_tools import DEADLINE_S, path_jobs, session_members

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    place = tmp_path / "dumps"
    place.mkdir()
    path_jobs(place, 40)
    return place


@pytest.mark.parametrize("number", ENDING, ids=str)
def test_a_signal_to_all_leaves_no_process_and_says_one_line(dumps: Path, tmp_path: Path, number: int) -> None:
    with held_command(tmp_path, str(dumps), "--jobs", "2") as command:
        command.wait_for_readers(2)
        assert len(session_members(command.process.pid)) >= 3
        command.signal_all(number)
        command.assert_interrupted()


@pytest.mark.parametrize("number", ENDING, ids=str)
@pytest.mark.parametrize("jobs", [1, 2])
def test_so_does_a_signal_to_the_command_alone(dumps: Path, tmp_path: Path, jobs: int, number: int) -> None:
    with held_command(tmp_path, str(dumps), "--jobs", str(jobs)) as command:
        command.wait_for_readers(jobs)
        command.process.send_signal(number)
        command.assert_interrupted()


@pytest.mark.parametrize("number", ENDING, ids=str)
def test_so_does_a_signal_while_the_readers_are_started(dumps: Path, tmp_path: Path, number: int) -> None:
    with held_command(tmp_path, str(dumps), "--jobs", "3", early=number) as command:
        command.assert_interrupted()


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
