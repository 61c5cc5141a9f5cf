"""Memory of a process is what it holds itself: the pages of mapped files come and go with the kernel's cache."""

import subprocess
import sys
from pathlib import Path

import pytest

from hangdrill.rank.canary.host_memory import host_bytes, host_peak_bytes

MIB = 1 << 20
PROGRAM = """
import mmap, sys
from hangdrill.rank.canary.host_memory import host_bytes, host_peak_bytes
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
before = host_bytes()
sum(mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE))
print(host_bytes() - before)
block = bytearray(int(sys.argv[2]))
del block
print(host_bytes() - before, host_peak_bytes() - before)
"""


def test_a_mapped_file_is_not_counted_and_a_block_that_is_gone_is_in_the_peak(tmp_path: Path) -> None:
    file = tmp_path / "library.so"
    file.write_bytes(b"x" * (64 * MIB))
    words = [sys.executable, "-c", PROGRAM, str(file), str(128 * MIB)]
    mapped, now, peak = map(int, subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
    assert mapped < 8 * MIB
    assert now < 8 * MIB
    assert 100 * MIB < peak < 160 * MIB


@pytest.mark.parametrize(
    ("file", "peak"),
    [(400, 300), (900, 150)],  # more of a file is mapped than at the peak: no less than what is held now
)
def test_the_peak_is_without_files_and_never_below_what_is_held(tmp_path: Path, file: int, peak: int) -> None:
    status = tmp_path / "status"
    kib = {"VmHWM": 700, "VmRSS": 150 + file, "RssAnon": 100, "RssFile": file, "RssShmem": 50}
    status.write_text("Name:\tpython\n" + "".join(f"{name}:\t{size} kB\n" for name, size in kib.items()))
    assert host_bytes(status) == 150 * 1024
    assert host_peak_bytes(status) == peak * 1024


def test_a_kernel_that_does_not_tell_files_apart_gives_all(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("VmHWM:\t700 kB\nVmRSS:\t600 kB\n")
    assert (host_bytes(status), host_peak_bytes(status)) == (600 * 1024, 700 * 1024)
