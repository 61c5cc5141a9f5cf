"""A whole drill in bubblewrap by a user who is not root: the same verdicts, and nothing of it is left."""

from pathlib import Path

import psutil
import pytest
from controls_lab import not_passed, result_of
from plain_user import UID, plain_directory, run_as_plain_user, why_no_plain_user

pytestmark = [
    pytest.mark.torchrun,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(why_no_plain_user()), reason=why_no_plain_user() or "-"),
]


def processes_of(uid: int, directory: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.uids().real == uid and str(directory) in " ".join(
                (*process.cmdline(), *process.environ().values())
            ):
                found.append(f"{process.pid} {process.name()}")
        except psutil.Error:
            continue
    return found


def test_user_who_is_not_root_drills_in_bubblewrap() -> None:
    with plain_directory() as directory:
        words = ["run", "controls/mended", "controls/disk-full", "-j", "2", "--out", str(directory / "out")]
        code, output = run_as_plain_user(words, directory)
        assert code == 1, output
        mended = result_of(directory / "out", "controls/mended")
        assert not_passed(mended) == {}
        dump = directory / "out/controls/mended/volumes/dumps/fr_1"
        assert (dump.stat().st_uid, dump.stat().st_mode & 0o777) == (UID, 0o600)
        full = not_passed(result_of(directory / "out", "controls/disk-full"), "fail")
        assert "the disk is full (ENOSPC)" in full["every-rank-dumped"]["detail"]
        assert processes_of(UID, directory) == []
        assert list(directory.glob("torchelastic_*")) == []
