"""The script that reads a fingerprint, as it goes to a Python by standard input, and what its output says."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hangdrill.launchers.agent_path import rank_package

__all__ = ["BOOT", "Answer", "answer_of", "sources"]

MARK = "hangdrill.fingerprint "
PARTS = ("packages", "added", "changed", "torch_files", "machine", "elf", "extensions", "main")
HOME = "hangdrill.rank.fingerprint"

BOOT = """
import json, signal, sys, types
if len(sys.argv) > 1:
    signal.alarm(int(float(sys.argv[1])) + 1)
if sys.version_info < (3, 10):
    sys.exit("hangdrill needs Python 3.10 or newer, this is " + sys.version.split()[0])
for name, text in json.load(sys.stdin):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    exec(compile(text, name, "exec"), module.__dict__)
sys.modules[name].main()
"""
"""Its argument: the seconds after which it ends by itself, for whoever asked may have been killed."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a Python said. facts: the parts laid over each other; error: why there are none, or no more."""

    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    error: str = ""


def answer_of(python: str, code: int | None, output: bytes, complaints: bytes, *, deadline_s: float) -> Answer:
    """code: None when it was not over in time. What came before a crash is kept."""
    facts = _facts(output)
    if code is None:
        return Answer(facts=facts, error=f"{python} gave no answer within {deadline_s:g} s")
    return Answer(facts=facts, error=_why(python, code, complaints) or _silent(python, facts))


def sources() -> bytes:
    """[name, text] of the modules in the order in which they import each other; packages as empty modules."""
    home = rank_package() / "fingerprint"
    empty = [("hangdrill", ""), ("hangdrill.rank", ""), (HOME, "")]
    parts = [(f"{HOME}.{part}", Path(home / f"{part}.py").read_text(encoding="utf-8")) for part in PARTS]
    return json.dumps([*empty, *parts]).encode()


def _silent(python: str, facts: Mapping[str, Any]) -> str:
    return "" if facts else f"{python} ended without an answer: it is no Python"


def _facts(output: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for line in output.decode(errors="replace").splitlines():
        if line.startswith(MARK):
            try:
                facts.update(msgspec.json.decode(line[len(MARK) :], type=dict))
            except (msgspec.DecodeError, RecursionError):  # the last one may be cut
                continue
    return facts


def _why(python: str, code: int, complaints: bytes) -> str:
    """Why it ended as it did; empty when it ended well."""
    if code == 0:
        return ""
    if code < 0:
        return f"{python} was ended by {_signal_name(-code)}"
    lines = [line for line in complaints.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"{python} ended with exit code {code}"


def _signal_name(number: int) -> str:
    """A real-time signal has no name of its own."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
