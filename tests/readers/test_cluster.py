"""A real dask cluster of two workers: the same answer as this process gives, and one clear error where it cannot."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_tools import gate_in, held_command
from dask_cluster import DaskCluster
from deadly_reads import HELD, deadly_in_workers
from reader_tools import DEADLINE_S, DUMPS, jobs, path_jobs, read_all, wait_until

import hangdrill
from hangdrill.cli import run_command
from hangdrill.model.errors import ExitCode, MachineError, UsageError
from hangdrill.readers import cluster, open_executor
from hangdrill.recorder import DumpJob, read_job

pytest.importorskip("distributed")
INCIDENTS = sorted({path.parent for path in DUMPS.rglob("fr_*")})


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    started = DaskCluster(tmp_path_factory.mktemp("dask"))
    try:
        started.start_worker()
        started.start_worker()
        with cluster.connected(started.spec) as found:
            found.client.wait_for_workers(2, timeout=DEADLINE_S)
        yield started
    finally:
        started.close()


def test_every_incident_gets_the_serial_answer(two_workers: DaskCluster) -> None:
    with cluster.connected(two_workers.spec) as found:
        assert found.workers == 2
        executor = found.executor
        answers = [hangdrill.diagnose(incident, executor=executor) for incident in INCIDENTS]
    assert answers == [hangdrill.diagnose(incident) for incident in INCIDENTS]


def test_the_command_reads_relative_paths_on_workers_that_stand_elsewhere(
    two_workers: DaskCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DUMPS / "gloo")
    codes, outputs = [], []
    for more in ([], ["--executor", two_workers.spec]):
        codes.append(run_command(["diagnose", "hold-rank-1-of-3", "--json", *more]))
        out, err = capsys.readouterr()
        outputs.append(out)
        assert err == ""
    assert codes == [1, 1]
    assert outputs[0] == outputs[1] != ""


def test_bytes_of_archives_and_paths_are_read_in_order(two_workers: DaskCluster, tmp_path: Path) -> None:
    some = [*jobs(80), *path_jobs(tmp_path, 80)]
    with open_executor(two_workers.spec) as each:
        assert list(each(read_job, some)) == read_all(some)


def test_a_file_that_kills_its_worker_is_read_again_here(two_workers: DaskCluster) -> None:
    some = jobs(60)
    with open_executor(two_workers.spec) as each:
        assert list(each(deadly_in_workers, some)) == read_all(some)


def test_workers_without_the_file_system_are_named(
    two_workers: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = path_jobs(tmp_path, 1)
    unseen = DumpJob(rank=0, shown=job.shown, path=str(tmp_path / "only-here"))
    monkeypatch.setattr("hangdrill.readers.flight.visible", lambda path: True)
    with open_executor(two_workers.spec) as each, pytest.raises(MachineError) as told:
        list(each(read_job, [unseen]))
    assert told.value.what == f"the worker on {socket.gethostname()} cannot read this file, and this process can"


def test_workers_of_another_version_are_named(two_workers: DaskCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangdrill, "__version__", "99.0")
    with (
        pytest.raises(MachineError, match=r"has hangdrill 0\.1\.0, and this is hangdrill 99\.0"),
        open_executor(two_workers.spec),
    ):
        pass


def test_workers_without_hangdrill_are_named(two_workers: DaskCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "OUR_VERSION", "hangdrill_is_not_there:__version__")
    monkeypatch.setattr(cluster, "resolve_name", resolve_or_ours)
    with (
        pytest.raises(MachineError, match=r"cannot import hangdrill .*No module named"),
        open_executor(two_workers.spec),
    ):
        pass


def resolve_or_ours(name: str) -> object:
    """Here there is a version; the workers look for the module."""
    from pkgutil import resolve_name

    return resolve_name(name if "HANGDRILL_TEST_WORKER" in os.environ else "hangdrill:__version__")


def test_a_scheduler_without_workers_is_75(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WORKERS_DEADLINE_S", 0.2)
    alone = DaskCluster(tmp_path)
    try:
        with pytest.raises(MachineError, match=r"the scheduler has no worker within 0\.2 s"), open_executor(alone.spec):
            pass
    finally:
        alone.close()


def test_a_scheduler_that_dies_in_the_middle_is_75_and_no_traceback(tmp_path: Path) -> None:
    place = tmp_path / "dumps"
    place.mkdir()
    path_jobs(place, 40)
    dying = DaskCluster(tmp_path)
    try:
        dying.start_worker(**{HELD: str(gate_in(tmp_path))})
        with held_command(tmp_path, str(place), "--executor", dying.spec) as command:
            command.wait_for_readers(1)
            dying.scheduler.kill()
            assert command.process.wait(timeout=DEADLINE_S) == ExitCode.MACHINE
            said = command.errors.read_text()
        assert said.startswith(f"hangdrill: {dying.spec}: the scheduler is gone")
        assert (said.count("\n"), "Traceback" in said) == (2, False)
    finally:
        dying.close()


def test_workers_that_die_and_stay_away_are_75(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "RETURN_DEADLINE_S", 0.0)
    lonely = DaskCluster(tmp_path)
    try:
        lonely.start_worker(**{HELD: str(gate_in(tmp_path))})
        with cluster.connected(lonely.spec) as found:
            found.check()
            worker = lonely.processes[-1]
            worker.terminate()
            worker.wait(timeout=DEADLINE_S)
            with pytest.raises(MachineError, match="no worker has been there"):
                wait_until(found.check, "the scheduler to see that its worker is gone")
    finally:
        lonely.close()


def test_ctrl_c_leaves_the_cluster_alone(tmp_path: Path) -> None:
    place = tmp_path / "dumps"
    place.mkdir()
    path_jobs(place, 40)
    used = DaskCluster(tmp_path)
    try:
        used.start_worker(**{HELD: str(gate_in(tmp_path))})
        with held_command(tmp_path, str(place), "--executor", used.spec) as command:
            command.wait_for_readers(1)
            command.signal_all(signal.SIGINT)
            assert command.process.wait(timeout=DEADLINE_S) == ExitCode.INTERRUPTED
            assert command.errors.read_text().lstrip() == "hangdrill: interrupted\n"
        assert [process.poll() for process in used.processes] == [None, None]
    finally:
        used.close()


def test_nobody_listening_is_75_within_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_DEADLINE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(MachineError) as told, open_executor(f"dask://127.0.0.1:{port}"):
        pass
    assert told.value.what == "no dask scheduler answers within 0.3 s"


def test_a_stranger_that_listens_is_75_within_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_DEADLINE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(MachineError, match="no dask scheduler answers"), open_executor(f"dask://127.0.0.1:{port}"):
            pass


@pytest.mark.parametrize(
    "spec",
    ["dask://", "dask://host", "dask://host:port", "dask://host:0", "dask://host:99999", "dask://:8786",
     "dask://host:8786/path", "dask://user@host:8786", "tcp://host:8786", "host:8786", ""],
)  # fmt: skip
def test_what_is_no_address_is_a_usage_error(spec: str) -> None:
    with pytest.raises(UsageError), open_executor(spec):
        pass


def test_jobs_beside_an_executor_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="leave one of the two out"), open_executor("dask://host:8786", processes=2):
        pass


def test_without_the_extra_it_is_75_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MachineError) as told, open_executor("dask://host:8786"):
        pass
    assert told.value.next_step == "pip install 'hangdrill[fleet]'"
