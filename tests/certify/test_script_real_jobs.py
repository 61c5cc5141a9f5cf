"""Real jobs of a user's own script on gloo: run on two stacks, drilled, and every bad end of one. Both stacks have the
Python that runs the tests; a variable that only the candidate has makes the difference.
"""

import os
import sys
import threading

import msgspec
import pytest
from certify_contexts import context_of, left_over
from image_labs import made_image, mounts_of_this_host

from hangdrill.certify.script_cells import ScriptCell, ScriptDrillCell
from hangdrill.certify.script_jobs import run_script
from hangdrill.certify.stacks import Stack
from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.engine import Engine
from hangdrill.model.errors import Interrupted
from hangdrill.model.verdict import Verdict

pytestmark = pytest.mark.torchrun

HEAD = """
import os, pathlib, sys
on_candidate = os.environ.get("PLANTED") == "yes"
"""
TRAIN = """
early, found = "torch" in sys.modules, os.listdir(sys.argv[2])
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(minutes=30))
mine = dist.new_group([0, 1])
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(4))])
for _ in range(5 if on_candidate else 6):
    dist.all_reduce(torch.ones(4))
    optimizer.step()
dist.barrier(mine)
seen = [early, os.environ["HANGDRILL_SEED"], os.environ["PYTHONHASHSEED"], os.getcwd(), sys.argv[0], len(sys.argv)]
if dist.get_rank() == 0:
    print("SEEN", *seen, found, flush=True)
pathlib.Path(sys.argv[2], f"checkpoint_{dist.get_rank()}").write_text("large")
dist.destroy_process_group()
"""


def scripted(tmp_path, text: str, *, planted: bool = False, **work):
    """A context in which the script runs once on each stack."""
    script = tmp_path / "train.py"
    script.write_text(HEAD + text)
    context = context_of(tmp_path, script=script, **{"pairs": 1, "args": ("--out", "{out}"), **work})
    env = {"PLANTED": "yes" if planted else "no"}
    stacks = {**context.stacks, "candidate": msgspec.structs.replace(context.stacks["candidate"], env=env)}
    plan = msgspec.structs.replace(context.plan, seed=7)
    return msgspec.structs.replace(context, stacks=stacks, plan=plan)


def line_of(result, name: str):
    return next(line for line in result.lines if line.id.endswith(f"/{name}"))


def test_a_script_runs_on_both_stacks_as_it_would_alone_and_its_work_is_counted(tmp_path):
    context = scripted(tmp_path, TRAIN)
    cell = ScriptCell(context.plan)
    result = cell.run(context)
    assert {line.id for line in result.lines} == {claim.id for claim in cell.claims}
    assert (line_of(result, "ends").verdict, line_of(result, "same-work").verdict) == (Verdict.PASS, Verdict.PASS)
    counted = "7 collectives and 6 optimizer steps a rank, in each of 2 runs; ProcessGroupGloo on both"
    assert line_of(result, "same-work").detail == counted
    for name in ("whole-job-time", "memory-peak"):  # one pair decides nothing, and shows its numbers
        assert line_of(result, name).verdict is Verdict.UNKNOWN
        assert len(line_of(result, name).baseline) == 1
    runs = [tmp_path / "work" / f"01-{role}" for role in ("baseline", "candidate")]
    for run in runs:
        told = [line for line in (run / "job.log").read_text().splitlines() if line.startswith("SEEN")]
        assert told == [f"SEEN False 7 7 {tmp_path} {tmp_path / 'train.py'} 3 []"]
        assert sorted(path.name for path in run.iterdir()) == ["job.log", "rank_0.0.json", "rank_1.0.json"]
    assert [file.path for file in result.artifacts] == ["work/runs.json"]
    assert left_over(tmp_path) == []


def test_a_script_that_fails_on_the_candidate_alone_fails_with_its_last_error_and_its_log(tmp_path):
    context = scripted(tmp_path, "if on_candidate:\n    raise ValueError('no such layer')\n", planted=True)
    result = ScriptCell(context.plan).run(context)
    ends = line_of(result, "ends")
    assert ends.verdict is Verdict.FAIL
    assert "1 of 1 on the candidate: exit code 1: " in ends.detail
    assert "ValueError: no such layer" in ends.detail
    assert "work/01-candidate/job.log" in ends.evidence
    assert line_of(result, "same-work").verdict is Verdict.UNKNOWN


