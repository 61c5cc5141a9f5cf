"""What lies among the installed packages and no package has installed: Python runs or imports it all the same.

Above all `.pth` files, `sitecustomize` and `usercustomize`, which run whenever a Python starts; modules beside the
packages; and Python files that somebody put into torch. Listed and hashed, never imported. Caches are left out.
"""

import hashlib
import importlib.util
import os
import site
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from hangdrill.rank.fingerprint.packages import recorded_files

__all__ = ["added_files", "added_packages"]

AT_START = ("sitecustomize", "usercustomize")
MODULES = (".py", ".pth", ".so")
MOST_FILES = 20000
NO_PACKAGE = "of no package"


def added_packages() -> list[dict[str, str]]:
    """One table for each, called "added/NAME", beside those of the packages; two of one name are one."""
    found: dict[str, list[str]] = {}
    for home in _homes():
        owned, complete = _owned(home)
        for name in sorted(path.name for path in Path(home).iterdir()):
            digest = "" if name in owned else _digest_of(f"{home}/{name}", of_directories=complete)
            if digest:
                found.setdefault(name, []).append(digest)
    for name in AT_START:
        for digest in _started(name):
            found.setdefault(f"{name}.py", []).append(digest)
    return [_table(name, sorted(set(found[name]))) for name in sorted(found)]


def added_files(dist: metadata.Distribution) -> Iterator[tuple[str, str]]:
    """(path, sha256) of each Python file in the package's directories that no package has installed."""
    home = str(dist.locate_file(""))
    paths = [path for path, _, _ in recorded_files(dist) if path.endswith(".py") and "/" in path]
    tops = {path.split("/")[0] for path in paths} - {".", ".."}
    if not tops:
        return
    known = _installed(home)
    for top in sorted(tops):
        for path in _python_files(f"{home}/{top}"):
            name = path[len(home) :].lstrip("/")
            if name not in known:
                yield name, _hash(path)


def _homes() -> list[str]:
    """The directories of packages that this Python looks into; others on its path are somebody's own code."""
    named = {*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])}
    places = [place for place in dict.fromkeys(map(os.path.abspath, sys.path)) if os.path.isdir(place)]  # noqa: PTH112 - without pathlib
    return [place for place in places if place in named or any(Path(place).glob("*.dist-info"))]


@lru_cache(maxsize=4)
def _installed(home: str) -> frozenset[str]:
    """Every file of every package there."""
    return frozenset(path for one in metadata.distributions(path=[home]) for path, _, _ in recorded_files(one))


def _owned(home: str) -> tuple[set[str], bool]:
    """The names at the top that packages have installed, and whether every package says what it has installed."""
    owned, complete = set(), True
    for dist in metadata.distributions(path=[home]):
        recorded = [path.split("/")[0] for path, _, _ in recorded_files(dist)]
        owned.update(recorded)
        complete = complete and bool(recorded)
    return owned, complete


def _digest_of(path: str, *, of_directories: bool) -> str:
    """Of a module, or of a directory that has modules, by their names and sizes; empty for anything else."""
    name = os.path.basename(path)  # noqa: PTH119 - without pathlib
    if os.path.isfile(path):  # noqa: PTH113 - without pathlib
        return _hash(path)[:16] if name.endswith(MODULES) else ""
    if not of_directories or not name.isidentifier() or name == "__pycache__":
        return ""
    lines = [f"{file[len(path) :]} {_size(file)}" for file in _python_files(path)]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16] if lines else ""


def _started(name: str) -> Iterator[str]:
    """What Python would import of that name, wherever it lies."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return
    if spec is not None and spec.origin and os.path.isfile(spec.origin):  # noqa: PTH113 - without pathlib
        yield _hash(spec.origin)[:16]


def _python_files(directory: str) -> Iterator[str]:
    seen = 0
    for above, below, files in os.walk(directory):
        below[:] = sorted(name for name in below if name != "__pycache__")
        for name in files:
            if name.endswith(".py"):
                seen += 1
                if seen > MOST_FILES:
                    return
                yield f"{above}/{name}"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - without pathlib
    except OSError:
        return -1


def _hash(path: str) -> str:
    try:
        with open(path, "rb") as opened:  # noqa: PTH123 - without pathlib
            return hashlib.sha256(opened.read()).hexdigest()
    except OSError as error:
        return error.strerror or "cannot be read"


def _table(name: str, digests: list[str]) -> dict[str, str]:
    return {"name": f"added/{name}", "version": NO_PACKAGE, "files_digest": "+".join(digests), "source": ""}
