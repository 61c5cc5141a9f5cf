"""The supervisor ends every process of its run, however hostile, and nobody else's."""

import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "children"))

from hostile_tools import is_over, start, wait_ready, wait_stopped

from hangdrill.drill.plan import new_run_id
from hangdrill.drill.procfs import ProcessId, is_alive, own_id, read_process, send_signal
from hangdrill.drill.supervise import Grace, Supervisor, require_own_process
from hangdrill.model.errors import UsageError

SHORT = Grace(int_s=0.2, term_s=0.2, kill_s=10.0)


@pytest.fixture
def run_id():
    """A run of its own, of which nothing is left whatever the test did."""
    run_id = new_run_id()
    yield run_id
    supervisor = Supervisor(run_id, own_id())
    supervisor.kill(SHORT)
    assert supervisor.processes() == ()


def test_polite_process_ends_at_the_first_signal(run_id, tmp_path):
    child = start("polite", run_id, tmp_path)
    wait_ready("polite", tmp_path)
    report = Supervisor(run_id, own_id()).end(Grace(int_s=20.0, term_s=20.0, kill_s=20.0))
    assert report.signals == ("SIGINT",)
    assert child.wait() == -signal.SIGINT


def test_process_that_ignores_signals_is_killed(run_id, tmp_path):
    child = start("ignores_signals", run_id, tmp_path)
    wait_ready("ignores_signals", tmp_path)
    report = Supervisor(run_id, own_id()).end(SHORT)
    assert report.signals == ("SIGINT", "SIGTERM", "SIGKILL")
    assert report.survivors == ()
    assert child.wait() == -signal.SIGKILL


def test_daemon_re_parented_to_init_is_found_by_its_environment(run_id, tmp_path):
    child = start("daemon", run_id, tmp_path)
    pid = wait_ready("daemon", tmp_path)
    child.wait()
    supervisor = Supervisor(run_id, own_id())
    assert [process.id.pid for process in supervisor.processes()] == [pid]
    supervisor.end(SHORT)
    assert is_over(pid)


def test_stopped_process_is_seen_continued_and_ended(run_id, tmp_path):
    child = start("stopped", run_id, tmp_path)
    pid = wait_ready("stopped", tmp_path)
    wait_stopped(pid)
    supervisor = Supervisor(run_id, own_id())
    assert supervisor.resume() == (pid,)
    assert supervisor.resume() == ()
    supervisor.end(SHORT)
    assert child.wait() == -signal.SIGINT


def test_stopped_process_takes_a_polite_signal_without_a_resume(run_id, tmp_path):
    child = start("stopped", run_id, tmp_path)
    wait_stopped(wait_ready("stopped", tmp_path))
    Supervisor(run_id, own_id()).end(Grace(int_s=20.0, term_s=20.0, kill_s=20.0))
    assert child.wait() == -signal.SIGINT


def test_zombie_is_not_counted_as_left(run_id, tmp_path):
    child = start("parent_of_zombie", run_id, tmp_path)
    pid = wait_ready("parent_of_zombie", tmp_path)
    supervisor = Supervisor(run_id, own_id())
    assert [process.id.pid for process in supervisor.processes()] == [pid]
    assert supervisor.end(SHORT).survivors == ()
    child.wait()


def test_grandchild_without_our_environment_is_remembered_after_its_parent_is_gone(run_id, tmp_path):
    child = start("nameless", run_id, tmp_path)
    supervisor = Supervisor(run_id, own_id())
    supervisor.adopt([child.pid])
    pid = wait_ready("nameless", tmp_path)
    assert pid in {process.id.pid for process in supervisor.processes()}
    child.kill()
    child.wait()
    assert [process.id.pid for process in supervisor.processes()] == [pid]
    supervisor.end(SHORT)
    assert is_over(pid)


def test_processes_started_while_the_end_is_on_are_ended_too(run_id, tmp_path):
    child = start("breeder", run_id, tmp_path)
    wait_ready("breeder", tmp_path)
    assert Supervisor(run_id, own_id()).end(SHORT).survivors == ()
    child.wait()


def test_another_run_is_left_alone(run_id, tmp_path):
    (tmp_path / "other").mkdir()
    other_id = new_run_id()
    other = start("polite", other_id, tmp_path / "other")
    own = start("polite", run_id, tmp_path)
    wait_ready("polite", tmp_path / "other")
    wait_ready("polite", tmp_path)
    Supervisor(run_id, own_id()).end(SHORT)
    own.wait()
    assert other.poll() is None
    Supervisor(other_id, own_id()).kill(SHORT)
    other.wait()


def test_spared_process_lives_until_nobody_is_spared(run_id, tmp_path):
    (tmp_path / "spared").mkdir()
    spared = start("polite", run_id, tmp_path / "spared")
    child = start("polite", run_id, tmp_path)
    wait_ready("polite", tmp_path / "spared")
    wait_ready("polite", tmp_path)
    supervisor = Supervisor(run_id, own_id())
    supervisor.spare([spared.pid])
    supervisor.end(SHORT)
    child.wait()
    assert spared.poll() is None
    supervisor.spare(())
    supervisor.kill(SHORT)
    assert spared.wait() == -signal.SIGKILL


def test_controller_and_its_ancestors_are_no_processes_of_the_run(run_id, tmp_path):
    """Looked at only, never signalled: a supervisor that could hit its own line would end far more than a drill."""
    supervisor = Supervisor(run_id, own_id())
    supervisor.adopt([os.getpid(), os.getppid()])
    assert supervisor.processes() == ()


def test_process_older_than_the_controller_is_none_of_the_run(run_id, tmp_path):
    child = start("polite", run_id, tmp_path)
    pid = wait_ready("polite", tmp_path)
    born = read_process(pid)
    assert born is not None
    younger = ProcessId(pid, born.id.started_ticks + 1)
    assert Supervisor(run_id, younger).processes() == ()
    assert [process.id.pid for process in Supervisor(run_id, own_id()).processes()] == [pid]
    Supervisor(run_id, own_id()).kill(SHORT)
    child.wait()


def test_reused_pid_takes_no_signal():
    own = own_id()
    assert send_signal(ProcessId(own.pid, own.started_ticks + 1), signal.SIGTERM) is False
    assert is_alive(own)
    assert not is_alive(ProcessId(own.pid, own.started_ticks + 1))


def test_fault_on_a_job_that_was_not_started_here_is_refused(run_id):
    with pytest.raises(UsageError, match="--yes-this-is-staging"):
        require_own_process(os.getpid(), run_id)


def test_fault_on_a_foreign_job_needs_the_users_word(run_id):
    assert require_own_process(os.getpid(), run_id, yes_this_is_staging=True) == own_id()


def test_fault_on_an_own_process_is_allowed(run_id, tmp_path):
    child = start("polite", run_id, tmp_path)
    pid = wait_ready("polite", tmp_path)
    assert require_own_process(pid, run_id).pid == child.pid
    Supervisor(run_id, own_id()).kill(SHORT)
    child.wait()
    with pytest.raises(UsageError, match="does not exist"):
        require_own_process(pid, run_id)


def test_process_info_survives_a_name_with_parentheses(tmp_path, run_id):
    child = start("odd_name", run_id, tmp_path)
    pid = wait_ready("odd_name", tmp_path)
    found = read_process(pid)
    assert found is not None
    assert (found.name, found.parent, found.session) == ("a) R (b", os.getpid(), pid)
    Supervisor(run_id, own_id()).kill(SHORT)
    child.wait()
