"""The parts of a canary job that need no torch: the switch as a rank sees it, planted mistakes, records, meetings."""

import json
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from hangdrill.certify.canary_records import CanaryRun, read_run
from hangdrill.rank.canary.cores import keep_to_own_cores, own_cores
from hangdrill.rank.canary.meeting import Meeting
from hangdrill.rank.canary.options import PARTS, parse_options
from hangdrill.rank.canary.record import Record
from hangdrill.rank.canary.switch import SWITCH, creators, plant_before_import, plant_too_late, switch_facts


def test_the_variable_of_the_process_is_told_from_what_the_script_made_of_it():
    script = (
        "import os, json; from hangdrill.rank.canary.switch import switch_facts\n"
        f"os.environ['{SWITCH}'] = '00'; print(json.dumps(switch_facts(os.environ)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PATH": "/usr/bin:/bin", SWITCH: "0", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"at_exec": "0", "at_import": "00"}


@pytest.mark.parametrize(
    ("plants", "before", "after"),
    [
        (["missing:1"], None, None),
        (["late:1"], None, "0"),
        (["value:1=false"], "false", "false"),
        (["value:1="], "", ""),
        (["missing:0", "late:2"], "0", "0"),
        ([], "0", "0"),
    ],
)
def test_a_mistake_is_made_by_the_rank_that_is_named_and_no_other(plants, before, after):
    environ = {"RANK": "1", SWITCH: "0"}
    plant_before_import(plants, environ)
    assert switch_facts(environ)["at_import"] == before
    plant_too_late(plants, environ)
    assert environ.get(SWITCH) == after


def test_what_a_name_stands_for_is_asked_of_torchs_own_table():
    plugins = {}

    def ensure(name):
        if name == "nccl2":
            raise RuntimeError("a build without it")
        plugins[name.upper()] = SimpleNamespace(creator_fn=ensure)

    assert creators(SimpleNamespace(_ensure_backend_registered=ensure, _plugins=plugins)) == dict.fromkeys(
        ("nccl", "nccl-legacy", "nccl-lazy"), "ensure"
    )
    assert creators(SimpleNamespace()) == {}  # an older torch


def record_in(directory, **environ) -> Record:
    return Record.from_environment(directory, {"RANK": "1", "WORLD_SIZE": "2", **environ})


def test_a_part_that_fails_is_recorded_and_the_next_one_runs(tmp_path):
    record = record_in(tmp_path)
    with record.part("dp", limit_s=60):
        raise RuntimeError("no such thing")
    with record.part("tp", limit_s=60):
        record.measures["tp_step_s"] = 0.5
    (read,), problems = read_run(tmp_path, world_size=2)
    assert problems == ()
    assert (read.rank, read.attempt, read.doing) == (1, 0, "")
    assert read.failed == {"dp": "RuntimeError: no such thing"}
    assert read.measures["tp_step_s"] == 0.5
    assert {"part_dp_s", "part_tp_s"} <= read.measures.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["rank_1.0.json"]


def test_while_a_part_runs_the_file_says_which(tmp_path):
    record = record_in(tmp_path, TORCHELASTIC_RESTART_COUNT="3")
    with record.part("pp", limit_s=60):
        (read,), _ = read_run(tmp_path, world_size=2)
        assert (read.doing, read.attempt) == ("pp", 3)


def test_what_ends_the_process_is_not_swallowed(tmp_path):
    with pytest.raises(SystemExit), record_in(tmp_path).part("dp", limit_s=60):
        raise SystemExit(3)


def test_a_file_of_another_job_or_a_cut_one_is_a_problem_and_no_record(tmp_path):
    record_in(tmp_path, WORLD_SIZE="8").save()
    (tmp_path / "rank_0.0.json").write_text('{"schema": "hangdrill.canary/1", "rank": 0')
    records, problems = read_run(tmp_path, world_size=2)
    assert records == ()
    assert len(problems) == 2
    assert any("rank 1 of 8" in problem for problem in problems)


