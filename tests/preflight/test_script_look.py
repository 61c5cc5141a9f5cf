"""What is read out of a training script: literals and nothing else; what is decided at run time stays unknown."""

from pathlib import Path

import pytest

from hangdrill.preflight.script import look_at_script, read_script
from hangdrill.preflight.surroundings import InitCall, Script


def look(text: str) -> Script:
    return look_at_script(text, "t.py")


def init(arguments: str, before: str = "") -> InitCall:
    (call,) = look(f"{before}\nimport torch.distributed as dist\ndist.init_process_group({arguments})").inits
    return call


@pytest.mark.parametrize(
    ("arguments", "before", "backends"),
    [
        ("", "", ()),
        ("None", "", ()),
        ('"nccl"', "", ("nccl",)),
        ('backend="NCCL"', "", ("nccl",)),
        ("BACKEND", 'BACKEND = "gloo"', ("gloo",)),
        ("BACKEND", 'BACKEND = "gloo"\nBACKEND = "nccl"', None),
        ("args.backend", "", None),
        ("**options", "", None),
        ('"nccl", **options', "", ("nccl",)),
        ('f"{x}"', "", None),
    ],
)
def test_the_backend_is_a_literal_or_not_known(arguments: str, before: str, backends: tuple[str, ...] | None) -> None:
    assert init(arguments, before).backends == backends


MAIN = """
import torch.distributed as dist
def main({parameter}):
    {before}
    dist.init_process_group(backend)
"""


@pytest.mark.parametrize(
    ("parameter", "before", "backends"),
    [
        ("", 'backend = "nccl" if torch.cuda.is_available() else "gloo"', ("nccl", "gloo")),
        ("", 'backend = "gloo"', ("gloo",)),
        ("", 'backend = "gloo"; backend = "nccl"', None),
        ("backend", "pass", None),
        ("backend", 'backend = backend or "gloo"', None),
        ("", "from settings import backend", None),
        ("", 'from settings import backend; backend = "gloo"', None),
    ],
)
def test_a_name_of_a_function_counts_when_it_has_one_value(
    parameter: str, before: str, backends: tuple[str, ...] | None
) -> None:
    (call,) = look(MAIN.format(parameter=parameter, before=before)).inits
    assert call.backends == backends


def test_a_choice_by_gpu_is_two_backends() -> None:
    call = init('"nccl" if torch.cuda.is_available() else "gloo"')
    assert (call.backends, call.by_gpu) == (("nccl", "gloo"), True)
    call = init('"nccl" if args.fast else "gloo"')
    assert (call.backends, call.by_gpu) == (("nccl", "gloo"), False)


@pytest.mark.parametrize(
    ("arguments", "before", "timeout_s", "dynamic"),
    [
        ('"nccl"', "", None, False),
        ("timeout=None", "", None, False),
        ("timeout=timedelta(seconds=90)", "", 90.0, False),
        ("timeout=datetime.timedelta(0, 90)", "", 90.0, False),
        ("timeout=timedelta(minutes=2, seconds=5)", "", 125.0, False),
        ("timeout=timedelta(seconds=60 * 60)", "", 3600.0, False),
        ('"nccl", None, timedelta(seconds=7)', "", 7.0, False),
        ("timeout=LIMIT", "LIMIT = timedelta(seconds=WAIT_S)\nWAIT_S = 30", 30.0, False),
        ("timeout=timedelta(seconds=args.timeout)", "", None, True),
        ("timeout=args.timeout", "", None, True),
        ("**options", "", None, True),
        ("timeout=LIMIT", "LIMIT = LIMIT", None, True),
    ],
)
def test_the_timeout_is_a_literal_or_dynamic(
    arguments: str, before: str, timeout_s: float | None, dynamic: bool
) -> None:
    call = init(arguments, before)
    assert (call.timeout_s, call.timeout_dynamic) == (timeout_s, dynamic)


def test_device_id_is_there_or_not_or_not_seen() -> None:
    assert init("device_id=device").has_device_id is True
    assert init('"nccl"').has_device_id is False
    assert init('"nccl", **options').has_device_id is None


def test_constant_gpus_are_seen_and_local_rank_is_not_one() -> None:
    script = look(
        'torch.cuda.set_device(0)\nx.to("cuda:1")\ntorch.device("cuda", 2)\ntorch.cuda.set_device(local_rank)'
    )
    assert [(each.line, each.index) for each in script.devices] == [(1, 0), (2, 1), (3, 2)]
    assert not look('x.to("cuda")\nx.to(f"cuda:{local_rank}")\ntorch.device("cuda", int(os.environ["A"]))').devices


def test_a_test_for_the_old_class_is_seen() -> None:
    assert [each.line for each in look("isinstance(pg, dist.ProcessGroupNCCL)").class_tests] == [1]
    assert look("isinstance(pg, (ProcessGroupNCCL, ProcessGroupGloo))").class_tests
    assert not look("isinstance(pg, (ProcessGroupNCCL, ProcessGroupNCCL2))").class_tests
    assert not look("isinstance(pg, ProcessGroupGloo)").class_tests


GUARD = 'if __name__ == "__main__":\n    '


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("start_debug_server()", False),
        (f"def main():\n    start_debug_server()\n{GUARD}main()", True),
        ("def main():\n    start_debug_server()\nmain()", False),
        (f"{GUARD}start_debug_server()", True),
        (f"if True:\n    start_debug_server()\n{GUARD}pass", False),
    ],
)
def test_a_debug_server_is_guarded_or_not(text: str, guarded: bool) -> None:
    (call,) = look(text).debug_servers
    assert call.guarded is guarded


@pytest.mark.parametrize(
    ("arguments", "interval_s", "has_dump_dir"),
    [
        ("", 60.0, False),
        ("dump_dir=None", 60.0, False),
        ('dump_dir="/d", dump_interval=5', 5.0, True),
        ('25999, 0, "spawn", "/d", 2.5', 2.5, True),
        ("dump_dir=where, dump_interval=often", None, True),
        ("**options", None, None),
    ],
)
def test_the_debug_servers_arguments(arguments: str, interval_s: float | None, has_dump_dir: bool | None) -> None:
    (call,) = look(f"start_debug_server({arguments})").debug_servers
    assert (call.interval_s, call.has_dump_dir) == (interval_s, has_dump_dir)


@pytest.mark.parametrize("source", [b"def (", b"\xff\xfe", b"a\0b", b"(" * 5000, b"-" * 200_000 + b"1"])
def test_what_is_not_python_is_a_problem_and_no_crash(source: bytes) -> None:
    assert "not parsed" in look_at_script(source, "t.py").problem


def test_a_script_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ninit_process_group('nccl')")
    assert read_script(tmp_path / "t.py").inits
    assert not (tmp_path / "ran").exists()


def test_a_script_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    assert "No such file" in read_script(tmp_path / "none.py").problem
    assert read_script(tmp_path).problem
