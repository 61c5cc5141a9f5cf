"""Spoils real dumps and reads them: a diagnosis or one clear error, never a traceback, a hang, code run, or 200 MB.

    python tests/recorder/fuzz_reading.py --mutations 1000000 [--processes 2] [--seed 0]
    python tests/recorder/fuzz_reading.py --prefixes [--stride 4]   # every prefix of every file instead
    python tests/recorder/fuzz_reading.py --only 4711          # one mutation again, with its traceback

Each process is limited in memory and watched by an audit hook (nothing may be executed, written or looked up by a
pickle). Ends with 1 when there was a violation.
"""

import argparse
import collections
import contextlib
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from fuzz_mutations import Seed, mutated, seeds  # noqa: E402 - the path is set above; so below

from hangdrill.incident import diagnose  # noqa: E402 - after the setting above
from hangdrill.model.errors import HangdrillError  # noqa: E402 - after the setting above
from hangdrill.recorder import whole_pickle  # noqa: E402 - after the setting above

whole_pickle.MIN_BYTES = 0  # small files, too, are to be read both ways

MAX_RSS_MB = 200
MAX_ADDRESS_SPACE = 1024**3
MAX_SECONDS = 20
REPORT_EVERY = 1000
OWN_CODE = (str(Path(json.__file__).parents[1]), str(Path(__file__).parents[2]), "<frozen ")
FORBIDDEN = (
    "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pickle.find_class", "exec",
    "compile", "socket.connect", "ctypes.dlopen", "os.remove", "os.rename", "os.mkdir", "shutil.rmtree",
)  # fmt: skip


class Hang(Exception):
    """One file took longer than MAX_SECONDS."""


class Executed(Exception):
    """Something was run or written."""


class Guard:
    """Watches one reading: audit events, and a timer. Both are off outside of it."""

    def __init__(self) -> None:
        self.on = False
        self.seen = ""
        sys.addaudithook(self._hear)
        signal.signal(signal.SIGALRM, self._ring)

    def read(self, what: Callable[[], str]) -> str:
        """The answer, under guard. Raises Hang, Executed, or what the reader raised."""
        self.on, self.seen = True, ""
        signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
        try:
            answer = what()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.on = False
        if self.seen:
            raise Executed(self.seen)
        return answer

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.on:
            return
        if event == "exec" and getattr(arguments[0], "co_filename", "").startswith(OWN_CODE):
            return  # a late import of our own or of Python's
        writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        if event in FORBIDDEN or writes:
            self.seen = f"{event} {arguments!r}"[:200]
            raise Executed(self.seen)

    def _ring(self, *_: object) -> None:
        raise Hang(f"longer than {MAX_SECONDS} s")


def answer_of(folder: Path, name: str) -> str:
    """What diagnosing comes to: the verdict, or "refused"; anything else escapes."""
    target = folder / name if name.startswith("all.") else folder
    try:
        return diagnose(target).verdict.value
    except HangdrillError as error:
        text = str(error)
        assert "\n  next: " in text, text
        assert len(text) < 1500, text
        return "refused"


def case_number(number: int, seed: int, known: tuple[Seed, ...]) -> tuple[Seed, bytes]:
    """Mutation `number`: which file, and what it holds now."""
    dice = random.Random(f"{seed}:{number}")
    (chosen,) = dice.choices(known, weights=[1 / min(len(one.data), 16_000) for one in known])  # small ones are quick
    return chosen, mutated(chosen.data, tuple(one.data for one in known), dice)


def prefixes(known: tuple[Seed, ...], stride: int) -> Iterator[tuple[Seed, bytes]]:
    """Every prefix of every file, or every stride-th."""
    for seed in known:
        for size in range(0, len(seed.data), stride):
            yield seed, seed.data[:size]


