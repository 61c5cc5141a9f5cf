"""Prints the CPU on which a new mount namespace has the least number; nothing where the kernel does not tell.

The kernel refuses to bind a mount namespace into one with a higher number (so that there can be no loop), and hands the
numbers out in batches, one a CPU: Slurm's job_container/tmpfs then fails for half of the jobs inside a namespace that
was made on the wrong CPU. What is made on this CPU is older than all that comes later.
"""

import contextlib
import ctypes
import fcntl
import os
import struct

NEW_MOUNTS = 0x00020000
NS_GET_MNTNS_ID = 0x8008B705


def number_on(cpu: int) -> int | None:
    """The number of a namespace that is made there, in a child, and gone with it."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {cpu})
        if ctypes.CDLL(None).unshare(NEW_MOUNTS) == 0:
            handle = os.open("/proc/self/ns/mnt", os.O_RDONLY)
            with contextlib.suppress(OSError):
                os.write(write_end, fcntl.ioctl(handle, NS_GET_MNTNS_ID, struct.pack("Q", 0)))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return struct.unpack("Q", told)[0] if told else None


if __name__ == "__main__":
    numbers = {cpu: number for cpu in sorted(os.sched_getaffinity(0)) if (number := number_on(cpu)) is not None}
    if numbers:
        print(min(numbers, key=lambda cpu: numbers[cpu]))
