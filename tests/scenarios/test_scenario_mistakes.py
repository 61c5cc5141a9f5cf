"""Every mistake in a scenario is found, and named with its file, its key and what to write instead."""

from pathlib import Path
from typing import Any

import pytest

from hangdrill.drill.scenario_file import load_file, validate
from hangdrill.model.errors import ExitCode, UsageError


def tables(**changes: dict[str, Any]) -> dict[str, Any]:
    """A right scenario, with keys changed by table; a key that is None is left out."""
    result: dict[str, Any] = {
        "title": "t",
        "job": {"workload": "ddp", "nproc_per_node": 4, "timeout_s": 5},
        "fault": {"kind": "hold", "rank": 1, "before": {"op": "all_reduce", "nth": 4}},
        "recorder": {},
        "expect": {"culprit": 1},
    }
    for table, keys in changes.items():
        merged = {**result[table], **keys}
        result[table] = {key: value for key, value in merged.items() if value is not None}
    return result


def error_of(data: dict[str, Any]) -> UsageError:
    with pytest.raises(UsageError) as caught:
        validate(data, name="x", path=Path("/nowhere/x.toml"))
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value


def test_the_scenario_all_mistakes_are_made_in_is_right() -> None:
    assert validate(tables(), name="x", path=None).scenario.fault.targets == (1,)


