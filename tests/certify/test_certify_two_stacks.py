"""A small certification with real second environments, in one command; signed, verified, and refused as it must be.

The candidate is an environment that sees the packages of the Python that runs the tests, so that one of its packages
can be changed without touching that one.
"""

import json
import sysconfig
import venv
from pathlib import Path

import pytest
from checkpoint_cases import stack_of

from hangdrill.cli import run_command

pytestmark = pytest.mark.torchrun


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    """The site-packages of the candidate's own."""
    venv.create(tmp_path / "candidate", with_pip=False, symlinks=True)
    (packages,) = (tmp_path / "candidate/lib").glob("python*/site-packages")
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return packages


def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, tuple[str, str]]:
    words = ["verify", str(tmp_path / "out/receipt.dsse.json"), "--key", str(tmp_path / "key.pub"), "--json", *more]
    assert run_command(words) in (1, 2)  # never 0: a part of the matrix is left out, and nothing left out passes
    answers = json.loads(capsys.readouterr().out)["answers"]
    return {one["question"]: (one["verdict"], one["detail"]) for one in answers}


def test_a_certification_of_two_real_stacks_is_signed_and_refused_after_one_change(
    tmp_path: Path, candidate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'title = "up"\ndeclared = ["torch", "nccl", "package:*"]\n'
        f'[baseline]\npython = "{stack_of("2.13.0")}"\n[candidate]\npython = "candidate/bin/python"\n'
        '[workload]\ntimeout_s = 5\n[rollback]\nowner = "Kim"\n'
    )
    assert run_command(["keygen", str(tmp_path / "key")]) == 0
    words = [
        "certify",
        str(plan),
        "--only",
        "controls",
        "--out",
        str(tmp_path / "out"),
        "--sign",
        str(tmp_path / "key"),
    ]
    assert run_command(words) == 2, capsys.readouterr().out
    receipt = json.loads((tmp_path / "out/receipt.json").read_bytes())
    assert [control["got"] for control in receipt["controls"]] == ["fail"]
    assert receipt["baseline"]["fingerprint"]["torch"].startswith("2.13.0")
    assert {line["verdict"] for line in receipt["lines"] if line["id"].startswith("stack/")} == {"pass"}
    capsys.readouterr()

    good = verify(tmp_path, capsys)
    assert {name: answer[0] for name, answer in good.items()} == {
        "signature": "pass",
        "dates": "pass",
        "stack": "pass",
        "evidence": "pass",
        "verdict": "unknown",
    }
    assert verify(tmp_path, capsys, "--no-stack", "--at", "2099-01-01")["dates"][0] == "fail"

    changed = candidate / "numpy-99.0.dist-info"
    changed.mkdir()
    (changed / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 99.0\n")
    verdict, detail = verify(tmp_path, capsys)["stack"]
    assert verdict == "fail"
    assert "package:numpy" in detail
    assert "99.0" in detail

    envelope = tmp_path / "out/receipt.dsse.json"
    data = bytearray(envelope.read_bytes())
    data[len(data) // 2] ^= 1
    envelope.write_bytes(data)
    assert verify(tmp_path, capsys)["signature"][0] == "fail"
