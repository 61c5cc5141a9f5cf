"""The memory of this process, without the pages of files that are mapped into it.

How many pages of a library the kernel maps at one fault depends on how the file came to lie in its cache: the same
torch, installed a minute ago, was seen 165 MB larger than one that had been read from the disk.
"""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["host_bytes", "host_peak_bytes"]

STATUS = Path("/proc/self/status")
KIB = 1024


def host_bytes(status: Path = STATUS) -> int:
    """What is in use now: anonymous and shared memory."""
    return _own(_sizes(status))


def host_peak_bytes(status: Path = STATUS) -> int:
    """The most that was in use: the kernel's peak of everything, less the files that are mapped now."""
    sizes = _sizes(status)
    return max(_own(sizes), sizes.get("VmHWM", 0) - sizes.get("RssFile", 0))


def _own(sizes: Mapping[str, int]) -> int:
    if "RssAnon" not in sizes:  # a kernel that does not tell them apart
        return sizes.get("VmRSS", 0)
    return sizes["RssAnon"] + sizes.get("RssShmem", 0)


def _sizes(status: Path) -> dict[str, int]:
    """Its lines "RssAnon:   1234 kB", in bytes."""
    rows = (line.split() for line in status.read_text(encoding="ascii", errors="replace").splitlines())
    return {row[0].rstrip(":"): int(row[1]) * KIB for row in rows if len(row) == 3 and row[2] == "kB"}
