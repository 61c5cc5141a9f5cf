"""Find scenarios by name, group, file or directory, and load them. Every mistake is a UsageError with file and key.

A name is the path below the nearest directory called `scenarios`, without `.toml`: "quick/ddp-hold". A matrix file
stands for many scenarios, named by its directory and the cell: "faults/ddp-hold-r1". Plans nothing and runs nothing.
"""

import difflib
import fnmatch
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from hangdrill.drill.scenario_checks import mistakes, warnings
from hangdrill.drill.scenario_matrix import expand, is_matrix
from hangdrill.drill.scenario_shape import Problem, convert, usage_error
from hangdrill.model.errors import InternalError, UsageError
from hangdrill.model.matrix import Matrix
from hangdrill.model.scenario import Scenario

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["QUICK", "NamedScenario", "find_all", "load", "load_file", "looks_like_scenario", "shipped_dir", "validate"]

QUICK = "quick"
"""The group that `hangdrill run` takes when it is given nothing."""

ROOT = "scenarios"
MAX_FILE_BYTES = 1_000_000
MOST_FILES = 10_000


class NamedScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A valid scenario under the name its results go by. path is None for one from the command line.

    A script is an absolute path. warnings are sentences: allowed, and probably not meant.
    """

    name: str
    path: Path | None
    scenario: Scenario
    warnings: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def shipped_dir() -> Path:
    """The scenarios that come with hangdrill: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / ROOT, package.parent / ROOT):
        if (candidate / QUICK).is_dir():
            return candidate
    raise InternalError("the shipped scenarios are missing", where=str(package), next_step="install hangdrill again")


def load(reference: str | Path, *, search: Sequence[Path] | None = None) -> NamedScenario:
    """The one scenario that a name or a file stands for."""
    found = find_all([reference], search=search)
    if len(found) != 1:
        hint = f"name one, for instance {found[0].name}"
        raise UsageError(f"{len(found)} scenarios, where one is wanted", where=str(reference), next_step=hint)
    return found[0]


def find_all(references: Iterable[str | Path], *, search: Sequence[Path] | None = None) -> list[NamedScenario]:
    """All scenarios of shipped names, groups and patterns, files and directories: in order, each once."""
    roots = (shipped_dir(),) if search is None else tuple(search)
    found: dict[str, NamedScenario] = {}
    for reference in references:
        for named in _find(str(reference), roots):
            other = found.setdefault(named.name, named)
            if other.path != named.path:
                what = f'two scenarios have the name "{named.name}": {other.path} and {named.path}'
                raise UsageError(what, next_step="rename one file, or run them one after the other")
    return list(found.values())


def load_file(path: Path) -> list[NamedScenario]:
    """The scenario of a file, or all cells of a matrix file."""
    text, data = _read(path)
    name = _name(path)
    if not is_matrix(data):
        return [validate(data, name=name, path=path, text=text)]
    matrix, problems = convert(data, Matrix)
    cells, more = expand(matrix) if matrix is not None else ([], [])
    if problems or more:
        raise usage_error([*problems, *more], file=str(path), text=text)
    group = name.rpartition("/")[0]
    prefix = f"{group}/" if group else ""
    return [validate(cell.tables, name=prefix + cell.name, path=path, source=f"{path} [{cell.name}]") for cell in cells]


def validate(
    data: Mapping[str, Any], *, name: str, path: Path | None, text: str = "", source: str = "", cwd: Path | None = None
) -> NamedScenario:
    """Tables to a valid scenario. source: where they came from when that is not simply `path` ("command line")."""
    scenario, problems = convert(data, Scenario)
    if scenario is not None:
        scenario, more = _with_script(scenario, path, cwd or Path.cwd())
        problems = [*mistakes(scenario), *more]
    if scenario is None or problems:
        raise usage_error(problems, file=source or str(path), text=text)
    return NamedScenario(name=name, path=path, scenario=scenario, warnings=warnings(scenario))


def looks_like_scenario(path: Path) -> bool:
    """Whether a TOML file is meant for hangdrill: it has a [job] or a [matrix]. Broken TOML counts by its text."""
    try:
        _, data = _read(path)
    except UsageError:
        head = path.read_bytes()[:MAX_FILE_BYTES].decode("utf-8", errors="replace") if path.is_file() else ""
        return "[job]" in head or "[matrix]" in head
    return is_matrix(data) or isinstance(data.get("job"), dict)


