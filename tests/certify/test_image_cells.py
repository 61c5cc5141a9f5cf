"""Cells of a stack that is a container image, with a real engine and real jobs; and nothing of them is left."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from certify_contexts import context_of
from image_labs import made_image, mounts_of_this_host

from hangdrill.certify.canary import CanaryCell
from hangdrill.certify.canary_runs import Side, job_of, run_canary
from hangdrill.certify.checkpoint_attempts import DrillOptions, DrillStack, Variant
from hangdrill.certify.checkpoint_pairs import PairDrill, drill_pairs
from hangdrill.certify.controls import control_cells
from hangdrill.certify.fingerprints import read_stack
from hangdrill.certify.running import blocked_by, run_cell
from hangdrill.certify.stacks import Stack
from hangdrill.drill.clean import clean
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.launchers.engine import Engine
from hangdrill.model.certify_plan import Measure
from hangdrill.model.errors import Interrupted
from hangdrill.model.receipt import CheckpointOutcome, Receipt
from hangdrill.model.verdict import Verdict

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def engine(docker_engine):
    yield docker_engine
    assert Engine(docker_engine).runs() == [], "a container is left"


@pytest.fixture
def image(engine, tmp_path):
    with made_image(engine, tmp_path) as name:
        yield name


@pytest.fixture
def context(engine, image, tmp_path):
    """The baseline on this host, the candidate in the image."""
    given = context_of(tmp_path, pairs=1)
    environ = {**os.environ, **engine, "HANGDRILL_RUNTIME_DIR": str(tmp_path / "runtime")}
    candidate = Stack(
        name="candidate", python=sys.executable, image=image, mounts=mounts_of_this_host(tmp_path), env={"HD_X": "1"}
    )
    stacks = {**given.stacks, "candidate": candidate}
    return msgspec.structs.replace(given, stacks=stacks, environ=environ)


def candidates_job(context, name, parts=("latency",), **changes):
    side = Side(name="candidate", stack="candidate", backend="gloo")
    job = job_of(context, side, context.cell_dir / name, parts)
    return msgspec.structs.replace(job, **changes)


def test_a_cell_that_cannot_run_in_an_image_is_unknown_with_the_reason(context):
    class Elsewhere(CanaryCell):
        takes_images = False

    stacks = {name: msgspec.structs.replace(stack, missing="") for name, stack in context.stacks.items()}
    blocked = blocked_by(Elsewhere(context.plan), stacks, context.environ)
    assert {line.verdict for line in blocked.lines} == {Verdict.UNKNOWN}
    assert "candidate is a container image" in blocked.why_not
    assert blocked_by(CanaryCell(context.plan), stacks, context.environ) is None


def test_a_job_of_an_image_gets_the_plans_and_the_stacks_variables_and_none_of_this_host(context):
    plan = msgspec.structs.replace(
        context.plan, workload=msgspec.structs.replace(context.plan.workload, env={"HD_W": "2"})
    )
    context = msgspec.structs.replace(context, plan=plan)
    assert context.job_environ("candidate") == {"HD_W": "2", "HD_X": "1"}
    assert context.job_environ("baseline")["PATH"] == os.environ["PATH"]


@pytest.mark.torchrun
def test_a_canary_pair_has_the_baseline_on_this_host_and_the_candidate_in_its_image(context):
    wanted = (Measure.START_TIME, Measure.COLLECTIVE_LATENCY, Measure.SHUTDOWN_TIME)
    context = msgspec.structs.replace(context, plan=msgspec.structs.replace(context.plan, measures=wanted))
    result = run_cell(CanaryCell(context.plan), context)
    assert result.ran, result.why_not
    backend, *others = result.lines
    assert backend.verdict is Verdict.PASS, backend.detail
    measured = [line.id for line in others if line.baseline and line.candidate]
    assert len(measured) >= len(wanted), others
    assert [line.id for line in others if bool(line.baseline) != bool(line.candidate)] == []


@pytest.mark.torchrun
def test_a_job_in_an_image_that_is_not_over_in_time_is_ended_and_removed(context):
    run = run_canary(candidates_job(context, "slow", deadline_s=1.0), context.interrupt)
    assert run.exit_code is None


@pytest.mark.torchrun
def test_an_interrupt_in_the_middle_of_a_job_in_an_image_leaves_nothing(context, engine):
    seen = []

    def interrupt_once_it_runs():
        seen.append(Waiter().until(lambda: Engine(engine).runs() or None, deadline_s=120, poll_s=0.1))
        context.interrupt.request(signal.SIGINT)

    watcher = threading.Thread(target=interrupt_once_it_runs)
    watcher.start()
    with pytest.raises(Interrupted):
        run_canary(candidates_job(context, "cut", ("latency", "dp", "fsdp", "checkpoint")), context.interrupt)
    watcher.join()
    assert seen[0], "the container was there: else this test shows nothing"


@pytest.mark.torchrun
def test_the_drill_with_the_recorder_switched_off_fails_in_an_image_too(context):
    (control,) = control_cells(context.plan)
    result = run_cell(control, context)
    assert [line.verdict for line in result.lines] == [Verdict.PASS], result.lines[0].detail
    assert result.controls[0].held


@pytest.mark.torchrun
def test_checkpoints_go_both_ways_between_this_host_and_an_image(context, tmp_path):
    options = DrillOptions(variants=(Variant(layout="plain"),), cwd=CHECKOUT, ranks=1)
    drill = PairDrill(options, work_dir=context.cell_dir, out_dir=context.out_dir, interrupt=context.interrupt)
    stacks = [
        DrillStack(name=name, python=sys.executable, environ=context.job_environ(name), place=context.place_of(name))
        for name in ("baseline", "candidate")
    ]
    table = drill_pairs(drill, stacks, duplicated="candidate", restored_last="baseline")
    assert {(row.saved_by, row.restored_by): row.outcome for row in table.pairs} == {
        (one, other): CheckpointOutcome.EQUAL
        for one in ("baseline", "candidate")
        for other in ("baseline", "candidate")
    }, [row.detail for row in table.pairs]


KILLED = """
import sys
from pathlib import Path
from hangdrill.certify.canary_jobs import CanaryJob, run_canary
from hangdrill.certify.places import Place
from hangdrill.drill.waiting import Interrupt
image, mounts, host, directory = sys.argv[1], tuple(sys.argv[4:]), sys.argv[2], Path(sys.argv[3])
place = Place(image=image, python=sys.executable, mounts=mounts, engine={"DOCKER_HOST": host})
job = CanaryJob(python=sys.executable, environ={}, directory=directory, backend="gloo", ranks=2, place=place)
run_canary(job, Interrupt())
"""


@pytest.mark.torchrun
def test_clean_removes_the_container_of_a_killed_certification(context, engine, image, tmp_path):
    words = (image, engine["DOCKER_HOST"], str(tmp_path / "job"), *mounts_of_this_host(tmp_path))
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    controller = subprocess.Popen([sys.executable, "-c", KILLED, *words], env=environ)
    began = Waiter().until(
        lambda: Engine(engine).runs() or (None if controller.poll() is None else []), deadline_s=120, poll_s=0.05
    )
    controller.kill()
    controller.wait()
    left = Engine(engine).runs()
    clean(dry_run=False, environ=context.environ)
    assert began
    assert left, "the container outlives its controller: else this test shows nothing"
    assert Engine(engine).runs() == []


@pytest.mark.torchrun
def test_jobs_run_the_image_whose_fingerprint_was_read_whatever_its_name_means_meanwhile(context, engine, tmp_path):
    named = context.stacks["candidate"]
    read = read_stack(
        "candidate",
        named.python,
        env={},
        environ=context.environ,
        image=named.image,
        mounts=named.mounts,
        interrupt=Interrupt(),
    )
    with made_image(engine, tmp_path, changes=["ENV PATH=/nowhere"]):
        place = msgspec.structs.replace(context, stacks={"candidate": read}).place_of("candidate")
        assert place.image == read.fingerprint.image_id
        assert Engine(engine).image(named.image).id != place.image


PLAN = """
title = "an image"
declared = ["torch", "image", "env:*"]
topologies = ["single-node"]
measures = ["start-time"]
[baseline]
python = "{python}"
[candidate]
image = "{image}"
python = "{python}"
mounts = {mounts}
[workload]
pairs = 1
steps = 2
timeout_s = 5
"""


def certify(context, tmp_path, *words):
    """hangdrill as a user starts it, with a plan whose candidate is the image."""
    candidate = context.stacks["candidate"]
    text = PLAN.format(python=sys.executable, image=candidate.image, mounts=json.dumps(candidate.mounts))
    (tmp_path / "plan.toml").write_text(text)
    environ = {**context.environ, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "200"}
    command = [sys.executable, "-m", "hangdrill", "certify", "plan.toml", *words]
    return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)


def test_a_dry_run_says_which_image_and_what_to_pull_when_it_is_not_there(context, tmp_path):
    there = certify(context, tmp_path, "--dry-run")
    assert f"{sys.executable} in {context.stacks['candidate'].image}" in there.stdout, there.stderr
    assert "docker pull" not in there.stdout
    gone = msgspec.structs.replace(context.stacks["candidate"], image="registry.invalid/none:1")
    missing = certify(msgspec.structs.replace(context, stacks={"candidate": gone}), tmp_path, "--dry-run")
    assert "docker pull registry.invalid/none:1" in missing.stdout


@pytest.mark.torchrun
def test_a_certification_drills_the_candidate_in_its_image_and_the_receipt_names_it(context, tmp_path):
    done = certify(context, tmp_path, "--out", "out", "--only", "drills/collector")
    receipt = msgspec.json.decode((tmp_path / "out/receipt.json").read_bytes(), type=Receipt)
    lines = {line.id: line for line in receipt.lines}
    drill = lines["drills/collector/single-node/evidence"]
    assert drill.verdict is Verdict.PASS, (drill.detail, done.stdout, done.stderr)
    assert receipt.candidate.image == context.stacks["candidate"].image
    assert receipt.candidate.fingerprint.image_id.startswith("sha256:")
    assert {one.what: one.declared for one in receipt.differences}["image"]
    assert f"in {receipt.candidate.image}" in (tmp_path / "out/checklist.md").read_text()