def put(folder: Path, seed: Seed, data: bytes) -> None:
    for old in folder.iterdir():
        old.unlink()
    (folder / seed.name).write_bytes(data)
    for name, content in seed.beside:
        (folder / name).write_bytes(content)


def child(cases: Iterator[tuple[int, Seed, bytes]], report: Callable[[dict[str, object]], None]) -> None:
    """Read all cases; report counts every REPORT_EVERY, and each violation."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE, MAX_ADDRESS_SPACE))
    guard = Guard()
    counts: collections.Counter[str] = collections.Counter()
    done = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        folder = Path(place)
        for number, seed, data in cases:
            put(folder, seed, data)
            try:
                counts[guard.read(lambda: answer_of(folder, seed.name))] += 1  # noqa: B023 - called at once
            except (Exception, RecursionError, MemoryError) as error:
                where = traceback.format_exc(limit=-3)
                report({"violation": f"{type(error).__name__}: {error}", "number": number, "where": where})
            done += 1
            if done % REPORT_EVERY == 0:
                report({"done": done, "counts": counts, "rss_mb": peak_mb(), "at": number})
    report({"done": done, "counts": counts, "rss_mb": peak_mb(), "ended": True})


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    options = _options()
    known = seeds()
    if options.only is not None:
        seed, data = case_number(options.only, options.seed, known)
        with tempfile.TemporaryDirectory() as place:
            put(Path(place), seed, data)
            print(seed.name, len(data), answer_of(Path(place), seed.name))
        return 0
    if options.child is not None:
        first, last = options.child
        cases = ((number, *case_number(number, options.seed, known)) for number in range(first, last))
        if options.prefixes:
            whole = enumerate(prefixes(known, options.stride))
            cases = ((number, *case) for number, case in whole if number % last == first)
        child(cases, lambda line: print(json.dumps(line), flush=True))
        return 0
    return _parent(options)


def _parent(options: argparse.Namespace) -> int:
    """Start the children, add up what they say."""
    began = time.monotonic()
    share = -(-options.mutations // options.processes)
    base = [sys.executable, __file__, "--seed", str(options.seed), "--stride", str(options.stride)]
    plans = [
        [*base, "--child", str(at), str(min(at + share, options.mutations))]
        for at in range(0, options.mutations, share)
    ]
    if options.prefixes:
        plans = [[*base, "--prefixes", "--child", str(n), str(options.processes)] for n in range(options.processes)]
    running = [subprocess.Popen(plan, stdout=subprocess.PIPE, text=True) for plan in plans]
    total: collections.Counter[str] = collections.Counter()
    violations, rss_mb = 0, 0.0
    for process in running:
        assert process.stdout is not None
        last: dict[str, object] = {}
        for line in process.stdout:
            said = json.loads(line)
            if "violation" in said:
                violations += 1
                print(f"VIOLATION {said['number']}: {said['violation']}\n{said['where']}", flush=True)
            else:
                last = said
        if process.wait() != 0 or "ended" not in last:
            violations += 1
            print(f"VIOLATION: a process ended with {process.returncode}; it had said {last}", flush=True)
        with contextlib.suppress(KeyError):
            total.update(last["counts"])  # type: ignore[arg-type]  # JSON of this file itself
            rss_mb = max(rss_mb, float(str(last["rss_mb"])))
    if rss_mb > MAX_RSS_MB:
        violations += 1
        print(f"VIOLATION: {rss_mb:.0f} MB of memory")
    seconds = time.monotonic() - began
    count = total.total()
    print(f"{count} files read in {seconds:.0f} s ({count / seconds:.0f} a second), peak memory {rss_mb:.0f} MB")
    print(f"answers: {dict(total.most_common())}; violations: {violations}")
    return 1 if violations else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--prefixes", action="store_true", help="Every prefix of every file instead.")
    parser.add_argument("--stride", type=int, default=1, help="Every so-many-th prefix only.")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="Read this mutation again.")
    parser.add_argument("--child", type=int, nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