def _with_script(scenario: Scenario, path: Path | None, cwd: Path) -> tuple[Scenario, list[Problem]]:
    """The scenario with its script as an absolute path: looked for beside the file, then in the working directory."""
    script = scenario.job.script
    if script is None:
        return scenario, []
    homes = ([path.parent] if path is not None else []) + [cwd]
    for home in homes:
        if (home / script).is_file():
            job = msgspec.structs.replace(scenario.job, script=str((home / script).resolve()))
            return msgspec.structs.replace(scenario, job=job), []
    looked = " and ".join(str(home) for home in dict.fromkeys(homes))
    near = _nearest_script(script, homes)
    hint = f"did you mean `{near}`? Looked in {looked}" if near else f"looked in {looked}"
    return scenario, [Problem("job.script", f'no such script "{script}"', hint)]


def _nearest_script(script: str, homes: Sequence[Path]) -> str:
    """One of the same suffix whose name is near, in the directory that was named; "" when there is none."""
    asked = Path(script)
    names: list[str] = []
    for home in homes:
        with suppress(OSError, ValueError):  # no such directory, not ours to read, a NUL in its name
            found = itertools.islice((home / asked.parent).iterdir(), MOST_FILES)
            names += sorted(path.name for path in found if path.suffix == asked.suffix and path.is_file())
    close = difflib.get_close_matches(asked.name, names, n=1, cutoff=0.6)
    return str(asked.with_name(close[0])) if close else ""


def _find(reference: str, roots: Sequence[Path]) -> list[NamedScenario]:
    path = Path(reference)
    if path.is_file():
        return load_file(path)
    if path.is_dir():
        return _load_dir(path)
    if path.suffix == ".toml" or path.is_absolute():
        raise UsageError("no such scenario file", where=reference, next_step="`hangdrill list` shows the shipped ones")
    word = reference.strip("/").removeprefix(f"{ROOT}/")
    for root in roots:
        if found := _shipped(root, word):
            return found
    raise _unknown(reference, word, roots)


def _shipped(root: Path, word: str) -> list[NamedScenario]:
    if word == ROOT:
        return _load_dir(root)
    if (root / f"{word}.toml").is_file():
        return load_file(root / f"{word}.toml")
    if (root / word).is_dir():
        return _load_dir(root / word)
    group = root / Path(word).parent
    files = sorted(group.glob("*.toml")) if group.is_dir() else []
    return [named for file in files for named in load_file(file) if fnmatch.fnmatchcase(named.name, word)]


def _load_dir(directory: Path) -> list[NamedScenario]:
    files = [file for file in sorted(directory.rglob("*.toml")) if looks_like_scenario(file)]
    if not files:
        hint = "a scenario is a .toml file with a [job] table"
        raise UsageError("no scenario in this directory", where=str(directory), next_step=hint)
    return [named for file in files for named in load_file(file)]


def _unknown(reference: str, word: str, roots: Sequence[Path]) -> UsageError:
    names = list(dict.fromkeys(_all_names(roots)))
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.4)
    hint = f"did you mean `{close[0]}`?" if close else "`hangdrill list` shows the shipped ones"
    return UsageError("no scenario, group, file or directory of this name", where=reference, next_step=hint)


def _all_names(roots: Sequence[Path]) -> Iterator[str]:
    for root in roots:
        for named in _load_dir(root):
            yield named.name
            yield named.name.rpartition("/")[0]


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UsageError("the file is larger than 1 MB: no scenario", where=str(path))
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read the scenario: {error.strerror}", where=str(path)) from error
    except ValueError as error:  # of TOML and of Unicode; a number of 5000 digits raises a plain one
        raise UsageError(f"not valid TOML: {error}", where=str(path), next_step="mend the line") from error


def _name(path: Path) -> str:
    """The path below the nearest `scenarios` directory, without the suffix; the bare stem elsewhere."""
    parts = path.resolve().with_suffix("").parts
    if ROOT in parts[:-1]:
        last = len(parts) - 2 - parts[:-1][::-1].index(ROOT)
        return "/".join(parts[last + 1 :])
    return parts[-1]
