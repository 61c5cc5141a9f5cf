"""Names out of dumps and scenarios are words: never markup, never a link, whole, and within the terminal's width."""

import io
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from healthy_runs import diagnosis, mutate
from rich.console import Console
from rich.errors import MarkupError
from sample_results import failed_run, named, passed_run, result_of

from hangdrill.cli import run_command
from hangdrill.incident import diagnose_evidence, read_incident
from hangdrill.model.diagnosis import Basis, Culprit, RankRoll, UnreadableDump
from hangdrill.model.preflight import Finding, Preflight, Severity
from hangdrill.model.verdict import Verdict
from hangdrill.report.live import LiveDisplay
from hangdrill.report.plain import PlainListener
from hangdrill.report.preflight import print_preflight
from hangdrill.report.story import BRIEF, tell_story
from hangdrill.report.terminal import print_diagnosis, print_plan, print_result, print_summary

NAMES = ["[/]", "[conceal]x", "[link=http://evil.example]ok[/link]", "[bold]run[/bold]", ":skull:", "a[dim]"]
STEERING = "\x1b]8;;http://evil.example\x1b\\ok\x1b[2J"
LINK = "\x1b]8"
COLOURS = re.compile("\x1b\\[[0-9;]*m")
LONG = "the_name_of_a_group_that_nobody_would_choose_but_some_program_did_" * 3


def terminal(width: int = 500, **options: Any) -> Console:
    """With markup on, as the command's own console has it not: each printer holds alone."""
    return Console(
        file=io.StringIO(), width=width, force_terminal=True, color_system="standard", highlight=False, **options
    )


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return COLOURS.sub("", console.file.getvalue())


