"""`hangdrill preflight` from the command line to its exit code: quiet where all is well, and the roads to 1, 2, 64."""

import json
import os
import sys
from pathlib import Path

import jsonschema
import pytest

from hangdrill.cli import run_command
from hangdrill.model.schema import schema_of

OF_THIS_MACHINE = {
    "py-spy-missing", "py-spy-not-permitted", "py-spy-not-known", "dump-on-tmpfs", "dump-on-container-layer",
    "dump-file-system-full", "grace-not-known",
}  # fmt: skip
"""What may be true where the tests run."""
TORCH = '{"version": "2.15.0", "gpus": 8, "nccl": [2, 30, 7]}'


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean environment, a working directory, a dump directory of one's own and a quick interpreter."""
    for name in list(os.environ):
        if name.startswith(("TORCH", "NCCL", "PET_", "SLURM", "KUBERNETES", "LOCAL_RANK", "HANGDRILL")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dumps").mkdir(mode=0o700)
    (tmp_path / "python").write_text(f"#!/bin/sh\necho '{TORCH}'\n")
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "train.py").write_text(
        'init_process_group("nccl", timeout=timedelta(minutes=5), device_id=torch.device("cuda", local_rank))\n'
    )
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    code = run_command(["preflight", "--json", *arguments])
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema_of("preflight"))
    return code, found


def ids(found: dict) -> set[str]:
    return {finding["id"] for finding in found["findings"]} - OF_THIS_MACHINE


QUICK = ["--python", "./python", "--dump-to", "dumps"]
GOOD = ["--", "HANGDRILL_SOCKETS=/", "torchrun", "--nproc-per-node", "8", "-m", "hangdrill.rank", "train.py"]


def test_a_good_environment_is_quiet_with_the_real_torch(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (clean / "train.py").write_text('import torch.distributed as dist\ndist.init_process_group("gloo")\n')
    before = sorted(clean.rglob("*"))
    options = ["--python", sys.executable, "--dump-to", "dumps", *GOOD]
    _, found = answer(capsys, *options)
    assert ids(found) == set()
    assert found["looked_at"]["backend"] == "gloo (ProcessGroupGloo)"
    assert sorted(clean.rglob("*")) == before  # read-only


def test_a_good_command_is_quiet(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = answer(capsys, *QUICK, *GOOD)
    assert ids(found) == set()
    assert found["looked_at"]["group timeout"] == "300 s"


def test_the_same_without_the_agent_loses_the_culprits_dump(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = answer(capsys, *QUICK, "--", "torchrun", "--nproc-per-node", "8", "train.py")
    assert (code, found["verdict"], ids(found)) == (1, "fail", {"stalled-rank-does-not-dump"})


def test_the_agent_without_its_variable_is_the_script_alone(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = answer(capsys, *QUICK, "--", *GOOD[2:])
    assert (code, ids(found), found["looked_at"]["evidence"]) == (1, {"stalled-rank-does-not-dump"}, "native")


def test_a_sockets_directory_that_is_not_there_is_told(
    clean: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets = clean / "job/sockets"
    monkeypatch.setenv("HANGDRILL_SOCKETS", str(sockets))
    _, found = answer(capsys, *QUICK, "--", *GOOD[2:])
    assert ids(found) == {"sockets-directory-missing"}
    (told,) = [finding for finding in found["findings"] if finding["id"] == "sockets-directory-missing"]
    assert told["mend"].startswith(f"start `hangdrill collect --sockets {sockets} --to EVIDENCE` before the job")
    sockets.mkdir(parents=True)
    assert ids(answer(capsys, *QUICK, "--", *GOOD[2:])[1]) == set()
    sockets.rmdir()
    assert ids(answer(capsys, *QUICK, "--trigger", "native", "--", *GOOD[2:])[1]) == {"stalled-rank-does-not-dump"}


def test_a_scenario_is_judged_by_its_backend_and_road(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = answer(capsys, "quick/ddp-hold", "--python", "./python")
    assert ids(found) == set()
    code, found = answer(capsys, "delivery/native-gloo", "--python", "./python")
    assert (code, ids(found)) == (1, {"no-rank-dumps"})


def test_the_callers_environment_and_the_commands_count(
    clean: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    assert answer(capsys, *QUICK, *GOOD)[0] == 1
    command = ["--", "env", "TORCH_FR_BUFFER_SIZE=100", *GOOD[1:]]
    assert ids(answer(capsys, *QUICK, *command)[1]) == {"recorder-buffer-small"}
    assert ids(answer(capsys, *QUICK, "--", "env", "-u", "TORCH_FR_BUFFER_SIZE", *GOOD[1:])[1]) == set()


def test_the_dump_directory_of_the_variables_is_looked_at(
    clean: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", str(clean / "none" / "fr_"))
    assert ids(answer(capsys, "--python", "./python", *GOOD)[1]) == {"dump-directory-missing"}


def test_without_torch_the_rest_goes_on(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = answer(capsys, "--python", "/no/such", "--dump-to", "none", *GOOD)
    assert ids(found) == {"torch-not-known", "dump-directory-missing"}
    assert code == 2


def test_without_a_job_it_cannot_be_told(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = answer(capsys, *QUICK)
    assert ids(found) == {"backend-not-known"}
    _, found = answer(capsys, *QUICK, "--backend", "nccl", "--trigger", "collector")
    assert ids(found) == set()


def test_the_limits_of_the_command_line_count(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = answer(capsys, *QUICK, "--grace-s", "30", "--kill-after-s", "200", *GOOD)
    assert ids(found) == {"grace-too-short", "killed-before-dump"}


@pytest.mark.parametrize("columns", ["80", "120"])
def test_people_read_the_finding_its_place_its_mend_and_the_verdict(
    clean: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert run_command(["preflight", *QUICK, "--", "TORCH_DIST_USE_NCCL2=false", *GOOD[1:]]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= int(columns)
    text = " ".join(line.strip() for line in lines)
    assert "LOSES EVIDENCE  rollback-misspelled  TORCH_DIST_USE_NCCL2" in text
    assert "mend: set TORCH_DIST_USE_NCCL2=0, or unset it" in text
    assert "FAIL  a hang in this environment would leave less evidence than it should; 1 loses evidence" in text


@pytest.mark.parametrize(
    "arguments",
    [["torchrun", "--nproc-per-node", "8", "train.py"], ["torchrun", "train.py"], ["/v/bin/python3.12", "-m", "x"]],
    ids=" ".join,
)
def test_a_forgotten_double_dash_is_answered_with_the_line_that_was_meant(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run_command(["preflight", *arguments]) == 64
    assert f"put -- before your command: hangdrill preflight -- {' '.join(arguments)}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--no-such", "quick/ddp-hold"], ["--python", "python3", "--no-such"]])
def test_another_wrong_option_is_no_forgotten_double_dash(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run_command(["preflight", *arguments]) == 64
    assert "put --" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["no/such"], ["quick/ddp-hold", "--", "torchrun", "x.py"], ["quick"], ["--trigger", "x"], ["--grace-s", "long"]],
    ids=" ".join,
)
def test_wrong_use_is_64(clean: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run_command(["preflight", *arguments]) == 64
    assert capsys.readouterr().err
