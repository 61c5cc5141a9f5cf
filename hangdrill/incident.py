"""Path or paths -> evidence -> Diagnosis, for a real incident: what `hangdrill diagnose` and `hangdrill.diagnose` do.

It joins `hangdrill.recorder` (what is there) and `hangdrill.diagnosis` (what it means), and adds what only the one who
looked at the files knows: which were passed over, and which rank is claimed twice. It needs no torch.
"""

import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path

import msgspec

from hangdrill.diagnosis import diagnose as diagnose_dumps
from hangdrill.model.diagnosis import Diagnosis
from hangdrill.model.errors import UsageError
from hangdrill.recorder import MAX_WORLD, DumpError, Each, Evidence, IgnoredFile, merge_evidence, read_evidence
from hangdrill.recorder.printable import printable

__all__ = ["AnyPath", "diagnose", "diagnose_evidence", "read_incident"]

AnyPath = str | os.PathLike[str]
_SHOWN = 3
EMPTY = "check the path; gloo and nccl-lazy leave no dump by themselves (docs/what-torch-does.md)"
_AGENT_LINK = "/agent/hangdrill/rank"
"""In a run directory this is hangdrill's own link, by which the ranks find their agent."""
_RUN_NAMES = frozenset({
    "collector.log", "delivered.json", "inspection.json", "job.log", "journal.jsonl", "junit.xml", "plan.json",
    "result.json", "summary.json",
})  # fmt: skip
_RUN_PLACES = ("agent/", "control/", "sockets/", "torchrun/")
_RUN_DEPTHS = re.compile(r"/(agent/hangdrill/|torchrun/hd-)")
"""What else a drill leaves (docs/reference/run-directory.md), by name, below its directory, and too far down to be
entered: none of it is a dump."""


def diagnose(
    path_or_paths: AnyPath | Iterable[AnyPath],
    *,
    world_size: int | None = None,
    prefix: str | None = None,
    executor: Executor | None = None,
) -> Diagnosis:
    """What dumps tell of a hang.

    path_or_paths: directories (also a directory a host), files, archives (.tar, .tar.gz, .tgz, .zip; never extracted),
    run or evidence directories of hangdrill, and URLs that fsspec knows. world_size: how many ranks the job had;
    default: what the dumps say of the default group. prefix: read only files called <prefix><rank>; a path that is
    itself a prefix (what TORCH_FR_DUMP_TEMP_FILE was set to) needs none. executor: reads the files, and stays yours;
    default: this process reads, one file after the other. Its workers must see the files at the same paths.

    Raises UsageError (nothing there is a dump), MachineError (a file system cannot be reached): both are
    `hangdrill.model.errors.HangdrillError` and say what, where and what next.
    """
    paths = [path_or_paths] if isinstance(path_or_paths, str | os.PathLike) else list(path_or_paths)
    return diagnose_evidence(read_incident(paths, prefix=prefix, each=_each(executor)), world_size=world_size)


def read_incident(paths: Sequence[AnyPath], *, prefix: str | None = None, each: Each = map) -> Evidence:
    """The evidence of all paths together; `each` reads the files. Raises DumpError when nothing claims to be a dump."""
    places = [_as_prefix(path, prefix) for path in _distinct(paths)]
    evidence = merge_evidence([read_evidence(path, prefix=one, each=each) for path, one in places])
    if not evidence.claimed and not evidence.found:
        raise _no_dumps(evidence, paths, prefix)
    return evidence


def diagnose_evidence(evidence: Evidence, *, world_size: int | None = None) -> Diagnosis:
    """The diagnosis, with the files that were passed over and the ranks that are claimed twice."""
    if world_size is not None and not 0 < world_size <= MAX_WORLD:
        raise UsageError(
            f"a job has 1 to {MAX_WORLD} ranks, not {world_size}",
            where="world_size",
            next_step="give it, or leave it out",
        )
    found = diagnose_dumps(
        evidence.dumps,
        world_size=evidence.world_size if world_size is None else world_size,
        reports=evidence.reports,
        launch_groups=evidence.launch_groups,
        unreadable=evidence.unreadable,
    )
    twice = {one.rank for one in evidence.duplicates}
    ranks = msgspec.structs.replace(found.ranks, duplicate=tuple(sorted({*found.ranks.duplicate, *twice})))
    stacks = _stacks_notes(found, evidence)
    notes = dict.fromkeys([*found.notes, *stacks, *_duplicate_notes(evidence), *_ignored_notes(evidence)])
    return msgspec.structs.replace(found, ranks=ranks, notes=tuple(notes))


