"""parses: every dump of every expected rank reads to its end, and its format is one that is known."""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import absence, artifact_of, dumps_of, expected_ranks
from hangdrill.checks.place import FREE_SPACE, full_disk, room_left
from hangdrill.checks.words import count_text, list_text
from hangdrill.model.dump import RankDump
from hangdrill.model.run import RecordedRun

__all__ = ["CHECK", "NEWEST_VERSION", "OLDEST_VERSION"]

NATIVE_ROADS = ("native", "debug-server")
LET_IT_WRITE = (
    "let the rank finish: a longer grace before SIGKILL (of the pod, the scheduler), so that its dump gets whole"
)
OLDEST_VERSION = (2, 0)
NEWEST_VERSION = (2, 10)


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    findings = {rank: _judge_rank(run, rank) for rank in expected}
    dumps = [dump for rank in expected for dump in dumps_of(run, rank)]
    versions = sorted({dump.version for dump in dumps})
    spelled = ", ".join(".".join(map(str, version)) for version in versions)
    return by_rank(
        findings,
        f"{count_text(len(dumps), 'file')} of format {spelled}",
        "the writer was cut off or the disk was full: see job.log",
    )


def _judge_rank(run: RecordedRun, rank: int) -> Finding:
    dumps = dumps_of(run, rank)
    cut = tuple(f"{dump.path}: " for dump in dumps if dump.salvaged)  # these are told below, with what was saved
    errors = [error for error in run.unreadable.get(rank, ()) if not error.startswith(cut)]
    if errors:
        return failed(f"unreadable: {list_text(errors, most=2)}")
    if not dumps:
        return unknown(absence(run, rank))
    problems = [problem for dump in dumps if (problem := _problem(dump))]
    if any(dump.salvaged for dump in dumps) and (cause := _cause(run, dumps)):
        return failed(f"{list_text(problems, most=2)}: {cause}", FREE_SPACE if full_disk(run) else LET_IT_WRITE)
    return failed(list_text(problems, most=2)) if problems else passed()


def _cause(run: RecordedRun, dumps: tuple[RankDump, ...]) -> str:
    """What cut a file that torch wrote by itself, where the place of the dumps tells."""
    artifacts = (artifact_of(run, dump) for dump in dumps if dump.salvaged)
    if not any(artifact is not None and artifact.road in NATIVE_ROADS for artifact in artifacts):
        return ""
    return full_disk(run) or room_left(run)


def _problem(dump: RankDump) -> str:
    name = dump.path.rsplit("/", maxsplit=1)[-1]
    if dump.salvaged:
        where = f" at byte {dump.cut_at_byte}" if dump.cut_at_byte is not None else ""
        return f"{name} is cut{where}; {count_text(len(dump.operations), 'operation')} salvaged"
    if not OLDEST_VERSION <= dump.version <= NEWEST_VERSION:
        return f"{name} has format {'.'.join(map(str, dump.version))}, known are 2.0 to 2.10"
    return ""


CHECK = Check(
    name="parses",
    claim="Every dump reads to its end and has a known format version (2.0 to 2.10).",
    judge=_judge,
)
