"""`hangdrill stack`, `certify`, `verify`, `keygen` and `compare` as a user calls them: their words and exit codes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from fake_pythons import fake_python
from sample_receipts import line, receipt

from hangdrill.certify.key_files import key_id_of
from hangdrill.certify.out import LOCK, locked
from hangdrill.certify.signing import sign_receipt, signed_by
from hangdrill.cli import run_command
from hangdrill.drill.waiting import Waiter
from hangdrill.model.errors import UsageError
from hangdrill.model.verdict import Verdict

NOBODY = 65534


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan of two stacks that answer at once; one of them has no torch, so that no cell can run."""
    baseline, candidate = fake_python(tmp_path / "a/python"), fake_python(tmp_path / "b/python", torch="", torch_git="")
    file = tmp_path / "plan.toml"
    file.write_text(
        f'title = "up"\n[baseline]\npython = "{baseline}"\n[candidate]\npython = "{candidate}"\n'
        '[rollback]\nowner = "Kim"\n'
    )
    return file


def test_stack_prints_the_fingerprint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = fake_python(tmp_path / "python")
    assert run_command(["stack", python]) == 0
    text = capsys.readouterr().out
    for wanted in ("2.15.0+cu132", "d0f2af8b66b2", "2 x NVIDIA H200", "580.95", "2.30.7", "NCCL_DEBUG"):
        assert wanted in text
    assert run_command(["stack", python, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], len(found["digest"])) == ("hangdrill.fingerprint/1", 64)


@pytest.mark.parametrize("changed", [{"torch": ""}, {"torch_error": "ImportError: libnccl"}, {"torch": "2.9.1"}])
def test_a_stack_that_no_job_can_run_on_is_75_and_still_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, str]
) -> None:
    assert run_command(["stack", fake_python(tmp_path / "python", **changed)]) == 75
    told = capsys.readouterr()
    assert "numpy" not in told.out
    assert "packages" in told.out
    assert "next:" in told.err


def test_a_missing_stack_is_75(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["stack", "/nowhere/python"]) == 75
    assert "there is no Python at /nowhere/python" in capsys.readouterr().err


