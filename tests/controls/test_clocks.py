"""Clocks that are minutes off: fresh dumps are fresh, stale ones stale, and the offset is told. With libfaketime."""

import shutil
import sys
from pathlib import Path

import pytest
from controls_lab import CHECKOUT, faketime_library, not_passed, result_of, run_hangdrill

pytestmark = [
    pytest.mark.torchrun,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed"),
    pytest.mark.skipif(faketime_library() is None, reason="libfaketime is not installed (faketime)"),
]

SCENARIO = """
title = "{name}"
[job]
launcher = "{launcher}"
script = "{script}"
args = {args}
nproc_per_node = 2
timeout_s = 5
{more}
[fault]
kind = "hold"
rank = 1
before = {{ op = "all_reduce", nth = 5 }}
[recorder]
trigger = "{trigger}"
{dump_to}
[expect]
culprit = 1
"""
SKEWED = 'env = { LD_PRELOAD = "/usr/$LIB/faketime/libfaketime.so.1", FAKETIME = "%ds" }'
ONE_AHEAD = """#!/bin/sh
[ "$RANK" = 1 ] && export LD_PRELOAD='/usr/$LIB/faketime/libfaketime.so.1' FAKETIME=+600s
exec "$REAL_PYTHON" "$@"
"""


def write(directory: Path, name: str, *, launcher: str, args: str = "[]", more: str = "", native: bool = True) -> str:
    """A scenario with the controls' script; its dumps go to a directory of this host that several drills share."""
    shared = f'volumes = ["{directory}/shared:/mnt/dumps"]\n' if native else ""
    text = SCENARIO.format(
        name=name,
        launcher=launcher,
        script=CHECKOUT / "scenarios/controls/dumping.py",
        args=args,
        more=shared + more,
        trigger="native" if native else "collector",
        dump_to='dump_to = "/mnt/dumps"' if native else "",
    )
    (directory / f"{name}.toml").write_text(text)
    return f"{name}.toml"


@pytest.fixture(scope="module")
def drilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An earlier run's dumps, then a drill whose rank 1 leaves them there, with a wrong clock; and a drill in which one
    rank's clock is wrong."""
    directory = tmp_path_factory.mktemp("clocks")
    (directory / "shared").mkdir(mode=0o700)
    wrapper = directory / "python"
    wrapper.write_text(ONE_AHEAD)
    wrapper.chmod(0o700)
    earlier = write(directory, "earlier", launcher="bwrap")
    code, output = run_hangdrill(["run", earlier, "--out", str(directory / "first")], directory)
    assert code == 0, output
    mute = '["--mute", "--rank", "1"]'
    later = write(directory, "later", launcher="bwrap", args=mute, more=SKEWED % -600)
    alone = write(directory, "alone", launcher="torchrun", native=False)
    environ = {"PYTHON_EXEC": str(wrapper), "REAL_PYTHON": sys.executable}
    words = ["run", later, alone, "-j", "2", "--out", str(directory / "out")]
    code, output = run_hangdrill(words, directory, environ)
    assert code == 1, output
    return directory / "out"


def test_file_that_was_there_before_is_stale_whatever_the_clocks_say(drilled: Path) -> None:
    result = result_of(drilled, "later")
    assert set(not_passed(result, "fail")) == {"fresh"}
    detail = not_passed(result)["fresh"]["detail"]
    assert "rank 1: rank_1.a0.native.pickle: it was there before the drill began, and nothing has written it" in detail
    assert "rank 0" not in detail


def test_one_rank_whose_clock_is_ahead_leaves_fresh_evidence(drilled: Path) -> None:
    result = result_of(drilled, "alone")
    assert not_passed(result) == {}
    fresh = next(check for check in result["checks"] if check["name"] == "fresh")
    assert "rank 1: its clock is 600" in fresh["detail"]
    assert "ahead of the controller's" in fresh["detail"]
    assert "rank 0" not in fresh["detail"]


def test_torchruns_own_directory_is_in_the_run_directory_and_nowhere_else(drilled: Path) -> None:
    assert list((drilled / "alone/torchrun").iterdir()) != []
    assert list(drilled.parent.glob("torchelastic_*")) == []
    assert "WorkerServer" in (drilled / "alone/job.log").read_text()
