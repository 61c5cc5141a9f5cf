"""`hangdrill list`, `show` and `schema` say what is there, and start nothing."""

import json

import pytest

from hangdrill.cli import run_command
from hangdrill.model.schema import schema_text


def out(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command(arguments) == 0
    return capsys.readouterr().out


def test_list_shows_every_shipped_scenario_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "list")
    assert "quick/ddp-hold" in text
    assert "DDP: one rank of four is held" in text


def test_the_list_of_commands_cuts_no_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert "..." not in out(capsys, "--help").split("Commands:")[1]


def test_list_json_is_names_paths_and_titles(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(out(capsys, "list", "quick", "--json"))
    assert {"name", "path", "title"} == set(found[0])
    assert "quick/ddp-none" in [item["name"] for item in found]


def test_show_has_the_command_the_environment_the_deadlines_and_the_expectations(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = out(capsys, "show", "quick/ddp-hold", "--python", "/their/python")
    for part in ("/their/python", "--nproc", "HANGDRILL_RUN_ID=", "within 20 s", "culprits: 1", "hold on rank 1"):
        assert part in text
    (command,) = (line for line in text.splitlines() if line.startswith("command"))
    assert command.endswith(
        "-m hangdrill.rank workload:ddp --steps 12 --timeout-s 5 --backend gloo"
    )  # whole, to be copied


def test_show_says_what_is_special(capsys: pytest.CaptureFixture[str]) -> None:
    assert "recorder.trigger: gloo writes no dump" in out(capsys, "show", "delivery/native-gloo")
    assert "culprits: none, no hang" in out(capsys, "show", "quick/ddp-none")


def test_show_json_is_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads(out(capsys, "show", "faults/ddp-stop-r0", "--json"))
    assert (plan["schema"], plan["name"]) == ("hangdrill.plan/1", "faults/ddp-stop-r0")
    assert plan["expected_ranks"] == [0, 1, 2]


def test_schema_prints_the_shipped_schema_or_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert out(capsys, "schema", "result") == schema_text("result")
    assert "hangdrill.diagnosis/1" in out(capsys, "schema")
