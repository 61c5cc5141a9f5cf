"""The negative controls: what each scenario breaks, which check must FAIL with which words, and preflight's finding."""

import msgspec

__all__ = ["CONTROLS", "MENDED", "Control"]


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """check fails with words; finding: of preflight, before anything is run; "" where only the run can show it."""

    scenario: str
    check: str
    words: tuple[str, ...]
    finding: str = ""
    twin: str = "controls/mended"
    needs: str = ""
    """A library beside bwrap."""


FAKETIME = "libfaketime"

CONTROLS: tuple[Control, ...] = (
    Control(
        scenario="controls/in-memory",
        check="survives-container-removal",
        words=("fr_0 is gone after container-removal", "/mnt/dumps is a tmpfs: memory of the container"),
        finding="dump-on-tmpfs",
    ),
    Control(
        scenario="controls/read-only-home",
        check="every-rank-dumped",
        words=("/home/trainer/dumps is in the home directory, which is on a read-only file system",),
        finding="dump-directory-unwritable",
    ),
    Control(
        scenario="controls/disk-full",
        check="every-rank-dumped",
        words=("rank 1: missing: the disk is full (ENOSPC): 0 bytes of 4.0 KiB are free in /mnt/dumps (tmpfs)",),
        finding="dump-file-system-full",
        twin="controls/disk-with-room",
    ),
    Control(
        scenario="controls/disk-nearly-full",
        check="parses",
        words=(
            "rank_1.a0.native.pickle is cut at byte",
            "operations salvaged: the disk is full (ENOSPC): 0 bytes of 12.0 KiB",
        ),
        finding="dump-file-system-full",
        twin="controls/disk-with-room",
    ),
    Control(
        scenario="controls/missing-directory",
        check="every-rank-dumped",
        words=("/var/tmp/no-such-directory does not exist, and torch does not create it",),
        finding="dump-directory-missing",
    ),
    Control(
        scenario="controls/one-name",
        check="every-rank-dumped",
        words=("TORCH_FR_DUMP_DYNAMIC_FILE_NAME leaves the rank out", "all ranks write one file, /mnt/dumps/fr_"),
        finding="dump-name-without-rank",
    ),
    Control(
        scenario="controls/cut-by-kill",
        check="parses",
        words=("rank 1: rank_1.a0.native.pickle is cut at byte", "operations salvaged", "the writer was ended in the"),
    ),
    Control(
        scenario="controls/shared-path",
        check="own-dump",
        words=("rank 0: rank_0.a0.native.pickle was written by another job or host", "s after this rank's own"),
    ),
    Control(
        scenario="controls/stale-file",
        check="fresh",
        words=("rank 1: rank_1.a0.native.pickle: its newest operation is", "older than the attempt: a stale file"),
    ),
    Control(
        scenario="controls/skewed-stale-file",
        check="fresh",
        words=("older than the attempt (its clock is 600", "behind the controller's", "a stale file"),
        twin="controls/skewed-clock",
        needs=FAKETIME,
    ),
)

MENDED = ("controls/mended", "controls/disk-with-room", "controls/skewed-clock")
