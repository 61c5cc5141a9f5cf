"""The state of a rank's process as Linux tells it, from outside and without its help."""

import os
from pathlib import Path

import msgspec

from hangdrill.model.run import RankState

__all__ = ["ProcessRecord", "ProcessStat", "find_contained", "process_state", "read_process", "read_stat"]

_CHILDREN_LIMIT = 64
_THREADS_LIMIT = 256


class ProcessStat(msgspec.Struct, frozen=True, kw_only=True):
    """The two facts that tell a process from a later one with its pid. started_ticks: since boot, in clock ticks."""

    letter: str
    started_ticks: int


class ThreadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One thread: what it is doing in the kernel."""

    id: int
    name: str
    letter: str
    wchan: str


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`evidence/rank_<r>.a<k>.process.json`: one look at a process. letter as in proc(5): R, S, D, T, t, Z, X."""

    pid: int
    looked_ns: int
    state: RankState
    letter: str = ""
    started_ns: int | None = None
    wchan: str = ""
    cmdline: tuple[str, ...] = ()
    status: dict[str, str] = msgspec.field(default_factory=dict)
    threads: tuple[ThreadRecord, ...] = ()
    children: tuple[int, ...] = ()


def read_stat(pid: int) -> ProcessStat | None:
    """State letter and start time of a process, None when there is none. A name may hold blanks and brackets."""
    try:
        text = _read(Path(f"/proc/{pid}/stat"))
        fields = text[text.rindex(")") + 2 :].split()
        return ProcessStat(letter=fields[0], started_ticks=int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None


def find_contained(pid: int, run_id: str) -> int | None:
    """The pid, here, of the run's process that calls itself `pid` in its container; None when it is not visible."""
    mark = f"HANGDRILL_RUN_ID={run_id}".encode()
    for candidate in _numbers(Path("/proc")):
        names = _status(_read_or_empty(Path(f"/proc/{candidate}/status"))).get("NSpid", "").split()
        if len(names) > 1 and names[-1] == str(pid) and mark in _environ(candidate):
            return candidate
    return None


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def process_state(pid: int, started_ticks: int | None = None) -> RankState:
    """The state by pid. started_ticks guards against another process that got the same pid later.

    A zombie counts as gone: nothing of it can be asked any more.
    """
    return _state(read_stat(pid), started_ticks)


def _state(stat: ProcessStat | None, started_ticks: int | None) -> RankState:
    if stat is None or stat.letter in "ZXx" or (started_ticks is not None and stat.started_ticks != started_ticks):
        return RankState.GONE
    return RankState.STOPPED if stat.letter in "Tt" else RankState.RUNNING


def read_process(pid: int, *, looked_ns: int, started_ticks: int | None = None) -> ProcessRecord:
    """Everything /proc says, as far as it says it: a missing file leaves its field empty."""
    stat = read_stat(pid)
    state = _state(stat, started_ticks)
    if stat is None or state is RankState.GONE:
        return ProcessRecord(
            pid=pid, looked_ns=looked_ns, state=RankState.GONE, letter="" if stat is None else stat.letter
        )
    root = Path(f"/proc/{pid}")
    return ProcessRecord(
        pid=pid,
        looked_ns=looked_ns,
        state=state,
        letter=stat.letter,
        started_ns=started_ns(stat),
        wchan=_read_or_empty(root / "wchan"),
        cmdline=tuple(part for part in _read_or_empty(root / "cmdline").split("\0") if part),
        status=_status(_read_or_empty(root / "status")),
        threads=_threads(root),
        children=_children(root),
    )


def started_ns(stat: ProcessStat) -> int | None:
    """When the process began, on the wall clock, to about 10 ms."""
    try:
        boot_s = next(
            int(line.split()[1]) for line in _read(Path("/proc/stat")).splitlines() if line.startswith("btime ")
        )
    except (OSError, ValueError, StopIteration, IndexError):
        return None
    return int((boot_s + stat.started_ticks / os.sysconf("SC_CLK_TCK")) * 1e9)


def _status(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key: value.strip() for key, separator, value in pairs if separator}


def _threads(root: Path) -> tuple[ThreadRecord, ...]:
    records = []
    for thread_id in _numbers(root / "task")[:_THREADS_LIMIT]:
        task = root / "task" / str(thread_id)
        text = _read_or_empty(task / "stat")
        letter = text[text.rindex(")") + 2 :][:1] if ")" in text else ""
        name = _read_or_empty(task / "comm").strip()
        records.append(ThreadRecord(id=thread_id, name=name, letter=letter, wchan=_read_or_empty(task / "wchan")))
    return tuple(records)


def _children(root: Path) -> tuple[int, ...]:
    """Of all threads; empty where the kernel does not tell (it needs CONFIG_PROC_CHILDREN)."""
    found: set[int] = set()
    for thread_id in _numbers(root / "task")[:_THREADS_LIMIT]:
        found.update(int(word) for word in _read_or_empty(root / "task" / str(thread_id) / "children").split())
    return tuple(sorted(found)[:_CHILDREN_LIMIT])


def _numbers(directory: Path) -> list[int]:
    try:
        # Names alone are wanted, of a directory that changes meanwhile.
        return sorted(int(name) for name in os.listdir(directory) if name.isdigit())  # noqa: PTH208 - names are enough
    except OSError:
        return []


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _read_or_empty(path: Path) -> str:
    try:
        return _read(path)
    except OSError:
        return ""