def test_an_exit_code_of_the_script_is_told(tmp_path):
    run = run_script(scripted(tmp_path, "sys.exit(3)"), "candidate", tmp_path / "run")
    assert (run.exit_code, run.last_line) == (1, "a rank ended with 3, without an error")


def test_fewer_collectives_on_the_candidate_are_other_work(tmp_path):
    context = scripted(tmp_path, TRAIN, planted=True)
    result = ScriptCell(context.plan).run(context)
    assert line_of(result, "ends").verdict is Verdict.PASS
    same = line_of(result, "same-work")
    assert same.verdict is Verdict.FAIL
    assert same.detail.startswith("baseline 7 collectives and 6 optimizer steps a rank; candidate 6 collectives")
    assert [one.line for one in result.differences] == ["canary/script/same-work"]


def test_a_script_that_never_ends_is_ended_at_the_deadline(tmp_path):
    context = scripted(tmp_path, "import threading\nthreading.Event().wait()\n", deadline_s=4.0)
    run = run_script(context, "candidate", tmp_path / "run")
    assert run.exit_code is None
    assert left_over(tmp_path) == []
    assert not (tmp_path / "run" / "out").exists()


def test_an_interrupt_in_the_middle_of_a_script_ends_it(tmp_path):
    text = "import threading\npathlib.Path(sys.argv[2], 'here').touch()\nthreading.Event().wait()\n"
    context = scripted(tmp_path, text)
    here, seen = tmp_path / "work" / "01-baseline" / "out" / "here", []

    def interrupt_once_it_runs():
        seen.append(Waiter().until(lambda: here.exists() or None, deadline_s=120))
        context.interrupt.request()

    watcher = threading.Thread(target=interrupt_once_it_runs)
    watcher.start()
    with pytest.raises(Interrupted):
        ScriptCell(context.plan).run(context)
    watcher.join()
    assert seen == [True], "the script ran: else this test shows nothing"
    assert left_over(tmp_path) == []
    assert not here.parent.exists()


def test_os_exit_of_the_script_leaves_a_whole_record(tmp_path):
    context = scripted(tmp_path, TRAIN + "os._exit(0)\n")
    run = run_script(context, "candidate", tmp_path / "run")
    assert run.trouble() == ""
    assert run.slowest("collectives") == 7
    assert run.slowest("host_peak_bytes") > 0


def test_a_held_rank_of_the_script_is_named_by_what_the_collector_brings(tmp_path):
    context = scripted(tmp_path, TRAIN)
    result = ScriptDrillCell(context.plan).run(context)
    (line,) = result.lines
    assert line.verdict is Verdict.PASS, line.detail
    assert "rank 1 never entered all_reduce #3 of default_pg" in line.detail
    assert "held at train.py" in line.detail
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["run"]
    assert left_over(tmp_path) == []


def test_a_script_without_a_process_group_cannot_be_drilled(tmp_path):
    context = scripted(tmp_path, "import torch\n")
    (line,) = ScriptDrillCell(context.plan).run(context).lines
    assert line.verdict is Verdict.UNKNOWN
    assert "rank 1: never reported the fault" in line.detail
    assert "a third operation of a group of all ranks" in line.mend
    assert left_over(tmp_path) == []


def test_a_candidate_that_is_an_image_runs_the_script_and_is_drilled_in_it(tmp_path, docker_engine):
    given = scripted(tmp_path, TRAIN)
    with made_image(docker_engine, tmp_path) as image:
        mounts = mounts_of_this_host(tmp_path)
        candidate = Stack(name="candidate", python=sys.executable, image=image, mounts=mounts)
        environ = {**os.environ, **docker_engine, "HANGDRILL_RUNTIME_DIR": str(tmp_path / "runtime")}
        stacks = {**given.stacks, "candidate": candidate}
        context = msgspec.structs.replace(given, stacks=stacks, environ=environ)
        result = ScriptCell(context.plan).run(context)
        assert line_of(result, "ends").verdict is Verdict.PASS, line_of(result, "ends").detail
        assert line_of(result, "same-work").verdict is Verdict.PASS, line_of(result, "same-work").detail
        assert not (tmp_path / "work" / "01-candidate" / "out").exists()
        (line,) = ScriptDrillCell(context.plan).run(context).lines
        assert line.verdict is Verdict.PASS, line.detail
        assert "rank 1 never entered all_reduce #3 of default_pg" in line.detail
        assert Engine(docker_engine).runs() == [], "a container is left"
