"""Programs that stand for the Python of a stack: a few lines of shell that answer as the fingerprint script would."""

import json
from pathlib import Path
from typing import Any

import msgspec
from sample_receipts import fingerprint

MARK = "hangdrill.fingerprint "


def fake_python(path: Path, **changed: Any) -> str:
    """A program that answers with the sample fingerprint, with some facts changed; its path."""
    facts = msgspec.to_builtins(fingerprint(**changed))
    return answering(path, f"{MARK}{json.dumps(facts)}")


def answering(path: Path, text: str, *, code: int = 0) -> str:
    """A program that reads all its input, prints the text and ends with the code."""
    path.parent.mkdir(parents=True, exist_ok=True)
    answer = path.with_suffix(".answer")
    answer.write_text(text + "\n")
    path.write_text(f'#!/bin/sh\ncat >/dev/null\ncat "{answer}"\nexit {code}\n')
    path.chmod(0o755)
    return str(path)
