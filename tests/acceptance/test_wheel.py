"""What a stranger installs: the wheel, in an empty environment, outside the checkout; torch is only in the ranks."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(900)]


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environ | environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that holds the built wheel and what it needs, and no torch."""
    directory = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "build", "--outdir", directory / "dist", CHECKOUT, cwd=directory)
    assert built.returncode == 0, built.stdout + built.stderr
    venv.create(directory / "env", with_pip=True)
    python = directory / "env/bin/python"
    (wheel,) = (directory / "dist").glob("*.whl")
    got = run(python, "-m", "pip", "install", "--quiet", wheel, cwd=directory)
    assert got.returncode == 0, got.stderr
    return python


def test_wheel_runs_a_shipped_drill_outside_the_checkout_with_torch_only_in_the_ranks(installed: Path, tmp_path: Path):
    assert run(installed, "-c", "import torch", cwd=tmp_path).returncode != 0
    hangdrill = installed.with_name("hangdrill")
    ran = run(
        hangdrill, "run", "quick/all-reduce-hold", "--python", sys.executable, "--out", tmp_path / "out", cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads((tmp_path / "out/quick/all-reduce-hold/result.json").read_text())
    assert result["verdict"] == "pass"
    assert [culprit["rank"] for culprit in result["diagnosis"]["culprits"]] == result["expected_culprits"]


def test_wheel_ships_scenarios_schemas_and_types(installed: Path, tmp_path: Path):
    hangdrill = installed.with_name("hangdrill")
    listed = run(hangdrill, "list", "--json", cwd=tmp_path)
    names = {item["name"] for item in json.loads(listed.stdout)}
    assert {"quick/ddp-hold", "delivery/native-gloo", "faults/ddp-hold-r0"} <= names
    assert json.loads(run(hangdrill, "schema", "result", cwd=tmp_path).stdout)["$defs"]
    typed = run(
        installed,
        "-c",
        "import hangdrill, pathlib; print(pathlib.Path(hangdrill.__file__).with_name('py.typed').is_file())",
        cwd=tmp_path,
    )
    assert typed.stdout.strip() == "True"
