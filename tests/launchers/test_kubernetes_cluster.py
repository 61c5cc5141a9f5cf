"""The official client against an API server of the tests: what is asked of it, and what is made of the answers."""

import signal

import pytest
from kube_server import kube_server
from pod_orders import RUN_ID, cluster_request, settings

from hangdrill.launchers import kubernetes_job
from hangdrill.launchers.agent_path import prepare_agent_path
from hangdrill.launchers.kubernetes import ClusterLauncher
from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.scenario import Teardown

pytest.importorskip("kubernetes", reason="the Kubernetes client is not installed")
NAME = f"hangdrill-{RUN_ID}"
SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"


@pytest.fixture(autouse=True)
def _every_look_is_a_new_one(monkeypatch):
    monkeypatch.setattr(kubernetes_job, "LOOK_S", 0.0)


@pytest.fixture
def server(tmp_path):
    with kube_server(tmp_path) as (made, environ):
        made.environ = environ
        yield made


@pytest.fixture
def request_of(server, tmp_path):
    run_dir = tmp_path / "runs/a"
    prepare_agent_path(run_dir / "agent")

    def make(**changes):
        values = {"environ": server.environ, "run_dir": str(run_dir), "log_path": str(run_dir / "job.log")}
        return cluster_request(**{**values, **changes})

    return make


@pytest.fixture
def start(request_of, tmp_path):
    def start_one(nnodes=1, **changes):
        wanted = settings(mount_path=str(tmp_path / "runs"), **changes)
        launcher = ClusterLauncher(wanted)
        launcher.check(request_of())
        return launcher.start(request_of(nnodes=nnodes))

    return start_one


def launcher_of(tmp_path, **changes):
    return ClusterLauncher(settings(mount_path=str(tmp_path / "runs"), **changes))


def test_jobset_is_applied_and_its_pods_are_followed_to_the_first_bad_exit_code(server, start):
    job = start(nnodes=2)
    ((path, _, body),) = server.made("POST")
    assert (path, body["kind"], body["metadata"]["name"]) == (SETS, "JobSet", NAME)
    assert job.poll() is None
    server.finish(0, 3)
    assert job.poll() == 3
    assert job.pids() == ()


@pytest.mark.parametrize(("codes", "told"), [((0, 0), 0), ((137, 0), -9)])
def test_exit_code_is_zero_when_all_are_and_negative_for_a_signal(server, start, codes, told):
    job = start(nnodes=2)
    server.finish(*codes)
    assert job.poll() == told


def test_indexed_job_is_applied_behind_its_service(server, start):
    start(kind="job", nnodes=2)
    assert [path for path, _, _ in server.made("POST")] == [SERVICES, JOBS]


def test_rank_agent_is_copied_to_the_run_volume(start, tmp_path):
    start()
    package = tmp_path / "runs/a/agent/hangdrill/rank"
    assert not package.is_symlink()
    assert (package / "agent.py").is_file()


@pytest.mark.parametrize(("kind", "owner"), [("jobset", SETS), ("job", JOBS)])
def test_forced_deletion_tells_the_owner_and_every_pod(server, start, kind, owner, tmp_path):
    job = start(kind=kind, nnodes=2)
    job.undergo(Teardown.POD_DELETION)
    deleted = {path: query for path, query, _ in server.made("DELETE")}
    assert deleted[f"{owner}/{NAME}"]["propagationPolicy"] == "Foreground"
    pods = {path: query for path, query in deleted.items() if path.startswith(PODS)}
    assert [query["gracePeriodSeconds"] for query in pods.values()] == ["0", "0"]
    assert job.poll() == -9
    assert job.leftovers() == ()
    assert (tmp_path / "runs/a/job.log").read_text().count("output of hangdrill-") == 2, "logs are saved before"


def test_graceful_deletion_gives_pods_their_grace_period(server, start):
    job = start(deletion="graceful", grace_s=45)
    job.undergo(Teardown.POD_DELETION)
    graces = [query["gracePeriodSeconds"] for path, query, _ in server.made("DELETE") if path.startswith(PODS)]
    assert graces == ["45"]


def test_other_teardowns_delete_nothing(server, start):
    start().undergo(Teardown.JOB_EXIT)
    assert server.made("DELETE") == []


@pytest.mark.parametrize(("number", "grace"), [(signal.SIGTERM, "60"), (signal.SIGKILL, "0")])
def test_signal_is_a_deletion_with_or_without_grace(server, start, number, grace):
    job = start()
    job.signal(number)
    graces = [query["gracePeriodSeconds"] for path, query, _ in server.made("DELETE") if path.startswith(PODS)]
    assert graces == [grace]


def test_removal_is_safe_to_repeat_and_touches_nothing_of_others(server, start):
    job = start(kind="job")
    theirs = {"name": "theirs", "labels": {"hangdrill.run": "hd-ffffffffffff"}}
    server.state["pods"]["theirs"] = {"metadata": theirs, "status": {"phase": "Running"}}
    job.remove()
    job.remove()
    assert set(server.state["pods"]) == {"theirs"}
    assert job.leftovers() == ()


def test_pods_that_do_not_go_are_named(server, start, monkeypatch):
    monkeypatch.setattr(kubernetes_job, "GONE_S", 0.3)
    job = start()
    server.stuck = True
    with pytest.raises(MachineError, match=rf"still there after 0\.3 s: {NAME}-ranks-0-0-abcde"):
        job.remove()
    assert {each.name for each in job.leftovers()} == {f"pod/{NAME}-ranks-0-0-abcde"}


def test_what_was_made_is_deleted_when_the_next_one_is_refused(server, start):
    server.refused["jobs"] = (403, 'jobs.batch is forbidden: User "me" cannot create')
    with pytest.raises(MachineError, match='User "me" cannot create'):
        start(kind="job")
    assert server.state["services"] == {}


def test_context_is_never_the_current_one(request_of, tmp_path, server):
    with pytest.raises(UsageError, match=r"no context is named; the current one is never taken(.|\n)*get-contexts"):
        launcher_of(tmp_path, context=None).check(request_of())
    assert server.calls == []


def test_drill_in_several_pods_is_refused_before_anything_is_asked(request_of, tmp_path, server):
    with pytest.raises(UsageError, match="runs in one pod so far"):
        launcher_of(tmp_path).check(request_of(nnodes=2))
    assert server.calls == []


def test_unknown_context_is_the_users_mistake(request_of, tmp_path):
    with pytest.raises(UsageError, match="the context elsewhere cannot be used"):
        launcher_of(tmp_path, context="elsewhere").check(request_of())


def test_cluster_that_does_not_answer_is_the_machines_fault(request_of, tmp_path):
    with pytest.raises(MachineError, match=r"context production(.|\n)*the cluster refuses"):
        launcher_of(tmp_path, context="production").check(request_of())


def test_files_of_the_run_volume_are_found_and_those_in_a_pod_are_out_of_reach(start, tmp_path):
    job = start()
    assert job.locate(f"{tmp_path}/runs/a/native/fr_0") == tmp_path / "runs/a/native/fr_0"
    assert job.locate("/scratch/fr_0") is None


def test_missing_client_names_the_extra(request_of, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "kubernetes", None)
    with pytest.raises(MachineError, match=r"client is not installed(.|\n)*hangdrill\[kubernetes\]"):
        launcher_of(tmp_path).check(request_of())
