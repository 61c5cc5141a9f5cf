"""A script of the user's own, and every bad end a job can come to: each is bounded, told apart, and leaves nothing.

The scripts need no torch, so that these tests are about ends of processes alone.
"""

import os
import shutil
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from certify_contexts import context_of
from checkpoint_cases import SCRIPT, script_drill, this_stack

from hangdrill.certify import checkpoint_metadata
from hangdrill.certify.checkpoint_attempts import Attempt
from hangdrill.certify.checkpoint_jobs import script_command
from hangdrill.certify.checkpoint_notes import Note, TensorNote
from hangdrill.certify.checkpoint_pairs import PairDrill, drill_pairs
from hangdrill.certify.checkpoints import CheckpointCell, _compare_reads, checkpoint_cells, variants_of
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.certify_plan import CertifyPlan, CheckpointPlan, StackPlan
from hangdrill.model.errors import Interrupted, MachineError, UsageError
from hangdrill.model.receipt import CheckpointOutcome as Outcome
from hangdrill.model.verdict import Verdict

HEAD = """
import json, os, pathlib, signal, subprocess, sys, time
action, place = sys.argv[1], pathlib.Path(sys.argv[2])

def note(**values):
    about = {"schema": "hangdrill.checkpoint-note/1", "rank": 0, "world_size": 1, "torch": "none", "outcome": "done"}
    text = json.dumps({**about, "tensors": {}, "values": values})
    pathlib.Path(os.environ["HANGDRILL_CHECKPOINT_NOTE"] + ".rank0.json").write_text(text)

if action == "save":
    place.mkdir(parents=True)
    (place / "state").write_text("3")
    note(step="3")
    raise SystemExit
"""
GOOD = 'note(step=(place / "state").read_text())\n'


def outcome_of(tmp_path, restore):
    """Of restoring on the stack that saved, where an error is an error of the job."""
    drill = script_drill(tmp_path, HEAD + restore)
    saved = drill.save(this_stack())
    return drill, saved, drill.restore(saved, this_stack())[0]


def test_a_script_that_restores_what_it_saved_is_equal(tmp_path):
    _, _, found = outcome_of(tmp_path, GOOD)
    assert (found.outcome, found.layout) == (Outcome.EQUAL, "script")
    assert found.detail == "0 tensors and 1 values of 1 ranks are bit-equal"
    assert any(path.endswith(".log") for path in found.evidence)


def test_a_script_that_restores_something_else_is_unequal(tmp_path):
    _, _, found = outcome_of(tmp_path, "note(step='2')")
    assert (found.outcome, found.detail) == (Outcome.UNEQUAL, "rank 0: step is 2, and 3 was saved")


@pytest.mark.parametrize(("most_bytes", "outcome"), [(1000, Outcome.DAMAGED), (5, Outcome.EQUAL)])
def test_a_metadata_too_large_to_be_read_is_no_damage_and_the_restore_decides(
    tmp_path, monkeypatch, most_bytes, outcome
):
    """What is read, and is no metadata, is damage: the control."""
    monkeypatch.setattr(checkpoint_metadata, "MAX_METADATA_BYTES", most_bytes)
    written = '(place / "state").write_text("3")\n'
    more = f'{written}    (place / ".metadata").write_text("nothing")\n'
    drill = script_drill(tmp_path, HEAD.replace(written, more) + GOOD)
    assert drill.restore(drill.save(this_stack()), this_stack())[0].outcome is outcome


def test_ranks_with_another_torch_say_nothing_of_the_stack(tmp_path):
    drill = script_drill(tmp_path, HEAD + GOOD)  # it notes that its torch is "none"
    own = msgspec.structs.replace(this_stack("a"), torch="none")
    other = msgspec.structs.replace(this_stack("b"), torch="2.15.0")
    saved = drill.save(own)
    assert drill.restore(saved, own)[0].outcome is Outcome.EQUAL  # the control
    for act in (lambda: drill.restore(saved, other), lambda: drill.save(other)):
        with pytest.raises(MachineError, match=r"rank 0 on this host had torch none, and the b is 2\.15\.0"):
            act()


