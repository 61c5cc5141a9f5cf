"""Installed packages with compiled code that is linked against torch: which torch they were built with, and whether
they load beside this one. A file is loaded in a forked child, since a wrong one may crash its process."""

import ctypes
import mmap
import os
import re
import select
import signal
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from hangdrill.rank.fingerprint.elf import needed_libraries, undefined_symbols
from hangdrill.rank.fingerprint.packages import normalised, recorded_files

__all__ = ["extensions", "try_to_load"]

LINKED = (b"libtorch", b"libc10")
UNSTABLE = re.compile(rb"_ZN?K?(3c10|2at|5torch)")
"""C++ of torch: it may change with every release. What is left is C, torch's stable ABI."""
OLD_STRING = re.compile(rb"(RK|[EPj])Ss")
NOT_EXTENSIONS = {"torch", "functorch"}
LOAD_DEADLINE_S = 60


def extensions() -> list[dict[str, Any]]:
    """One table a distribution with such files, sorted by name."""
    found = {}
    for dist in metadata.distributions():
        name = normalised(dist.metadata["Name"] or "")
        if not name or name in NOT_EXTENSIONS or name.startswith("nvidia-") or name in found:
            continue
        files = [path for path, _, _ in recorded_files(dist) if re.search(r"\.so(\.\d+)*$", path)]
        linked = [
            (path, traits) for path in files if (traits := _traits(Path(str(dist.locate_file(path))))) is not None
        ]
        if linked:
            stable = [traits["stable_abi"] for _, traits in linked]
            abis = {traits["cxx11_abi"] for _, traits in linked} - {None}
            found[name] = {
                "name": name,
                "version": str(dist.version),
                "files": [path for path, _ in linked],
                "built_with": _built_with(dist),
                "stable_abi": all(stable),
                "cxx11_abi": abis.pop() if len(abis) == 1 else None,
            }
    return [found[name] for name in sorted(found)]


def _traits(path: Path) -> dict[str, Any] | None:
    """None when the file is not linked against torch. cxx11_abi: of the strings that it hands to torch."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
            if not any(name.startswith(LINKED) for name in needed_libraries(held)):
                return None
            of_torch = [name for name in undefined_symbols(held) if UNSTABLE.match(name)]
    except (OSError, ValueError):
        return None
    new, old = (any(map(test, of_torch)) for test in (lambda name: b"__cxx11" in name, OLD_STRING.search))
    return {"cxx11_abi": new if new or old else None, "stable_abi": not of_torch}


def _built_with(dist: metadata.Distribution) -> str:
    """ "2.14.1" of `Requires-Dist: torch==2.14.1`, "2.14" of a version like 2.8.3+cu132torch2.14 or 1.0+pt214."""
    for required in dist.requires or ():
        if pinned := re.match(r"torch\s*\(?\s*==\s*([0-9][0-9.]*[0-9])", required):
            return pinned[1]
    local = str(dist.version).partition("+")[2]
    if found := re.search(r"torch\.?(\d+\.\d+(?:\.\d+)?)", local):
        return found[1]
    if found := re.search(r"pt(\d)\.?(\d+)", local):
        return f"{found[1]}.{found[2]}"
    return ""


def try_to_load(tables: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The tables with `loads` and `error`. torch must be imported already: its libraries are then in the process."""
    homes = {normalised(dist.metadata["Name"] or ""): dist for dist in metadata.distributions()}
    for table in tables:
        errors = [
            error for path in table["files"] if (error := _load_error(str(homes[table["name"]].locate_file(path))))
        ]
        yield {**table, "loads": not errors, "error": errors[0] if errors else ""}


def _load_error(path: str) -> str:
    """Empty when the file loads."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _load_and_tell(path, write_end)
    os.close(write_end)
    ready, _, _ = select.select([read_end], [], [], LOAD_DEADLINE_S)
    answer = os.read(read_end, 2000).decode(errors="replace") if ready else ""
    os.close(read_end)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if answer == "loaded":
        return ""
    return answer or (
        f"no answer within {LOAD_DEADLINE_S} s" if not ready else f"loading it ended with status {status}"
    )


def _load_and_tell(path: str, write_end: int) -> None:
    """In the child: never returns."""
    try:
        ctypes.CDLL(path, mode=os.RTLD_NOW)
        os.write(write_end, b"loaded")
    except BaseException as error:
        os.write(write_end, f"{error}"[:1500].encode())
    finally:
        os._exit(0)
