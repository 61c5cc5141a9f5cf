"""What hangdrill promises, by its own command on real torchrun jobs: each test is one sentence of the README."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

CHECKOUT = Path(__file__).parents[2]

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(600)]


def hangdrill(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": str(CHECKOUT), "COLUMNS": "200"}
    command = [sys.executable, "-m", "hangdrill", *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)


def result_of(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "result.json").read_text())


def check_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    return next(check for check in result["checks"] if check["name"] == name)


def test_held_rank_of_four_is_named_from_four_dumps_whose_numbers_the_agents_confirm(tmp_path: Path):
    ran = hangdrill("run", "quick/ddp-hold", "--out", tmp_path, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = result_of(tmp_path / "quick/ddp-hold")
    assert result["verdict"] == "pass"
    assert [(one["rank"], one["basis"]) for one in result["diagnosis"]["culprits"]] == [(1, "observed")]
    assert check_of(result, "every-rank-dumped")["ranks"] == dict.fromkeys("0123", "pass")
    assert check_of(result, "sequence-ids")["ranks"] == dict.fromkeys("0123", "pass")
    assert "rank 1 never entered all_reduce" in ran.stdout
    again = hangdrill("check", tmp_path / "quick/ddp-hold", cwd=tmp_path)
    assert again.returncode == 0
    assert result_of(tmp_path / "quick/ddp-hold") == result


def test_same_job_with_torch_alone_fails_with_the_reason_and_the_mend(tmp_path: Path):
    ran = hangdrill("run", "delivery/native-gloo", "--out", tmp_path, cwd=tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    check = check_of(result_of(tmp_path / "delivery/native-gloo"), "every-rank-dumped")
    assert check["verdict"] == "fail"
    assert check["detail"].startswith("0 of 4 dumps arrived")
    assert "gloo has no abort hook" in check["detail"]
    assert "collector" in check["mend"]


def test_quick_set_passes_as_a_whole(tmp_path: Path):
    ran = hangdrill("run", "-j", "2", "--out", tmp_path, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert len(summary["results"]) >= 8
    assert {result["verdict"] for result in summary["results"]} == {"pass"}


def test_public_style_script_is_drilled_unchanged(tmp_path: Path):
    script = CHECKOUT / "docs/examples/train_ddp.py"
    assert "hangdrill.rank" not in script.read_text()
    options = ("--nproc", "3", "--hold", "2", "--before", "all_reduce:20", "--timeout-s", "5")
    ran = hangdrill("run", "--script", script, *options, "--out", tmp_path, "--json", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (result_file,) = tmp_path.rglob("result.json")
    result = result_of(result_file.parent)
    assert [culprit["rank"] for culprit in result["diagnosis"]["culprits"]] == [2]
    assert "train_ddp.py:" in result["sentence"]


@pytest.mark.parametrize("name", ["delivery/restart", "delivery/process-kill"])
def test_dumps_outlive_what_ends_the_job(name: str, tmp_path: Path):
    ran = hangdrill("run", name, "--out", tmp_path, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_what_a_drill_writes_validates_against_the_published_schemas(tmp_path: Path):
    ran = hangdrill("run", "quick/all-reduce-hold", "--out", tmp_path, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    run_dir = tmp_path / "quick/all-reduce-hold"
    for schema_name, file in (("result", run_dir / "result.json"), ("manifest", run_dir / "evidence/manifest.json")):
        schema = json.loads(hangdrill("schema", schema_name, cwd=tmp_path).stdout)
        jsonschema.validate(json.loads(file.read_text()), schema)
    diagnosed = hangdrill("diagnose", run_dir / "evidence", "--json", cwd=tmp_path)
    assert diagnosed.returncode == 1, diagnosed.stderr
    jsonschema.validate(json.loads(diagnosed.stdout), json.loads(hangdrill("schema", "diagnosis", cwd=tmp_path).stdout))