def test_a_dry_run_prints_the_matrix_and_starts_nothing(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert run_command(["certify", str(plan), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "controls/recorder-off" in text
    assert "Nothing was started" in text
    assert sorted(tmp_path.rglob("*")) == before
    assert run_command(["certify", str(plan), "--dry-run", "--only", "controls", "--json"]) == 0
    assert [cell["id"] for cell in json.loads(capsys.readouterr().out)["cells"]] == ["controls/recorder-off"]


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_dry_run_takes_no_time_for_what_is_left_out(
    plan: Path, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    def seconds(measures: str, *only: str) -> dict[str, float]:
        changed = plan.with_name("changed.toml")
        changed.write_text(f'{measures}\n{plan.read_text()}[workload]\nbackend = "{backend}"\n')
        assert run_command(["certify", str(changed), "--dry-run", "--json", *only]) == 0
        found = json.loads(capsys.readouterr().out)
        return {cell["id"]: cell["estimate_s"] for cell in found["cells"]} | {"all": found["estimate_s"]}

    every, one = seconds(""), seconds('measures = ["memory-peak"]')
    assert 0 < one["canary/stacks"] < every["canary/stacks"]
    assert one["drills/alone"] == every["drills/alone"]
    alone = seconds("", "--only", "drills/alone")
    assert set(alone) == {"drills/alone", "all"}
    assert every["all"] - alone["all"] == pytest.approx(sum(every.values()) - every["all"] - alone["drills/alone"])


def test_a_dry_run_names_the_stacks_without_dots(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    up = plan.parent / "upgrade"
    up.mkdir()
    (up / "plan.toml").write_text(
        'title = "up"\n[baseline]\npython = "../a/python"\n[candidate]\npython = "../b/python"\n'
    )
    assert run_command(["certify", str(up / "plan.toml"), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert str(plan.parent / "a/python") in told
    assert ".." not in told


def test_a_plan_whose_candidate_has_no_torch_ends_unknown_with_all_its_pages(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run_command(["certify", str(plan), "--out", str(out)]) == 2
    assert "has no torch" in capsys.readouterr().out
    for name in ("receipt.json", "checklist.md", "checklist.html", "plan.toml"):
        assert (out / name).is_file()
    assert not (out / "receipt.dsse.json").exists()


def test_a_signed_certification_is_verified_and_refused(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, out = tmp_path / "key.pem", tmp_path / "out"
    assert run_command(["keygen", str(key)]) == 0
    assert run_command(["keygen", str(key)]) == 64
    run_command(["certify", str(plan), "--out", str(out), "--sign", str(key)])
    capsys.readouterr()
    words = ["verify", str(out / "receipt.dsse.json"), "--key", f"{key}.pub", "--json"]
    assert run_command(words) in (1, 2)  # it is no PASS
    answers = {one["question"]: one["verdict"] for one in json.loads(capsys.readouterr().out)["answers"]}
    assert {answers[name] for name in ("signature", "dates", "stack", "evidence")} == {"pass"}
    assert run_command([*words, "--at", "2099-01-01"]) == 1
    assert run_command([*words, "--at", "tomorrow"]) == 64


@pytest.mark.parametrize("verdict", list(Verdict), ids=lambda verdict: verdict.value)
def test_verify_ends_with_the_verdict(tmp_path: Path, verdict: Verdict, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["keygen", str(tmp_path / "k")])
    signed = sign_receipt(receipt(verdict=verdict), tmp_path / "k", passphrase=lambda: None)
    (tmp_path / "r.json").write_bytes(signed)
    words = ["verify", str(tmp_path / "r.json"), "--key", str(tmp_path / "k.pub"), "--no-stack", "--at", "2026-12-01"]
    assert run_command(words) == verdict.exit_code
    assert verdict.value.upper() in capsys.readouterr().out


def test_verify_and_sign_take_the_directory_and_say_what_an_unsigned_receipt_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("k", "l"):
        run_command(["keygen", str(tmp_path / key)])
    words = ["--key", str(tmp_path / "k.pub"), "--no-stack", "--at", "2026-12-01"]
    out = tmp_path / "out"
    out.mkdir()
    (out / "receipt.json").write_bytes(msgspec.json.encode(receipt(verdict=Verdict.PASS)))
    assert run_command(["verify", str(out), *words]) == 64
    assert "no signed receipt in it" in capsys.readouterr().err
    assert run_command(["verify", str(out / "receipt.json"), *words]) == 1
    assert "this receipt has no signature" in capsys.readouterr().out
    signed = sign_receipt(receipt(verdict=Verdict.PASS), tmp_path / "k", passphrase=lambda: None)
    (out / "receipt.dsse.json").write_bytes(signed)
    assert run_command(["verify", str(out), *words]) == 0
    assert run_command(["sign", str(out), "--key", str(tmp_path / "l")]) == 0
    assert run_command(["verify", str(out), *words, "--key", str(tmp_path / "l.pub")]) == 0


def test_a_second_person_signs_the_receipt_and_verify_wants_both(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engineer, owner, third = (str(tmp_path / name) for name in ("engineer", "owner", "third"))
    out, file = tmp_path / "out", str(tmp_path / "out" / "receipt.dsse.json")
    for key in (engineer, owner, third):
        assert run_command(["keygen", key]) == 0
    words = ["verify", file, "--no-stack", "--json", "--key", f"{engineer}.pub", "--key", f"{owner}.pub"]

    def signature(*more: str) -> str:
        capsys.readouterr()
        run_command([*words, *more])
        return str(json.loads(capsys.readouterr().out)["answers"][0]["verdict"])

    certified = ["certify", str(plan), "--out", str(out)]
    assert run_command([*certified, "--sign", engineer, "--sign", engineer]) == 64
    run_command([*certified, "--sign", engineer])
    assert signature() == "fail"
    assert run_command(["sign", file, "--key", owner]) == 0
    assert (signature(), signature("--threshold", "1")) == ("pass", "pass")
    assert key_id_of(tmp_path / "owner.pub") in (out / "checklist.md").read_text()
    assert run_command(["sign", file, "--key", owner]) == 64
    assert run_command(["sign", str(out / "receipt.json"), "--key", third]) == 64
    assert (signature("--key", f"{third}.pub"), signature("--key", f"{third}.pub", "--threshold", "2")) == (
        "fail",
        "pass",
    )
    run_command([*certified, "--resume", "--sign", owner, "--sign", engineer])
    assert signature() == "pass"


def test_two_signatures_at_once_do_not_lose_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key in ("k", "l"):
        assert run_command(["keygen", str(tmp_path / key)]) == 0
    file = tmp_path / "r.json"
    file.write_bytes(sign_receipt(receipt(), tmp_path / "k", passphrase=lambda: None))
    before, words = file.read_bytes(), ["sign", str(file), "--key", str(tmp_path / "l")]
    with locked(tmp_path):
        assert run_command(words) == 64
        assert "another hangdrill works in this directory" in capsys.readouterr().err
    assert file.read_bytes() == before
    assert run_command(words) == 0
    assert run_command(["sign", str(tmp_path / "gone" / "r.json"), "--key", str(tmp_path / "l")]) == 64
    assert not (tmp_path / "gone").exists()


def test_who_is_asked_for_a_passphrase_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def passphrase(key: Path) -> bytes:
        asked.append(key)
        if asked == [tmp_path / "l"]:  # meanwhile somebody else signs
            assert run_command(["sign", str(file), "--key", str(tmp_path / "m")]) == 0
        return b"of mine"

    monkeypatch.setenv("HANGDRILL_KEY_PASSPHRASE", "of mine")
    for key in ("k", "l", "m"):
        assert run_command(["keygen", str(tmp_path / key), "--encrypt"]) == 0
    file = tmp_path / "r.json"
    file.write_bytes(sign_receipt(receipt(), tmp_path / "k", passphrase=lambda: b"of mine"))
    monkeypatch.setattr(sys.modules["hangdrill.cli.certify"], "passphrase", passphrase)
    assert run_command(["sign", str(file), "--key", str(tmp_path / "l")]) == 0
    assert signed_by(file.read_bytes()).split(", ") == [key_id_of(tmp_path / f"{key}.pub") for key in "kml"]
    assert asked == [tmp_path / "l", tmp_path / "m"]


@pytest.fixture
def shared_directory() -> Iterator[Path]:
    """In which everybody may write."""
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


@pytest.fixture
def as_somebody_else() -> Iterator[Callable[[], None]]:
    """Of whom the user root is none: root may write what it may not."""
    yield lambda: os.seteuid(NOBODY) if os.geteuid() == 0 else None
    os.seteuid(os.getuid())


def test_a_lock_file_of_somebody_else_is_a_lock_all_the_same(
    shared_directory: Path, as_somebody_else: Callable[[], None]
) -> None:
    """The first who signed has left it; the second must be able to."""
    with locked(shared_directory):
        (shared_directory / LOCK).chmod(0o444)
        as_somebody_else()
        with pytest.raises(UsageError, match="another hangdrill works"), locked(shared_directory):
            pass
    with pytest.raises(PermissionError):
        (shared_directory / LOCK).open("r+")
    with (
        locked(shared_directory),
        pytest.raises(UsageError, match="another hangdrill works"),
        locked(shared_directory),
    ):
        pass
    with locked(shared_directory):
        pass


@pytest.mark.parametrize("expired", [True, False])
def test_who_signs_an_expired_receipt_is_told(
    tmp_path: Path, expired: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("engineer", "owner"):
        assert run_command(["keygen", str(tmp_path / name)]) == 0
    until = "2026-01-02T00:00:00Z" if expired else "2999-01-02T00:00:00Z"
    dated = receipt(made_at="2026-01-01T00:00:00Z", valid_until=until)
    file = tmp_path / "r.json"
    file.write_bytes(sign_receipt(dated, tmp_path / "engineer", passphrase=lambda: None))
    assert run_command(["sign", str(file), "--key", str(tmp_path / "owner")]) == 0
    assert ("it has expired" in capsys.readouterr().err) == expired


@pytest.mark.parametrize("words", [["--sign", "none.pem"], ["--only", "nonsense"], ["--resume"]], ids=" ".join)
def test_wrong_use_of_certify_is_64_before_anything_runs(plan: Path, tmp_path: Path, words: list[str]) -> None:
    out = ["--out", str(tmp_path / "out")] if words != ["--resume"] else []
    assert run_command(["certify", str(plan), *words, *out]) == 64
    assert not (tmp_path / "out" / "receipt.json").exists()


def test_compare_ends_with_what_got_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for home, verdict in ((good, Verdict.PASS), (bad, Verdict.FAIL)):
        home.mkdir()
        (home / "receipt.json").write_bytes(msgspec.json.encode(receipt(lines=(line(verdict=verdict),))))
    assert run_command(["compare", str(good), str(good / "receipt.json")]) == 0
    assert run_command(["compare", str(good), str(bad)]) == 1
    assert "canary/dp/init-time/worse" in capsys.readouterr().out
    assert run_command(["compare", str(bad), str(good), "--json"]) == 0


def test_an_encrypted_key_signs_with_the_passphrase_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hangdrill.cli.certify import passphrase

    monkeypatch.setenv("HANGDRILL_KEY_PASSPHRASE", "open sesame")
    assert run_command(["keygen", str(tmp_path / "k"), "--encrypt"]) == 0
    assert b"ENCRYPTED" in (tmp_path / "k").read_bytes()
    assert sign_receipt(receipt(), tmp_path / "k", passphrase=passphrase)


def test_a_wrong_passphrase_is_said_before_anything_runs(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HANGDRILL_KEY_PASSPHRASE", "open sesame")
    assert run_command(["keygen", str(tmp_path / "k"), "--encrypt"]) == 0
    monkeypatch.setenv("HANGDRILL_KEY_PASSPHRASE", "sesame")
    assert run_command(["certify", str(plan), "--out", str(tmp_path / "out"), "--sign", str(tmp_path / "k")]) == 64
    assert "passphrase is wrong" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_ctrl_c_ends_it_with_130_and_says_how_to_go_on(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho $$ > "{tmp_path}/pid"\nexec sleep 600\n')
    python.chmod(0o755)
    plan = tmp_path / "plan.toml"
    plan.write_text(f'title = "up"\n[baseline]\npython = "{python}"\n[candidate]\npython = "{python}"\n')
    words = [sys.executable, "-m", "hangdrill", "certify", str(plan), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        began = Waiter().until(lambda: (tmp_path / "pid").is_file() or None, deadline_s=60)
        assert began, "the stack was never asked"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, "--resume" in told) == (130, True)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_empty_python_is_not_the_one_that_the_receipt_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--python "$(command -v python)"` in a job that has none: the receipt's own Python is another stack's."""
    run_command(["keygen", str(tmp_path / "k")])
    python = fake_python(tmp_path / "python")
    made = receipt(verdict=Verdict.PASS)
    certified = msgspec.structs.replace(made, candidate=msgspec.structs.replace(made.candidate, python=python))
    file = tmp_path / "r.json"
    file.write_bytes(sign_receipt(certified, tmp_path / "k", passphrase=lambda: None))
    words = ["verify", str(file), "--key", str(tmp_path / "k.pub"), "--at", "2026-12-01"]
    assert run_command(words) == 0
    for empty in ("", " "):
        capsys.readouterr()
        assert run_command([*words, "--python", empty]) == 64
        told = capsys.readouterr()
        assert (told.out, "--python is empty" in told.err) == ("", True)


@pytest.mark.parametrize("words", [["stack", ""], ["stack", "--image", ""]], ids=["python", "image"])
def test_a_stack_without_a_name_is_not_hangdrills_own(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(words) == 64
    told = capsys.readouterr()
    assert (told.out, "is empty" in told.err) == ("", True)


@pytest.mark.parametrize("text", [b"- [ ] call Kim\n", b"\xff\xfe"], ids=["text", "bytes"])
def test_a_checklist_of_somebody_else_is_left_alone(tmp_path: Path, text: bytes) -> None:
    for key in ("k", "l"):
        run_command(["keygen", str(tmp_path / key)])
    (tmp_path / "r.json").write_bytes(sign_receipt(receipt(), tmp_path / "k", passphrase=lambda: None))
    for name in ("checklist.md", "checklist.html"):
        (tmp_path / name).write_bytes(text)
    assert run_command(["sign", str(tmp_path / "r.json"), "--key", str(tmp_path / "l")]) == 0
    assert [(tmp_path / name).read_bytes() for name in ("checklist.md", "checklist.html")] == [text, text]


@pytest.mark.parametrize("word", ["plan", "out", "who"])
def test_a_word_that_no_receipt_can_hold_is_said_before_anything_runs(
    plan: Path, tmp_path: Path, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = os.fsdecode(b"k\xff")
    given = {"plan": str(plan), "out": str(tmp_path / "out"), "who": "kim"}
    given[word] = {"plan": str(tmp_path / strange), "out": str(tmp_path / strange), "who": strange}[word]
    if word == "plan":
        Path(given[word]).write_text(plan.read_text())
    assert run_command(["certify", given["plan"], "--out", given["out"], "--who", given["who"]]) == 64
    assert "no text in UTF-8" in capsys.readouterr().err
    assert not Path(given["out"]).exists()