HOST_FAULT = {"kind": "link-down", "rank": None, "before": None, "at": "step:3", "node": 1, "interface": "eth0"}
TWO = {"nnodes": 2, "nproc_per_node": 2}
MISTAKES: dict[str, tuple[dict[str, dict[str, Any]], str, str, str]] = {
    # what is wrong: (changes, key, part of what, part of the next step)
    "unknown key": ({"job": {"nproc": 3}}, "job.nproc", "unknown key", "nproc_per_node"),
    "unknown key deep": ({"fault": {"before": {"opp": "x"}}}, "fault.before.opp", "unknown key", "`op`"),
    "key of another table": ({"fault": {"timeout_s": 4}}, "fault.timeout_s", "unknown key", "`job.timeout_s`"),
    "unknown workload": ({"job": {"workload": "dpp"}}, "job.workload", '"dpp"', "`ddp`"),
    "unknown kind": ({"fault": {"kind": "hodl"}}, "fault.kind", '"hodl"', "`hold`"),
    "unknown trigger": ({"recorder": {"trigger": "colector"}}, "recorder.trigger", '"colector"', "`collector`"),
    "unknown dumps": ({"expect": {"dumps": "al"}}, "expect.dumps", '"al"', "`all`"),
    "unknown hang kind": ({"expect": {"kind": "op-missmatch"}}, "expect.kind", "op-missmatch", "`op-mismatch`"),
    "unknown teardown": ({"expect": {"survives": ["job-exti"]}}, "expect.survives[0]", "job-exti", "`job-exit`"),
    "wrong type": ({"job": {"steps": "many"}}, "job.steps", "expected a whole number, got a text", ""),
    "number as text": ({"job": {"timeout_s": "5"}}, "job.timeout_s", "expected a number, got a text", ""),
    "wrong type in list": ({"expect": {"dumps": [0, "1"]}}, "expect.dumps[1]", "whole number", ""),
    "neither workload nor script": ({"job": {"workload": None}}, "job.workload", "neither", "exactly one"),
    "both workload and script": ({"job": {"script": __file__}}, "job.workload", "both", "exactly one"),
    "unknown launcher": ({"job": {"launcher": "slurmm"}}, "job.launcher", '"slurmm"', "`slurm`"),
    "removal without a container": ({"expect": {"survives": ["container-removal"]}}, "expect.survives",
                                    "cannot put a job through", "bwrap"),
    "image without a container": ({"job": {"container": {"image": "train:1"}}}, "job.container.image",
                                  "starts no image", 'launcher = "container"'),
    "image without a name": ({"job": {"launcher": "container", "container": {"image": " "}}}, "job.container.image",
                             "no name", "registry/train:2.15"),
    "Python of an image without a name": ({"job": {"launcher": "container", "container": {"image": "a", "python": ""}}},
                                          "job.container.python", "no name", "python3"),
    "volume without a container": ({"job": {"volumes": ["d:/mnt"]}}, "job.volumes", "starts no container", "bwrap"),
    "sbatch without slurm": ({"job": {"sbatch": ["--qos=x"]}}, "job.sbatch", "submits no batch job", "slurm"),
    "sbatch of hangdrill's own": ({"job": {"launcher": "slurm", "sbatch": ["--nodes=2"]}}, "job.sbatch",
                                  "needs --nodes itself", "--partition"),
    "queue without time": ({"job": {"launcher": "slurm", "queue_s": 0}}, "job.queue_s", "out of bounds", "use"),
    "wipe without slurm": ({"expect": {"survives": ["node-tmp-wipe"]}}, "expect.survives",
                           "cannot put a job through", "slurm"),
    "volume without a target": ({"job": {"launcher": "bwrap", "volumes": ["d"]}}, "job.volumes",
                                "SOURCE:TARGET", "/mnt"),
    "two volumes at one place": ({"job": {"launcher": "bwrap", "volumes": ["a:/m", "b:/m/"]}}, "job.volumes",
                                 "two volumes", "own"),
    "no timeout": ({"job": {"timeout_s": 0}}, "job.timeout_s", "out of bounds", "above 0"),
    "negative timeout": ({"job": {"timeout_s": -1}}, "job.timeout_s", "out of bounds", "above 0"),
    "absurd timeout": ({"job": {"timeout_s": 1e9}}, "job.timeout_s", "out of bounds", "3600"),
    "timeout is no number": ({"job": {"timeout_s": float("nan")}}, "job.timeout_s", "out of bounds", "3600"),
    "one rank": ({"job": {"nproc_per_node": 1}, "fault": {"kind": "none", "rank": None, "before": None},
                  "expect": {"culprit": None}}, "job.nproc_per_node", "out of bounds", "from 2"),
    "too many ranks": ({"job": {"nproc_per_node": 65}}, "job.nproc_per_node", "out of bounds", "64"),
    "two nodes in a container": ({"job": {"nnodes": 2, "launcher": "bwrap"}}, "job.nnodes", "this host", "nnodes = 1"),
    "too many nodes": ({"job": {"nnodes": 65}}, "job.nnodes", "out of bounds", "64"),
    "link of a lone host": ({"fault": HOST_FAULT}, "fault.kind", "the job is on one", "nnodes = 2"),
    "link fault on a rank": ({"job": TWO, "fault": HOST_FAULT | {"rank": 1}}, "fault.ranks", "on no rank", "node"),
    "link fault nowhere": ({"job": TWO, "fault": HOST_FAULT | {"node": None}}, "fault.node", "no host", "0 to 1"),
    "link fault outside": ({"job": TWO, "fault": HOST_FAULT | {"node": 2}}, "fault.node", "outside", "0 to 1"),
    "link fault without a link": ({"job": TWO, "fault": HOST_FAULT | {"interface": None}}, "fault.interface",
                                  "may cut", "eth0"),
    "link with a blank": ({"job": TWO, "fault": HOST_FAULT | {"interface": "eth 0"}}, "fault.interface",
                          "no name", "eth0"),
    "link fault before an operation": ({"job": TWO, "fault": HOST_FAULT | {"at": None, "before": {"op": "all_reduce"}}},
                                       "fault.before", "at a step", "step:3"),
    "torchrun needs no link": ({"job": TWO, "fault": HOST_FAULT | {"kind": "agent-kill"}}, "fault.interface",
                               "no network", "leave"),
    "rendezvous of a lone host": ({"job": {"rdzv_backend": "c10d"}}, "job.rdzv_backend", "on one host", "leave"),
    "hold on a host": ({"fault": {"node": 1}}, "fault.node", "on ranks", "link-down"),
    "no steps": ({"job": {"steps": 0}}, "job.steps", "out of bounds", "from 1"),
    "odd mesh": ({"job": {"workload": "mesh-2d", "nproc_per_node": 3}}, "job.nproc_per_node", "even", "use 4"),
    "rank too high": ({"fault": {"rank": 4}}, "fault.rank", "rank 4 is outside the world of 4", "0 to 3"),
    "rank below zero": ({"fault": {"rank": -1}}, "fault.rank", "rank -1 is outside", "0 to 3"),
    "fault on nobody": ({"fault": {"rank": None}}, "fault.rank", "no rank", "fault.rank"),
    "rank and ranks": ({"fault": {"ranks": [2]}}, "fault.ranks", "both", "alone"),
    "fault on everybody": ({"fault": {"rank": None, "ranks": [0, 1, 2, 3]}}, "fault.ranks", "none is left", "one rank"),
    "none with a rank": ({"fault": {"kind": "none", "before": None}}, "fault.ranks", "no fault", "fault.kind"),
    "none with a place": ({"fault": {"kind": "none", "rank": None}}, "fault.before", "no fault", "fault.kind"),
    "two places": ({"fault": {"at": "init"}}, "fault.at", "both", "one"),
    "no place": ({"fault": {"before": None}}, "fault.before", "no place", "all_reduce"),
    "a change without an operation": ({"fault": {"kind": "skip", "before": None, "at": "init"}}, "fault.at",
                                      "needs one", "fault.before"),
    "dataloader elsewhere": ({"fault": {"kind": "dataloader"}}, "fault.before", "worker", "leave"),
    "a GPU fault on gloo": ({"fault": {"kind": "oom"}}, "fault.kind", "needs a GPU", ""),
    "the store on another rank": ({"fault": {"kind": "store-death", "rank": 1}}, "fault.rank", "rank 0", ""),
    "destroyed at init": ({"fault": {"kind": "in-destroy", "before": None, "at": "init"}}, "fault.at", "nothing", ""),
    "unknown place": ({"fault": {"before": None, "at": "destory"}}, "fault.at", '"destory"', "`destroy`"),
    "step from zero": ({"fault": {"before": None, "at": "step:0"}}, "fault.at", '"step:0"', "`step:1`"),
    "step beyond the end": ({"fault": {"before": None, "at": "step:13"}}, "fault.at", "12 steps", "job.steps"),
    "unknown operation": ({"fault": {"before": {"op": "allreduce"}}}, "fault.before.op", '"allreduce"', "`all_reduce`"),
    "operation zero": ({"fault": {"before": {"nth": 0}}}, "fault.before.nth", "from 1", "nth = 1"),
    "barrier's shape": ({"fault": {"kind": "wrong-shape", "before": {"op": "barrier"}}}, "fault.before.op", "no tensor",
                        "another"),
    "nameless group": ({"fault": {"before": {"group": ""}}}, "fault.before.group", "no name", "default_pg"),
    "group outside": ({"fault": {"before": {"group": [1, 9]}}}, "fault.before.group", "rank 9", "0 to 3"),
    "no member": ({"fault": {"before": {"group": [2, 3]}}}, "fault.before.group", "rank 1 is no member", "add"),
    "delay of a hold": ({"fault": {"delay_s": 1}}, "fault.delay_s", "no delay", "slow"),
    "slow as a hang": ({"fault": {"kind": "slow", "delay_s": 4}}, "fault.delay_s", "between 0 and 4", "1.5"),
    "negative buffer": ({"recorder": {"buffer_size": -1}}, "recorder.buffer_size", "out of bounds", "entries"),
    "nameless dump_to": ({"recorder": {"dump_to": ""}}, "recorder.dump_to", "no name", "leave"),
    "no interval": ({"recorder": {"debug_server_interval_s": 0}}, "recorder.debug_server_interval_s", "bounds", "0"),
    "culprit twice": ({"expect": {"culprits": [1]}}, "expect.culprits", "as well", "alone"),
    "culprit outside": ({"expect": {"culprit": 7}}, "expect.culprit", "rank 7", "0 to 3"),
    "dumps outside": ({"expect": {"dumps": [0, 4]}}, "expect.dumps", "rank 4", "0 to 3"),
    "dumps twice": ({"expect": {"dumps": [0, 0]}}, "expect.dumps", "twice", "once"),
    "kind without culprits": ({"expect": {"culprit": None, "culprits": [], "kind": "rank-absent"}}, "expect.kind",
                              "no culprit", "leave"),
    "too soon": ({"expect": {"within_s": 4.5}}, "expect.within_s", "shorter than the timeout of 5 s", "at least 5"),
    "never": ({"expect": {"within_s": float("inf")}}, "expect.within_s", "finite", "25"),
    "another teardown": ({"expect": {"survives": ["pod-deletion"]}}, "expect.survives", "cannot put a job through",
                         "kubernetes"),
    "no restart to survive": ({"expect": {"survives": ["restart"]}}, "expect.survives", "no restart", "max_restarts"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_file_key_and_remedy(name: str) -> None:
    changes, key, what, remedy = MISTAKES[name]
    error = error_of(tables(**changes))
    assert error.where == f"/nowhere/x.toml: {key}"
    assert what in error.what
    assert remedy in error.next_step


def test_rank_zero_is_a_rank() -> None:
    named = validate(tables(fault={"rank": 0}, expect={"culprit": 0}), name="x", path=None)
    assert (named.scenario.fault.targets, named.scenario.expect.expected_culprits) == ((0,), (0,))


def test_an_unknown_key_is_offered_all_when_none_is_near() -> None:
    assert error_of(tables(recorder={"zzz": 1})).next_step.startswith("use one of: trigger, buffer_size")


def test_a_missing_key_is_named() -> None:
    data = tables()
    del data["title"]
    assert error_of(data).where.endswith(": title")


def test_a_mistake_in_a_file_has_its_line_and_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text('title = "t"\n[job]\nworkload = "ddp"\nnproc = 3\n\n[fault]\nkind = "hodl"\n')
    with pytest.raises(UsageError) as caught:
        load_file(file)
    text = str(caught.value)
    assert "2 mistakes" in text
    assert f"{file}:4: job.nproc: unknown key" in text
    assert f'{file}:7: fault.kind: unknown value "hodl" (did you mean `hold`?)' in text


def test_broken_toml_is_an_error_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("title = \n")
    with pytest.raises(UsageError, match=r"broken\.toml: not valid TOML: .*line 1"):
        load_file(file)


def test_send_in_a_workload_without_point_to_point_is_allowed_and_warned_of() -> None:
    named = validate(tables(fault={"before": {"op": "send"}}), name="x", path=None)
    assert "send never comes" in named.warnings[0]
    assert validate(tables(), name="x", path=None).warnings == ()


def test_a_script_is_looked_for_beside_its_scenario_then_in_the_working_directory(tmp_path: Path) -> None:
    beside, cwd = tmp_path / "beside", tmp_path / "cwd"
    for folder in (beside, cwd):
        folder.mkdir()
    (cwd / "train.py").touch()
    data = tables(job={"workload": None, "script": "train.py"})

    def found() -> str | None:
        return validate(data, name="x", path=beside / "x.toml", cwd=cwd).scenario.job.script

    assert found() == str(cwd / "train.py")
    (beside / "train.py").touch()
    assert found() == str(beside / "train.py")
    (beside / "train.py").unlink()
    (cwd / "train.py").unlink()
    with pytest.raises(UsageError) as caught:
        found()
    assert caught.value.where.endswith("job.script")
    assert str(cwd) in caught.value.next_step


def test_a_number_of_thousands_of_digits_is_the_users_mistake(tmp_path):
    path = tmp_path / "long.toml"
    path.write_text(f'title = "t"\n[job]\nnproc_per_node = {"9" * 5000}\n')
    with pytest.raises(UsageError, match="not valid TOML"):
        load_file(path)


@pytest.mark.parametrize(
    ("script", "offered"),
    [
        ("trian.py", "did you mean `train.py`? Looked in "),
        ("own/tarin_ddp.py", "did you mean `own/train_ddp.py`? Looked "),
    ],
)
def test_a_misspelt_script_is_answered_with_the_one_that_was_meant(tmp_path: Path, script: str, offered: str) -> None:
    (tmp_path / "own").mkdir()
    for name in ("train.py", "train.sh", "other.py", "own/train_ddp.py"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError) as caught:
        validate(tables(job={"workload": None, "script": script}), name="x", path=None, cwd=tmp_path)
    assert caught.value.next_step.startswith(offered)


def test_a_script_with_nothing_like_it_is_offered_none(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    for script in ("zzz.py", "none/train.py"):
        with pytest.raises(UsageError) as caught:
            validate(tables(job={"workload": None, "script": script}), name="x", path=None, cwd=tmp_path)
        assert caught.value.next_step == f"looked in {tmp_path}"
