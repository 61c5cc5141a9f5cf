"""Read a job's command line: the variables it sets, torchrun's flags, and the script. Nothing is started.

Understood: `VAR=.. env VAR=.. torchrun FLAGS SCRIPT`, `python -m torch.distributed.run`, `python SCRIPT`, with any
other program (srun, nice, numactl) before them. Flags may be shortened as argparse allows, and may
come from PET_* variables.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hangdrill.model.scenario import Trigger
from hangdrill.preflight.script import read_script
from hangdrill.preflight.surroundings import Job, JobKind

__all__ = ["assigned", "job_of_command"]

GPU_COUNT = ("gpu", "auto")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.run.main")
_WITH_VALUE = (
    "nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "max-restarts",
    "monitor-interval", "start-method", "event-log-handler", "role", "log-dir", "redirects", "tee",
    "log-line-prefix-template", "local-ranks-filter", "duplicate-stdout-filters", "duplicate-stderr-filters",
    "node-rank", "master-addr", "master-port", "local-addr", "logs-specs", "numa-binding", "signals-to-handle",
    "shutdown-timeout",
)  # fmt: skip
_SWITCHES = ("standalone", "module", "no-python", "run-path", "virtual-local-rank", "use-env", "help")
_SHORT = {"m": "module", "r": "redirects", "t": "tee"}


class _Words(msgspec.Struct, frozen=True, kw_only=True):
    """The command taken apart."""

    variables: dict[str, str]
    removed: tuple[str, ...]
    is_cleared: bool
    """`env -i`: nothing is inherited."""
    is_torchrun: bool
    flags: dict[str, str]
    target: tuple[str, ...]
    """The script, or with the flag "module" the module, and its arguments."""
    problem: str = ""


def job_of_command(words: Sequence[str], *, environ: Mapping[str, str], cwd: Path, gpus: int | None = None) -> Job:
    """The job of a command line. gpus: what `--nproc-per-node gpu` means here."""
    taken = _take_apart(list(words))
    removed = {*taken.removed, *(environ if taken.is_cleared else ())} - taken.variables.keys()
    merged = {**{name: environ[name] for name in environ if name not in removed}, **taken.variables}
    flags = {**_from_variables(merged), **taken.flags} if taken.is_torchrun else {}
    path, is_agent, problem = _script(taken.target, is_module="module" in flags, flags=flags, cwd=cwd)
    return Job(
        kind=JobKind.COMMAND,
        launcher="torchrun" if taken.is_torchrun else "",
        problem=taken.problem or problem,
        variables=taken.variables,
        removed=tuple(sorted(removed)),
        trigger=Trigger.COLLECTOR if is_agent and merged.get("HANGDRILL_SOCKETS") else Trigger.NATIVE,
        nnodes=_nodes(flags.get("nnodes", "1")) if taken.is_torchrun else None,
        nproc_per_node=_ranks(flags.get("nproc-per-node", "1"), gpus) if taken.is_torchrun else None,
        max_restarts=_number(flags.get("max-restarts", "0")) if taken.is_torchrun else None,
        shutdown_timeout_s=_number(flags.get("shutdown-timeout", "")),
        script=read_script(path) if path is not None else None,
    )


def assigned(words: Sequence[str]) -> dict[str, str]:
    """Variables that words of a command may set: VAR=value."""
    return {word.partition("=")[0]: word.partition("=")[2] for word in words if _ASSIGNMENT.match(word)}


def _take_apart(words: list[str]) -> _Words:
    variables: dict[str, str] = {}
    removed: list[str] = []
    start = _launcher_at(words)
    for index, word in enumerate(words[: start[0]]):
        if _ASSIGNMENT.match(word):
            name, _, value = word.partition("=")
            variables[name] = value
        elif index and words[index - 1] in ("-u", "--unset"):
            removed.append(word)
        elif word.startswith("--unset="):
            removed.append(word.partition("=")[2])
    first, is_torchrun = start[1], start[2]
    flags, target, problem = _flags(words[first:]) if is_torchrun else _of_python(words, first)
    if not target and not problem:
        problem = "no script was found in the command"
    return _Words(
        variables=variables,
        removed=tuple(removed),
        is_cleared="env" in words[: start[0]] and bool({"-i", "--ignore-environment"} & set(words[: start[0]])),
        is_torchrun=is_torchrun,
        flags=flags,
        target=tuple(target),
        problem=problem,
    )


def _launcher_at(words: list[str]) -> tuple[int, int, bool]:
    """Where the launcher begins, where its arguments begin, and whether it is torchrun."""
    for index, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name == "torchrun":
            return index, index + 1, True
        if re.fullmatch(r"python[0-9.]*", name):
            for at in range(index + 1, len(words) - 1):
                if words[at] == "-m" and words[at + 1] in _MODULES:
                    return index, at + 2, True
                if not words[at].startswith("-"):
                    break
            return index, index + 1, False
    return len(words), len(words) + 1, False


def _of_python(words: list[str], first: int) -> tuple[dict[str, str], list[str], str]:
    """python [-u] SCRIPT, python -m MODULE."""
    if first > len(words):
        return {}, [], "neither torchrun nor python was found in the command"
    rest = words[first:]
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
    if rest and rest[0] == "-c":
        return {}, [], "the program is given with -c"
    return ({"module": "1"}, rest[1:], "") if rest and rest[0] == "-m" else ({}, rest, "")


def _flags(words: list[str]) -> tuple[dict[str, str], list[str], str]:
    """torchrun's flags by their long name, and what follows them."""
    flags: dict[str, str] = {}
    while words and words[0].startswith("-") and words[0] != "--":
        word, _, value = words.pop(0).partition("=")
        name = _full_name(word)
        if name in _SWITCHES:
            flags[name] = "1"
        elif name in _WITH_VALUE:
            if not value and not words:
                return flags, [], f"{word} has no value"
            flags[name] = value or words.pop(0)
        else:
            return flags, [], f"torchrun's flag {word} is not known: what follows it was not looked at"
    return flags, words[1:] if words[:1] == ["--"] else words, ""


