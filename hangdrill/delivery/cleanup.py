"""What cleans up a directory of this host: tmpfiles.d ages and tmpreaper. Reads their files, runs nothing.

tmpfiles.d(5): a file in /etc hides one of the same name in /run and /usr/lib; the age is the sixth field; `D` and `R`
empty at boot, `x` leaves out. Other jobs (cron, a site's purge) cannot be known.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from hangdrill.model.delivery import Deletion

__all__ = ["CLEANUP", "Cleanup", "age_days", "deletions_in"]

_UNIT_S = {
    "us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60,
    "minute": 60, "minutes": 60, "h": 3600, "hr": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400,
    "days": 86400, "w": 604800, "week": 604800, "weeks": 604800, "M": 2629800, "month": 2629800, "months": 2629800,
    "y": 31557600, "year": 31557600, "years": 31557600,
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)([a-zA-Z]*)")
_AGED = frozenset("dDevqQC")
_EMPTIED = frozenset("DR")
_LEFT_OUT = "x"
"""`X` keeps the directory itself, and what is in it not."""
_FIELDS = re.compile(r'"[^"]*"|\'[^\']*\'|\S+')
_SHELL = re.compile(r"^\s*(?:export\s+)?([A-Z_]+)=(.*)$")


class Cleanup(msgspec.Struct, frozen=True, kw_only=True):
    """Where the rules stand. root: for a test, or a container's file system."""

    tmpfiles: tuple[str, ...] = (
        "/etc/tmpfiles.d",
        "/run/tmpfiles.d",
        "/usr/local/lib/tmpfiles.d",
        "/usr/lib/tmpfiles.d",
    )
    tmpreaper: str = "/etc/tmpreaper.conf"


CLEANUP = Cleanup()


class _Rule(msgspec.Struct, frozen=True):
    kind: str
    path: str
    age: str
    source: str


def deletions_in(directory: Path, cleanup: Cleanup = CLEANUP) -> tuple[Deletion, ...]:
    """The rules that reach a directory, which need not exist yet."""
    path = str(directory)
    return (*_of_tmpfiles(path, list(_rules(cleanup.tmpfiles))), *_of_tmpreaper(path, Path(cleanup.tmpreaper)))


def age_days(text: str) -> float | None:
    """An age of tmpfiles.d ("10d", "1w2d", "~12h", "aAbBcCmM:5d"); None for none ("-")."""
    text = text.rpartition(":")[2].lstrip("~")
    if not text or text == "-":
        return None
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        return None
    units = [(float(number), _UNIT_S.get(unit or "s")) for number, unit in parts]
    if any(unit is None for _, unit in units):
        return None
    return sum(number * unit for number, unit in units if unit is not None) / 86400


def _of_tmpfiles(path: str, rules: list[_Rule]) -> Iterator[Deletion]:
    reaching = [rule for rule in rules if _reaches(rule.path, path)]
    left_out = max((_depth(rule.path) for rule in reaching if rule.kind == _LEFT_OUT), default=0)
    aged = [rule for rule in reaching if rule.kind in _AGED]
    if aged:  # the nearest one counts: systemd-tmpfiles leaves a directory with a line of its own to that line
        nearest = max(aged, key=lambda rule: _depth(rule.path))
        days = age_days(nearest.age)
        # "x" keeps a cleanup out that comes from above; a line of the directory's own begins in it.
        if days is not None and left_out <= _depth(nearest.path):
            yield Deletion(source=nearest.source, after_days=days, text=f"deletes what is older in {nearest.path}")
    for rule in rules:
        if rule.kind in _AGED and _is_below(rule.path, path) and (days := age_days(rule.age)) is not None:
            yield Deletion(source=rule.source, after_days=days, text=f"deletes what is older in {rule.path}")
        if rule.kind in _EMPTIED and not left_out and (_reaches(rule.path, path) or _is_below(rule.path, path)):
            yield Deletion(source=rule.source, after_days=None, text=f"empties {rule.path} at each boot")


def _depth(pattern: str) -> int:
    return pattern.rstrip("/").count("/")


def _is_below(pattern: str, path: str) -> bool:
    """Whether a line's path, which may be a pattern, can lie below the directory."""
    depth = _depth(path)
    parts = pattern.rstrip("/").split("/")
    return _depth(pattern) > depth and fnmatch.fnmatchcase(path.rstrip("/"), "/".join(parts[: depth + 1]))


def _reaches(pattern: str, path: str) -> bool:
    """Whether a line's path, which may be a pattern, is the directory or one above it."""
    parts = path.rstrip("/").split("/")
    return any(
        fnmatch.fnmatchcase("/".join(parts[:depth]) or "/", pattern.rstrip("/") or "/")
        for depth in range(1, len(parts) + 1)
    )


def _rules(directories: Iterable[str]) -> Iterator[_Rule]:
    """Of all files; of two with the same name the one in the earlier directory."""
    files: dict[str, Path] = {}
    for directory in directories:
        for file in sorted(Path(directory).glob("*.conf")):
            files.setdefault(file.name, file)
    for _, file in sorted(files.items()):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for number, line in enumerate(lines, start=1):
            fields = [field.strip("\"'") for field in _FIELDS.findall(line)]
            if len(fields) >= 2 and not fields[0].startswith("#"):
                age = fields[5] if len(fields) > 5 else "-"
                yield _Rule(fields[0].rstrip("!-+=~^$")[:1], fields[1], age, f"{file}:{number}")


def _of_tmpreaper(path: str, file: Path) -> Iterator[Deletion]:
    """Debian's daily job: TMPREAPER_TIME in TMPREAPER_DIRS; with SHOWWARNING=true it does nothing."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    values = {found[1]: found[2].split("#")[0].strip().strip("\"'") for line in lines if (found := _SHELL.match(line))}
    if values.get("SHOWWARNING") == "true":
        return
    age = values.get("TMPREAPER_TIME", "7d")
    days = age_days(age if not age.isdigit() else f"{age}d")
    for directory in values.get("TMPREAPER_DIRS", "/tmp/.").split():
        place = directory.rstrip(".").rstrip("/") or "/"
        protected = any(fnmatch.fnmatchcase(path, one) for one in values.get("TMPREAPER_PROTECT_EXTRA", "").split())
        if days is not None and _reaches(place, path) and not protected:
            yield Deletion(source=str(file), after_days=days, text=f"tmpreaper deletes what is older in {place}")