def test_a_script_that_notes_nothing_is_unknown(tmp_path):
    _, _, found = outcome_of(tmp_path, "pass")
    assert found.outcome is Outcome.UNKNOWN
    assert "record(state)" in found.detail


def test_a_script_that_notes_an_empty_state_is_unknown(tmp_path):
    drill = script_drill(tmp_path, HEAD.replace('note(step="3")', "note()") + "note()")
    found = drill.restore(drill.save(this_stack()), this_stack())[0]
    assert (found.outcome, found.detail) == (Outcome.UNKNOWN, "nothing was noted when it was saved")


def test_an_older_checkpoint_in_which_nothing_is_proves_nothing():
    def read(**tensors):
        note = Note(
            schema="hangdrill.checkpoint-note/1",
            rank=0,
            world_size=1,
            torch="2.14.1",
            outcome="done",
            tensors={name: TensorNote(shape=(1,), dtype="float32", sha256=sha256) for name, sha256 in tensors.items()},
        )
        return Attempt(notes={0: note})

    assert _compare_reads(read(), read())[0] is Verdict.UNKNOWN
    assert _compare_reads(read(weight="a"), read(weight="a"))[0] is Verdict.PASS
    assert _compare_reads(read(weight="a"), read())[0] is Verdict.FAIL
    for trouble, verdict in ((Outcome.REFUSED, Verdict.PASS), (Outcome.UNKNOWN, Verdict.UNKNOWN)):
        assert _compare_reads(read(weight="a"), Attempt(notes={}, trouble=trouble, detail="no"))[0] is verdict


def test_an_error_of_the_script_is_named_and_is_no_version_trouble_on_its_own_stack(tmp_path):
    drill = script_drill(tmp_path, HEAD + "raise ValueError('no such layer')")
    table = drill_pairs(drill, [this_stack()])
    assert [(pair.outcome, pair.one_way) for pair in table.pairs] == [(Outcome.FAILED, False)]
    assert "ValueError: no such layer" in table.pairs[0].detail


def test_an_error_on_another_stack_alone_is_version_trouble_and_one_way(tmp_path):
    drill = script_drill(tmp_path, HEAD + "assert not (os.environ.get('OLD') and 'new' in str(place))\n" + GOOD)
    table = drill_pairs(drill, [this_stack("old", OLD="1"), this_stack("new")])
    found = {(pair.saved_by, pair.restored_by): (pair.outcome, pair.one_way) for pair in table.pairs}
    assert found == {
        ("old", "old"): (Outcome.EQUAL, False),
        ("old", "new"): (Outcome.EQUAL, False),
        ("new", "old"): (Outcome.REFUSED, True),
        ("new", "new"): (Outcome.EQUAL, False),
    }


def test_a_restore_that_dies_is_a_crash_with_its_signal(tmp_path):
    _, _, found = outcome_of(tmp_path, "os.kill(os.getpid(), signal.SIGABRT)")
    assert (found.outcome, found.detail) == (Outcome.CRASHED, "a rank died of signal 6")