def _full_name(word: str) -> str:
    name = word.lstrip("-").replace("_", "-")
    if not word.startswith("--"):
        return _SHORT.get(name, "")
    known = (*_WITH_VALUE, *_SWITCHES)
    close = [name] if name in known else [each for each in known if each.startswith(name)]
    return close[0] if len(close) == 1 else ""


def _from_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """torchrun takes a flag that is not given from PET_<FLAG>; a switch from one that is not 0."""
    found: dict[str, str] = {}
    for name in (*_WITH_VALUE, *_SWITCHES):
        value = environ.get(f"PET_{name.upper().replace('-', '_')}", "")
        if value and (name in _WITH_VALUE or value != "0"):
            found[name] = value
    return found


def _script(
    target: Sequence[str], *, is_module: bool, flags: Mapping[str, str], cwd: Path
) -> tuple[Path | None, bool, str]:
    """The script's file, whether the rank agent runs it, and what was not understood."""
    if not target:
        return None, False, ""
    if "no-python" in flags:
        return None, False, f"{target[0]} is a program, not a script: with --no-python there is nothing to look at"
    words, module = list(target), is_module or "module" in flags
    is_agent = module and words[0] == "hangdrill.rank"
    if is_agent:
        words = words[1:]
        module = words[:1] == ["-m"]
        words = words[1:] if module else words
    if not words or words[0].startswith("workload:"):
        return None, is_agent, ""
    return (_file_of_module(words[0], cwd) if module else cwd / words[0]), is_agent, ""


def _file_of_module(name: str, cwd: Path) -> Path:
    """Where `-m name` lies below the working directory; the first guess if it is elsewhere, which is then not seen."""
    base = cwd.joinpath(*name.split("."))
    package = base / "__main__.py"
    return package if package.is_file() else base.with_suffix(".py")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _nodes(text: str) -> int | None:
    """ "2" or "1:4", of which the larger counts."""
    return _number(text.rpartition(":")[2])


def _ranks(text: str, gpus: int | None) -> int | None:
    return (gpus or None) if text in GPU_COUNT else _number(text)