def test_ranks_meet_once_all_have_come(tmp_path):
    order: list[str] = []

    def come(rank: int) -> None:
        Meeting(tmp_path, rank=rank, world_size=3, attempt=0)("begin")
        order.append(f"through {rank}")

    threads = [threading.Thread(target=come, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=0.05)
    assert order == []
    come(2)
    for thread in threads:
        thread.join(timeout=60)
    assert len(order) == 3


def test_a_rank_that_does_not_come_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("hangdrill.rank.canary.meeting.LIMIT_S", 0.0)
    with pytest.raises(RuntimeError, match=r"ranks \[1, 2\] did not come to 'begin'"):
        Meeting(tmp_path, rank=0, world_size=3, attempt=0)("begin")


def options_of(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["canary", "--out", "/x", *words])
    return parse_options()


def test_parts_run_in_the_order_in_which_they_can(monkeypatch):
    assert options_of(monkeypatch, "--parts", "recover,dp,groups").parts == ("groups", "dp", "recover")
    assert PARTS[-2:] == ("foreign", "recover")
    assert options_of(monkeypatch, "--parts", "").parts == ()
    assert options_of(monkeypatch, "--plant", "missing:0", "--plant", "late:1").plants == ("missing:0", "late:1")


@pytest.mark.parametrize("words", [("--parts", "dp,ddp"), ("--plant", "typo:1"), ("--bind", "maybe")])
def test_a_word_that_is_not_known_is_refused(monkeypatch, capsys, words):
    with pytest.raises(SystemExit):
        options_of(monkeypatch, *words)
    assert words[1].split(",")[-1].split(":")[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("available", "rank", "ranks", "kept"),
    [
        (range(8), 0, 2, (0, 1, 2, 3)),
        (range(8), 1, 2, (4, 5, 6, 7)),
        ((1, 3, 5, 7, 9), 1, 2, (5, 7)),
        (range(2), 1, 2, ()),
        (range(8), 5, 2, ()),
        (range(8), 0, 0, ()),
    ],
)
def test_each_rank_has_a_block_of_cores_of_its_own_or_all_are_left_alone(available, rank, ranks, kept):
    assert own_cores(set(available), rank, ranks) == kept


def test_a_process_is_pinned_where_there_are_cores_and_left_alone_where_it_is_not_allowed(monkeypatch):
    pinned = []
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cores: pinned.append(cores))
    environ = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert keep_to_own_cores(environ) == (2, 3)
    assert pinned == [(2, 3)]

    def refuse(pid, cores):
        raise PermissionError

    monkeypatch.setattr("os.sched_setaffinity", refuse)
    assert keep_to_own_cores(environ) == ()


def test_what_an_operation_takes_is_told_from_what_disturbs_it():
    from hangdrill.rank.canary.timing import lower_decile

    quiet = [1.0 + at / 1000 for at in range(20)]
    assert lower_decile(quiet) == 1.001
    assert lower_decile([*quiet[:10], *(time * 4 for time in quiet[10:])]) == 1.001  # half of the batches disturbed
    assert lower_decile([0.1, *quiet]) == 1.001  # and one stray reading is no answer
    with pytest.raises(ValueError, match="nothing"):
        lower_decile([])


@pytest.mark.parametrize(
    ("exit_code", "said", "told"),
    [
        (3, "", "ranks 0 left no record: no output, exit code 3"),
        (1, "ImportError: x", "ranks 0 left no record: ImportError: x"),
        (None, "", "ranks 0 left no record, and the job was not over in time: no output"),
        (None, "SignalException", "ranks 0 left no record, and the job was not over in time: SignalException"),
    ],
)
def test_a_job_without_a_record_says_how_it_ended(exit_code, said, told):
    assert CanaryRun(world_size=1, exit_code=exit_code, last_line=said).trouble() == told
