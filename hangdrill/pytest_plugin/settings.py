"""The plugin's options: what was said on pytest's command line, else in the environment, else the default."""

import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

__all__ = ["OUT_KEY", "Settings", "add_options", "choose_out", "settings_of"]

OUT_KEY = pytest.StashKey[Path]()
OPTIONS = {
    "out": "directory of the run directories (default: hangdrill-runs/<time>-<id> below the root; env HANGDRILL_OUT)",
    "launcher": "who starts the ranks, in place of what the scenarios say (env HANGDRILL_LAUNCHER)",
    "python": "Python of the ranks (default: the one that runs pytest; env HANGDRILL_PYTHON)",
}
WORKER_KEY = "hangdrill_out"


class Settings:
    """What every drill of this session shares. environ is the environment that the jobs inherit."""

    def __init__(
        self, *, out: Path, launcher: str | None, python: str, may_skip: bool, environ: Mapping[str, str]
    ) -> None:
        self.may_skip = may_skip
        self.out = out
        self.launcher = launcher
        self.python = python
        self.environ = dict(environ)


def add_options(parser: pytest.Parser) -> None:
    """`--hangdrill-out`, `--hangdrill-launcher`, `--hangdrill-python`, `--hangdrill-no-skip`."""
    group = parser.getgroup("hangdrill", "hang drills")
    for name, text in OPTIONS.items():
        group.addoption(f"--hangdrill-{name}", default=None, metavar=name.upper(), help=text)
    text = "a drill that this machine cannot run (no GPUs, no bwrap) is an error, not a skip (env HANGDRILL_NO_SKIP=1)"
    group.addoption("--hangdrill-no-skip", dest="hangdrill_no_skip", action="store_const", const="1", help=text)


def choose_out(config: pytest.Config, environ: Mapping[str, str]) -> None:
    """Fix the out directory once for all processes: xdist's workers take the one that their controller chose."""
    worker: Mapping[str, Any] = getattr(config, "workerinput", {})
    given = worker.get(WORKER_KEY) or _said(config, "out", environ)
    default = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(2)}"
    config.stash[OUT_KEY] = Path(given).absolute() if given else config.rootpath / "hangdrill-runs" / default


def settings_of(config: pytest.Config, environ: Mapping[str, str]) -> Settings:
    """The session's settings."""
    return Settings(
        out=config.stash[OUT_KEY],
        launcher=_said(config, "launcher", environ),
        python=_said(config, "python", environ) or sys.executable,
        may_skip=(_said(config, "no_skip", environ) or "0") == "0",
        environ=environ,
    )


def _said(config: pytest.Config, name: str, environ: Mapping[str, str]) -> str | None:
    said: str | None = config.getoption(f"hangdrill_{name}") or environ.get(f"HANGDRILL_{name.upper()}")
    return said
