"""What is read out of a job's command line; and what is not understood is said, never guessed."""

import shlex
from pathlib import Path

import pytest

from hangdrill.model.scenario import Trigger
from hangdrill.preflight.command import job_of_command
from hangdrill.preflight.surroundings import Job


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text('init_process_group("gloo")')
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "main.py").write_text('init_process_group("nccl")')
    return tmp_path


def job(here: Path, text: str, *, gpus: int | None = None, **environ: str) -> Job:
    return job_of_command(shlex.split(text), environ=environ, cwd=here, gpus=gpus)


UNDERSTOOD = [
    "torchrun --nproc-per-node 4 train.py --lr 1",
    "/usr/bin/torchrun --nproc_per_node=4 train.py",
    "torchrun --standalone --nproc-per 4 train.py --nproc-per-node 9",
    "torchrun --nproc-per-node 4 -r 3 -t 3 -- train.py",
    "python -m torch.distributed.run --nproc-per-node 4 train.py",
    "python3.11 -u -m torch.distributed.launch --nproc-per-node=4 train.py",
    "srun --ntasks 1 nice -n 5 torchrun --nproc-per-node 4 train.py",
    "env A=1 torchrun --nproc-per-node 4 train.py",
]


@pytest.mark.parametrize("text", UNDERSTOOD)
def test_forms_of_torchrun_are_understood(here: Path, text: str) -> None:
    found = job(here, text)
    assert (found.launcher, found.nproc_per_node, found.nnodes, found.problem) == ("torchrun", 4, 1, "")
    assert found.script is not None
    assert found.script.inits[0].backends == ("gloo",)


def test_flags_come_from_the_line_then_from_variables_then_from_the_defaults(here: Path) -> None:
    text = "torchrun --max-restarts 2 train.py"
    found = job(here, text, PET_MAX_RESTARTS="5", PET_NNODES="1:4", PET_SHUTDOWN_TIMEOUT="9")
    assert (found.max_restarts, found.nnodes, found.shutdown_timeout_s, found.nproc_per_node) == (2, 4, 9, 1)


def test_variables_before_the_launcher_belong_to_the_job(here: Path) -> None:
    found = job(here, "A=1 env B=2 -u C PET_MAX_RESTARTS=3 torchrun train.py D=4", C="7")
    assert found.variables == {"A": "1", "B": "2", "PET_MAX_RESTARTS": "3"}
    assert found.removed == ("C",)
    assert found.max_restarts == 3


def test_env_i_takes_the_callers_variables_away(here: Path) -> None:
    found = job(here, "env -i PATH=/bin torchrun train.py", PATH="/usr/bin", PET_MAX_RESTARTS="3")
    assert found.removed == ("PET_MAX_RESTARTS",)
    assert (found.variables, found.max_restarts) == ({"PATH": "/bin"}, 0)


def test_a_module_is_looked_for_below_the_working_directory(here: Path) -> None:
    script = job(here, "torchrun -m pkg.main --x").script
    assert script is not None
    assert script.inits[0].backends == ("nccl",)
    script = job(here, "torchrun -m elsewhere.main").script
    assert script is not None
    assert script.problem


@pytest.mark.parametrize("target", ["train.py", "-m pkg.main"])
def test_under_the_rank_agent_the_collector_is_the_road(here: Path, target: str) -> None:
    found = job(here, f"HANGDRILL_SOCKETS=/s torchrun -m hangdrill.rank {target}")
    assert found.trigger is Trigger.COLLECTOR
    assert job(here, f"torchrun -m hangdrill.rank {target}", HANGDRILL_SOCKETS="/s").trigger is Trigger.COLLECTOR
    assert found.script is not None
    assert found.script.inits


def test_the_rank_agent_without_sockets_is_the_script_alone(here: Path) -> None:
    assert job(here, "torchrun -m hangdrill.rank train.py").trigger is Trigger.NATIVE
    taken_away = "env -u HANGDRILL_SOCKETS torchrun -m hangdrill.rank train.py"
    assert job(here, taken_away, HANGDRILL_SOCKETS="/s").trigger is Trigger.NATIVE


def test_a_workload_of_hangdrill_has_no_script(here: Path) -> None:
    found = job(here, "HANGDRILL_SOCKETS=/s torchrun -m hangdrill.rank workload:ddp --steps 3")
    assert (found.script, found.problem, found.trigger) == (None, "", Trigger.COLLECTOR)


def test_python_alone_is_no_torchrun(here: Path) -> None:
    found = job(here, "srun python -X dev -u train.py")
    assert (found.launcher, found.nnodes, found.nproc_per_node, found.problem) == ("", None, None, "")
    assert found.script is not None


def test_a_rank_a_gpu_needs_their_number(here: Path) -> None:
    assert job(here, "torchrun --nproc-per-node gpu train.py", gpus=8).nproc_per_node == 8
    assert job(here, "torchrun --nproc-per-node gpu train.py").nproc_per_node is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bash run.sh", "neither torchrun nor python"),
        ("torchrun", "no script"),
        ("torchrun --nproc-per-node", "has no value"),
        ("torchrun --shiny 4 train.py", "--shiny is not known"),
        ("torchrun --m 4 train.py", "--m is not known"),
        ("torchrun --no-python ./train", "is a program"),
        ("python -c 'import x'", "with -c"),
        ("python", "no script"),
    ],
)
def test_what_is_not_understood_is_said(here: Path, text: str, part: str) -> None:
    assert part in job(here, text).problem