def test_a_restore_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    hang = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
pathlib.Path(str(place) + ".child").write_text(str(child.pid))
time.sleep(1000)
"""
    drill = script_drill(tmp_path, HEAD + hang)
    saved = drill.save(this_stack())
    hasty = msgspec.structs.replace(drill.options, limit_s=5.0)
    hasty_drill = PairDrill(hasty, work_dir=tmp_path / "drill", out_dir=tmp_path / "drill", interrupt=Interrupt())
    (found,) = hasty_drill.restore(saved, this_stack())
    assert (found.outcome, found.detail) == (Outcome.HUNG, "not over in time, and ended")
    child = tmp_path / "drill" / "saved" / "a" / "script.child"
    assert not child.exists() or not _lives(int(child.read_text()))


def test_an_interrupt_ends_the_job(tmp_path):
    began = tmp_path / "began"
    began_script = (
        f"import pathlib, os, time; pathlib.Path({str(began)!r}).write_text(str(os.getpid())); time.sleep(1000)"
    )
    drill = script_drill(tmp_path, HEAD + began_script)
    saved = drill.save(this_stack())
    interrupt = Interrupt()
    stopped = PairDrill(drill.options, work_dir=tmp_path / "drill", out_dir=tmp_path, interrupt=interrupt)
    _request_once(began, interrupt)
    with pytest.raises(Interrupted):
        stopped.restore(saved, this_stack())
    assert not _lives(int(began.read_text()))


def test_damage_that_came_after_the_save_is_told_before_anything_is_restored(tmp_path):
    drill = script_drill(tmp_path, HEAD + GOOD)
    saved = drill.save(this_stack())
    (saved[0].directory / "state").write_text("4")
    (found,) = drill.restore(saved, this_stack())
    assert found.outcome is Outcome.DAMAGED
    assert found.detail.startswith("before the restore: state is not what was saved")
    (saved[0].directory / "state").unlink()
    (found,) = drill.restore(saved, this_stack())
    assert (found.outcome, found.detail) == (Outcome.PARTIAL, "before the restore: state is missing")


def test_a_restore_that_changes_the_checkpoint_is_noticed(tmp_path):
    _, _, found = outcome_of(tmp_path, GOOD + '(place / "state").write_text("9")')
    assert found.outcome is Outcome.DAMAGED
    assert found.detail.startswith("after the restore: state is not what was saved")


def test_a_save_that_fails_makes_its_row_failed_with_the_error(tmp_path):
    drill = script_drill(tmp_path, "raise OSError('disk full')")
    table = drill_pairs(drill, [this_stack()])
    assert [pair.outcome for pair in table.pairs] == [Outcome.FAILED]
    assert "not saved: exit code 1: OSError: disk full" in table.pairs[0].detail


def test_a_stack_that_is_missing_makes_its_rows_unknown_and_the_others_go_on(tmp_path):
    drill = script_drill(tmp_path, HEAD + GOOD)
    gone = msgspec.structs.replace(this_stack("gone"), missing="/gone/python does not exist")
    table = drill_pairs(drill, [this_stack("a"), gone])
    found = {(pair.saved_by, pair.restored_by): pair for pair in table.pairs}
    assert found["a", "a"].outcome is Outcome.EQUAL
    assert [found[key].outcome for key in (("a", "gone"), ("gone", "a"), ("gone", "gone"))] == [Outcome.UNKNOWN] * 3
    assert found["a", "gone"].detail == "/gone/python does not exist"


def test_the_duplicated_checkpoint_is_restored_from_its_copy(tmp_path):
    drill = script_drill(tmp_path, HEAD + GOOD)
    table = drill_pairs(drill, [this_stack()], duplicated="a")
    assert table.saved[0].copy == table.saved[0].directory.with_name("script.copy")
    assert table.pairs[0].outcome is Outcome.EQUAL
    assert table.pairs[0].detail.startswith("its copy: ")


def test_a_damaged_copy_is_not_taken_for_the_original(tmp_path):
    drill = script_drill(tmp_path, HEAD + GOOD)
    saved = tuple(drill.duplicate(each) for each in drill.save(this_stack()))
    (saved[0].copy / "state").write_text("4")
    assert drill.restore(saved, this_stack())[0].outcome is Outcome.DAMAGED
    assert drill.restore(saved, this_stack("b"))[0].outcome is Outcome.EQUAL


def test_the_stacks_own_programs_come_first_on_the_path(tmp_path):
    shown = "pathlib.Path(str(place) + '.path').write_text(os.environ['PATH'])\n"
    outcome_of(tmp_path, shown + GOOD)
    path = (tmp_path / "drill" / "saved" / "a" / "script.path").read_text()
    assert path.split(os.pathsep)[0] == str(Path(sys.executable).parent)


def test_a_torchrun_of_the_users_command_keeps_its_files_in_the_drill_and_they_are_gone_after(tmp_path):
    script = "logs = pathlib.Path(os.environ['PET_LOG_DIR'])\nlogs.mkdir()\n(logs / 'error.json').write_text('{}')\n"
    _, _, found = outcome_of(tmp_path, f"{script}(place.parent / 'kept').write_text(str(logs))\n{GOOD}")
    logs = Path((tmp_path / "drill" / "saved" / "a" / "kept").read_text())
    assert found.outcome is Outcome.EQUAL
    assert tmp_path in logs.parents
    assert not logs.exists()


def test_a_users_command_runs_in_the_directory_of_the_plan(tmp_path):
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "train.py").write_text(HEAD + GOOD)
    side = StackPlan(python=sys.executable)
    command = "{python} train.py %s {checkpoint}"
    own = CheckpointPlan(layouts=(), save=command % "save", restore=command % "restore")
    context = context_of(tmp_path, nproc_per_node=1)
    plan = CertifyPlan(title="t", baseline=side, candidate=side, checkpoint=own, workload=context.plan.workload)
    for home, outcome in ((tmp_path / "plan", Outcome.EQUAL), (tmp_path, Outcome.FAILED)):
        shutil.rmtree(context.cell_dir)
        context.cell_dir.mkdir()
        result = CheckpointCell(plan).run(msgspec.structs.replace(context, plan=plan, plan_dir=home))
        assert {pair.outcome for pair in result.checkpoint_pairs} == {outcome}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{python} train.py", "does not say where {checkpoint} goes"),
        ("{python} {chekpoint}", "not a command line"),
        ("{python} 'x {checkpoint}", "not a command line"),
        ("", "does not say"),
    ],
)
def test_a_strange_command_line_is_the_users_to_mend(tmp_path, template, words):
    with pytest.raises(UsageError, match=words) as caught:
        script_command(template, key="save", python="p", checkpoint=tmp_path)
    assert caught.value.where == "checkpoint.save"


@pytest.mark.parametrize("word", ["{checkpoint.x}", "{checkpoint[0]}", "{python:d}", "{checkpoint:x}"])
def test_a_field_that_a_command_line_does_not_have_is_the_users_to_mend(tmp_path, word):
    with pytest.raises(UsageError, match="not a command line"):
        script_command(f"x {word} {{checkpoint}}", key="save", python="p", checkpoint=tmp_path)


def test_a_command_line_is_split_as_a_shell_splits_and_then_filled_in(tmp_path):
    place = tmp_path / "with space"
    command = script_command('{python} t.py --at "{checkpoint}" {{x}}', key="save", python="/p", checkpoint=place)
    assert command == ("/p", "t.py", "--at", str(place), "{x}")


def test_save_and_restore_belong_together():
    with pytest.raises(UsageError, match="belong together"):
        variants_of(CheckpointPlan(save="x {checkpoint}"))
    assert variants_of(CheckpointPlan(save="x {checkpoint}", restore="y {checkpoint}"))[-1] == SCRIPT


@pytest.mark.parametrize(
    ("about", "where"),
    [
        ({"save": "x {checkpoint}"}, "checkpoint.restore"),
        ({"save": "x {checkpoint}", "restore": "y"}, "checkpoint.restore"),
        ({"limit_s": 0.0}, "checkpoint.limit_s"),
        ({"layouts": ()}, "checkpoint"),
    ],
)
def test_a_mistake_of_the_plan_is_found_before_anything_runs(about, where):
    side = StackPlan(python="p")
    plan = CertifyPlan(title="t", baseline=side, candidate=side, checkpoint=CheckpointPlan(**about))
    with pytest.raises(UsageError) as caught:
        checkpoint_cells(plan)
    assert caught.value.where == where


def _lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _request_once(path, interrupt):
    """Ask for the stop as soon as the job is there."""
    import threading

    def wait():
        pause = threading.Event()
        for _ in range(6000):
            if path.exists() and path.read_text():
                interrupt.request()
                return
            pause.wait(0.02)

    threading.Thread(target=wait, daemon=True).start()


def test_each_job_has_a_log_of_its_own(tmp_path):
    """Else an earlier rank's death could be told of a later job."""
    drill, saved, first = outcome_of(tmp_path, GOOD)
    again = drill.restore(saved, this_stack())[0]
    logs = [path for found in (first, again) for path in found.evidence if path.endswith(".log")]
    assert logs == ["restored-by/a/job0.log", "restored-by/a/job1.log"]