def entry(number: int, name: str, *, pending: bool) -> dict[str, Any]:
    at_ns = 1_795_969_000_000_000_000 + number * 10_000_000
    return {
        "frames": [{"name": name, "filename": f"/data/{name}", "line": 3}],
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", name),
        "collective_seq_id": number + 1,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl2:{name}",
        "time_created_ns": at_ns,
        "input_sizes": [[4]],
        "input_dtypes": [name],
        "output_sizes": [[4]],
        "output_dtypes": [name],
        "state": "scheduled" if pending else "completed",
        "time_discovered_started_ns": None if pending else at_ns,
        "time_discovered_completed_ns": None if pending else at_ns + 1_000_000,
        "retired": not pending,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def incident(place: Path, name: str) -> Path:
    """Rank 0 of three never comes; everything that a dump can call by a name is called this, and so are files."""
    folder = place / name.replace("/", "_").replace("\x1b", "_")
    folder.mkdir()
    for rank in range(3):
        entries = [entry(number, name, pending=number == 3) for number in range(4 if rank else 3)]
        groups = {"0": {"name": "0", "desc": name, "ranks": "[0, 1, 2, 3]"}}
        status = {"0": {"last_enqueued_collective": 3, "last_started_collective": -1, "last_completed_collective": 2}}
        content = {"version": "2.10", "pg_config": groups, "pg_status": status, "entries": entries}
        (folder / f"fr_{rank}").write_bytes(pickle.dumps(content | {"comm_lib_version": name}, protocol=2))
    (folder / "fr_3").write_bytes(b"\x80\x02}(")
    (folder / "notes[link=x].md").write_text(name)
    return folder


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command takes its output for a wide terminal with colours."""
    for key, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "500"}.items():
        monkeypatch.setenv(key, value)


@pytest.mark.usefixtures("at_terminal")
@pytest.mark.parametrize("name", NAMES)
def test_the_command_prints_names_as_they_are(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = incident(tmp_path, name)
    assert run_command(["diagnose", str(folder)]) == 1
    raw = capsys.readouterr().out
    assert "\x1b[" in raw
    text = COLOURS.sub("", raw)
    standing, _, around = text.partition("where each rank stands")[2].partition("around the stall")
    assert f"{name} #4 of {name}" in standing
    assert f"{name.rpartition('/')[2]}:3 in {name}" in standing
    assert f"{name} #4" in around
    assert f"{folder.name}/notes[link=x].md" in text
    assert f"{folder.name}/fr_3" in text
    assert LINK not in raw

    evidence = read_incident([folder])
    found, console = diagnose_evidence(evidence), terminal()
    print_diagnosis(console, found, story=tell_story(found, evidence.dumps, before=BRIEF))
    assert written(console) == text


@pytest.mark.usefixtures("at_terminal")
def test_no_escape_sequence_of_a_dump_comes_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["diagnose", str(incident(tmp_path, STEERING))]) == 1
    text = capsys.readouterr().out
    assert "evil.example" in text
    assert "\x1b" not in COLOURS.sub("", text)


def test_a_plain_text_would_have_been_obeyed() -> None:
    """The control: this terminal makes links, and stumbles over a tag that closes nothing."""
    console = terminal()
    console.print(NAMES[2])
    assert LINK in written(console)
    with pytest.raises(MarkupError):
        console.print(NAMES[0])


@pytest.mark.parametrize("name", NAMES)
def test_every_table_prints_names_as_they_are(name: str) -> None:
    passed, failed = result_of(passed_run()), result_of(failed_run())
    bad = UnreadableDump(rank=2, file=name, error=name, salvaged_entries=7)
    roll = RankRoll(expected=4, present=(0, 3), missing=(1,), unreadable=(bad,))
    found = mutate(diagnosis(), ranks=roll, culprits=(Culprit(rank=1, basis=Basis.OBSERVED, why=name),), notes=(name,))
    checks = tuple(mutate(check, name=name, detail=name, mend=name) for check in failed.checks)
    finding = Finding(id=name, severity=Severity.RISK, what=name, where=name, mend=name)
    looked = Preflight(verdict=Verdict.PASS, looked_at={name: name}, findings=(finding,))
    console = terminal()

    print_diagnosis(console, found, said=name)
    print_result(console, named(mutate(failed, checks=checks, sentence=name), name), f"/runs/{name}")
    print_summary(console, [named(passed, name), named(mutate(failed, checks=checks), name)])
    print_plan(console, name, {name: name, f"{name}s": [name, name]})
    print_preflight(console, looked)
    plain = PlainListener(console, name)
    plain.phase(name, name)
    plain.rank(0, "held", name)
    plain.note(name)
    for total in (1, 2):
        with LiveDisplay(console, total=total) as display:
            listener = display.listener(name)
            listener.phase(name, name)
            listener.rank(0, name, name)
            listener.note(name)
            console.print(display)
    text = written(console)
    assert LINK not in text
    assert text.count(name) >= 40
    assert text.count("[") == text.count(name) * name.count("[") + text.count("\x1b[")


@pytest.mark.parametrize("width", [80, 120])
def test_the_whole_diagnosis_keeps_to_the_width_and_loses_nothing(width: int) -> None:
    said = f"rank 1 never entered all_reduce #4 of {LONG}; ranks 0, 2, 3 waited, and that is all there is to say of it"
    console = terminal(width)
    print_diagnosis(console, diagnosis(), said=said)
    lines = written(console).splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("HANG  rank 1 never entered")
    assert said.replace(" ", "") in "".join(lines).replace(" ", "")


def test_a_pipe_without_a_width_gets_the_sentence_on_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = incident(tmp_path, LONG)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run_command(["diagnose", str(folder)]) == 1
    whole = capsys.readouterr().out
    assert whole.splitlines()[0].endswith("waited")
    heading = "".join(whole.split()).partition("aroundthestall")[2].partition("lastoperations")[0]
    assert f"{LONG[-35:]}#4" in heading
    monkeypatch.setenv("COLUMNS", "80")
    assert run_command(["diagnose", str(folder)]) == 1
    wrapped = capsys.readouterr().out
    assert max(map(len, wrapped.splitlines())) <= 80
    sentence = whole.splitlines()[0].replace(" ", "")
    assert "".join(wrapped.split()).startswith(sentence)
    assert "".join(wrapped.split()).count(LONG) >= 1