def _each(executor: Executor | None) -> Each:
    """Processes are the caller's to start: a library that starts some would run a script's main module again."""
    if executor is None:
        return map
    from hangdrill.readers import read_in_batches

    return read_in_batches(executor)


def _distinct(paths: Iterable[AnyPath]) -> list[str]:
    """Each path once: naming a directory twice does not make its ranks duplicates."""
    known: dict[str, str] = {}
    for path in paths:
        text = os.fspath(path)
        known.setdefault(text if "://" in text else os.path.realpath(text), text)
    return list(known.values())


def _as_prefix(path: str, prefix: str | None) -> tuple[str, str | None]:
    """The directory and the prefix, of a path that is itself one: what TORCH_FR_DUMP_TEMP_FILE was set to."""
    folder, name = os.path.split(path)
    if prefix is not None or not name or "://" in path or os.path.lexists(path):
        return path, prefix
    with suppress(OSError, ValueError), os.scandir(folder or ".") as entries:
        if any(one.name.startswith(name) and one.name[len(name) :][:1].isdigit() for one in entries):
            return folder or ".", name
    return path, prefix


def _no_dumps(evidence: Evidence, paths: Sequence[AnyPath], prefix: str | None) -> DumpError:
    where = ", ".join(os.fspath(path) for path in paths[:_SHOWN])
    problems = [one.error for one in evidence.unreadable if one.rank is None]
    if problems:
        return DumpError(f"no dump could be read: {problems[0]}", where=where, next_step="fetch it again")
    if not evidence.ignored:
        return DumpError("nothing is there, so no dump either", where=where, next_step=EMPTY)
    said = "; ".join(_counted(evidence.ignored))
    more = "check --prefix" if prefix is not None else "give --prefix if they are called otherwise than fr_<rank>"
    return DumpError(f"no dump is there, but {said}", where=where, next_step=more)


def _duplicate_notes(evidence: Evidence) -> list[str]:
    return [
        f"{len(one.files)} files claim to be rank {one.rank}'s and all were read: {_some(one.files)}"
        for one in evidence.duplicates
    ]


def _stacks_notes(found: Diagnosis, evidence: Evidence) -> list[str]:
    """Where the collector's stacks of the first culprits lie, beside the dumps: a dump of gloo has none itself."""
    folders = list(dict.fromkeys(Path(dump.path).parent for dump in evidence.dumps))[:_SHOWN]
    notes = []
    for culprit in found.culprits[:_SHOWN]:
        files: list[Path] = []
        with suppress(OSError, ValueError):
            for folder in folders:
                files += sorted(folder.glob(f"rank_{culprit.rank}.a*.stacks*.txt"))
        if files:
            notes.append(f"the stacks of rank {culprit.rank} are in {_some([printable(str(path)) for path in files])}")
    return notes


def _ignored_notes(evidence: Evidence) -> list[str]:
    """What was passed over, less the files that hangdrill itself leaves where a run of its own is."""
    paths = {file.path for file in evidence.ignored}
    runs = [path.removesuffix("plan.json") for path in paths if posixpath.basename(path) == "plan.json"]
    runs = [run for run in runs if f"{run}journal.jsonl" in paths]
    inside = tuple(run + place for run in runs for place in _RUN_PLACES)

    def is_own(path: str) -> bool:
        return posixpath.basename(path) in _RUN_NAMES or path.startswith(inside) or bool(_RUN_DEPTHS.search(f"/{path}"))

    has_run = evidence.found or bool(runs)
    told = [file for file in evidence.ignored if not (has_run and is_own(file.path))]
    return [f"passed over: {text}" for text in _counted(told)]


def _counted(ignored: Iterable[IgnoredFile]) -> list[str]:
    """One text a reason, with a few of the files it holds for."""
    reasons: dict[str, list[str]] = {}
    for file in ignored:
        if f"/{file.path}".endswith(_AGENT_LINK):
            continue
        reasons.setdefault(file.reason, []).append(file.path)
    return [
        f"{len(paths)} {'file' if len(paths) == 1 else 'files'} ({reason}): {_some(paths)}"
        for reason, paths in reasons.items()
    ]


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:_SHOWN]) + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")
