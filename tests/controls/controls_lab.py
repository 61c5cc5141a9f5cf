"""Running hangdrill as a user does, in a directory of the test's own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["CHECKOUT", "faketime_library", "not_passed", "result_of", "run_hangdrill", "start_hangdrill"]

CHECKOUT = Path(__file__).parents[2]
FAKETIME = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib64/faketime/libfaketime.so.1")


def faketime_library() -> Path | None:
    """Where libfaketime is, as the scenarios name it (/usr/$LIB/faketime)."""
    return next((path for pattern in FAKETIME for path in sorted(Path("/").glob(pattern.lstrip("/")))), None)


def start_hangdrill(
    words: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None, **settings: Any
) -> "subprocess.Popen[str]":
    """hangdrill with these words; all that it writes is below the directory."""
    own = {"PYTHONPATH": str(CHECKOUT), "COLUMNS": "200", "TMPDIR": str(directory)}
    own |= {"HANGDRILL_RUNTIME_DIR": str(directory / "runtime"), **(environ or {})}
    return subprocess.Popen(
        [sys.executable, "-m", "hangdrill", *words],
        cwd=directory,
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **settings,
    )


def run_hangdrill(words: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The exit code and all that it said."""
    with start_hangdrill(words, directory, environ) as process:
        output, _ = process.communicate()
    return process.returncode, output


def result_of(out: Path, scenario: str) -> dict[str, Any]:
    """A drill's result.json."""
    result: dict[str, Any] = json.loads((out / scenario / "result.json").read_text())
    return result


def not_passed(result: Mapping[str, Any], verdict: str = "") -> dict[str, Any]:
    """The checks by name that did not pass; or those with one verdict."""
    checks = {check["name"]: check for check in result["checks"] if check["verdict"] != "pass"}
    return {name: check for name, check in checks.items() if not verdict or check["verdict"] == verdict}
