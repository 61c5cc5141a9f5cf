"""The agent under torchrun: what the ranks' own recorders show of a fault, and that ranks wait for their evidence."""

import signal
import stat

import pytest
from rank_driver import ROOT, agent_job, operations

pytestmark = pytest.mark.torchrun


def before(kind, rank, *, op="all_reduce", nth=3, **more):
    return {"kind": kind, "ranks": [rank], "at": "before", "op": op, "nth": nth, **more}


def counted(job, rank):
    """Group -> collectives, by the agent; of the groups that had any."""
    return {group["desc"]: group["collectives"] for group in job.facts(rank)["groups"] if group["collectives"]}


def recorded(job, rank):
    """The same by torch's recorder."""
    entries = job.dump(rank)["entries"]
    return {entry["process_group"][1]: entry["collective_seq_id"] for entry in entries}


def pending(job, rank):
    return [entry["collective_seq_id"] for entry in job.dump(rank)["entries"] if not entry["retired"]]


def test_a_held_rank_has_not_entered_what_the_others_wait_in_and_is_ended_only_after_its_ack(tmp_path):
    with agent_job(tmp_path, ["workload:ddp", "--timeout-s", "60"], fault=before("hold", 0)) as job:
        report = job.wait_for("fault", 0)
        stuck = report["sequence"]
        job.wait("rank 1 in the stuck operation", lambda: pending(job, 1) == [stuck])
        assert (pending(job, 0), recorded(job, 0)) == ([], {"default_pg": stuck - 1})
        assert [counted(job, rank) == recorded(job, rank) for rank in (0, 1)] == [True, True]
        assert report["frames"][0]["filename"].endswith("workloads/ddp.py")

        job.process.send_signal(signal.SIGTERM)  # torchrun passes it on; rank 1 is inside C++
        ends = [job.wait_for("exit", rank) for rank in (0, 1)]
        assert [(end["status"], end["code"]) for end in ends] == [("signal", signal.SIGTERM)] * 2
        assert recorded(job, 1) == {"default_pg": stuck}
        job.ack()
        assert job.end_code() != 0


def test_a_rank_that_raised_waits_until_the_others_stand_in_the_dump(tmp_path):
    with agent_job(tmp_path, ["workload:all-reduce", "--timeout-s", "60"], fault=before("raise", 1)) as job:
        end = job.wait_for("exit", 1)
        assert (end["status"], end["code"], end["in_distributed"]) == ("exception", 1, False)
        assert end["exception_type"].endswith("InjectedFault")
        job.wait("rank 0 in all_reduce #3", lambda: pending(job, 0) == [3])
        job.ack(1)
        after = job.wait_for("exit", 0)
        assert (after["in_distributed"], after["last_group"], after["last_sequence"]) == (True, "default_pg", 3)
        assert pending(job, 0) == []  # torch's own record of a failed operation: finished
        job.ack(0)
        assert job.end_code() == 1
        assert "hangdrill made rank 1 fail here" in job.text()


def test_a_skipped_operation_of_ddp_leaves_the_rank_one_behind_and_raises_nothing(tmp_path):
    with agent_job(tmp_path, ["workload:ddp", "--timeout-s", "60", "--steps", "5"], fault=before("skip", 1)) as job:
        assert job.wait_for("exit", 1)["status"] == "exit"
        # Rank 1 has destroyed its groups, so rank 0 either waits in its last all_reduce or has failed in it.
        job.wait("rank 0 in its last all_reduce", lambda: pending(job, 0) or job.read("exit", 0))
        assert (job.read("exit", 0) or {"in_distributed": True})["in_distributed"]
        assert recorded(job, 0)["default_pg"] == recorded(job, 1)["default_pg"] + 1
        assert [counted(job, rank) == recorded(job, rank) for rank in (0, 1)] == [True, True]


def test_another_operation_stands_in_the_culprits_dump_at_the_same_place(tmp_path):
    fault = before("wrong-op", 1)
    with agent_job(tmp_path, ["workload:all-reduce", "--timeout-s", "60"], fault=fault) as job:
        job.wait_for("fault", 1)
        job.wait("both in operation 3", lambda: pending(job, 0) == pending(job, 1) == [3])
        assert [operations(job.dump(rank))[2] for rank in (0, 1)] == ["gloo:all_reduce", "gloo:broadcast"]


@pytest.mark.parametrize(("kind", "signum"), [("wrong-shape", signal.SIGABRT), ("kill", signal.SIGKILL)])
def test_the_culprit_dies_and_not_the_innocent(tmp_path, kind, signum):
    with agent_job(tmp_path, ["workload:all-reduce"], fault=before(kind, 1)) as job:
        assert job.wait_for("fault", 1)["kind"] == kind
        end = job.wait_for("exit", 0)
        assert (end["status"], end["in_distributed"], end["last_sequence"]) == ("exception", True, 3)
        job.ack()
        assert job.end_code() == 1
        assert job.read("exit", 1) is None
        assert f"exitcode  : -{int(signum)}" in job.text()


def test_a_mesh_is_counted_in_every_group_and_a_healthy_job_ends_well(tmp_path):
    with agent_job(tmp_path, ["workload:mesh-2d", "--steps", "3"], world_size=4, exit_wait_s=60.0) as job:
        ends = [job.wait_for("exit", rank) for rank in range(4)]
        assert [(end["status"], end["code"]) for end in ends] == [("exit", 0)] * 4
        counts = [counted(job, rank) for rank in range(4)]
        assert counts == [recorded(job, rank) for rank in range(4)]
        assert set(counts[0]) == {"mesh_dp", "mesh_tp"}
        members = {group["desc"]: group["ranks"] for group in job.facts(3)["groups"]}
        assert (members["mesh_dp"], members["mesh_tp"]) == ([1, 3], [2, 3])
        job.ack()
        assert job.end_code() == 0


def test_a_users_own_script_runs_unchanged_and_ends_well(tmp_path):
    with agent_job(tmp_path, [str(ROOT / "docs/examples/train_ddp.py"), "--epochs", "1"], exit_wait_s=60.0) as job:
        assert [job.wait_for("exit", rank)["code"] for rank in (0, 1)] == [0, 0]
        assert job.facts(0)["steps"] > 0
        assert counted(job, 0) == recorded(job, 0)
        modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (*job.sockets.iterdir(), *job.control.iterdir())
                 if path.name.startswith("rank_")}  # fmt: skip
        assert modes == {0}
        job.ack()
        assert job.end_code() == 0, job.text()
        assert list(job.sockets.iterdir()) == []
