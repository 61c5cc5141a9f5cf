"""`hangdrill diagnose` of a whole cluster's dumps, beside pickle.load of the same files on the same cores.

Both run alternately in this run, each with all its processes; every answer is held against the truth of the set.
Printed are medians, and the median and extremes of the ratio within a round. Memory is measured in a run of its own.
Goals: at 1024 ranks x 2000 entries at most 1.3 x pickle.load and 500 MB; per rank at 4096 at most 1.1 x that at 256;
16384 ends at all (`--sizes 256,1024,4096,16384`, as in `make scale`). The dumps are made on first use, in a cache
outside the repository: see make_dumps.py, which also removes them (16384 ranks take 8.1 GB). torch's own analyzer runs
once on the sharded sets of up to --torch-up-to ranks.
"""

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from make_dumps import PREFIX, DumpSet, cache_dir, make
from scale.jobs import culprit_of
from scale.meter import Usage, become_reaper, measure

GOAL_SIZE = 1024
GOAL_ENTRIES = 2000
GOAL_RATIO = 1.3
GOAL_PEAK_MB = 500
GOAL_GROWTH = 1.1
VARIANTS = [{"distinct": True}, {"flavour": "pipeline"}]
HERE = Path(__file__).parent / "scale"
PYTHON = sys.executable


def hangdrill(dumps: Path) -> list[str]:
    return [PYTHON, "-m", "hangdrill", "diagnose", str(dumps)]


def pickles(dumps: Path, *options: str) -> list[str]:
    return [PYTHON, str(HERE / "pickle_all.py"), *options, str(dumps)]


def compare(wanted: DumpSet, dumps: Path, rounds: int) -> dict[str, Any]:
    """All figures of one set."""
    check(
        wanted, json.loads(done(measure([*hangdrill(dumps), "--json"]), 1).stdout)["culprits"]
    )  # fills the caches too
    done(measure(pickles(dumps)), 0)
    times: dict[str, list[Usage]] = {"hangdrill": [], "pickle": []}
    for number in range(rounds):
        for who in sorted(times, reverse=bool(number % 2)):
            usage = measure(hangdrill(dumps) if who == "hangdrill" else pickles(dumps))
            times[who].append(done(usage, 1 if who == "hangdrill" else 0))
    ratios = [ours.wall_s / theirs.wall_s for ours, theirs in zip(times["hangdrill"], times["pickle"], strict=True)]
    return {
        "set": wanted.name,
        "ranks": wanted.ranks,
        "entries": wanted.entries,
        "bytes": sum(path.stat().st_size for path in dumps.iterdir()),
        "rounds": rounds,
        **{who: medians(usages) for who, usages in times.items()},
        "pickle_no_gc_wall_s": done(measure(pickles(dumps, "--no-gc")), 0).wall_s,
        "pickle_peak_bytes": done(measure(pickles(dumps), memory=True), 0).peak_bytes(),
        "ratio": statistics.median(ratios),
        "ratio_extremes": [min(ratios), max(ratios)],
        **memory(wanted, dumps),
    }


def medians(usages: list[Usage]) -> dict[str, float]:
    return {
        "wall_s": statistics.median(usage.wall_s for usage in usages),
        "cpu_s": statistics.median(usage.cpu_s for usage in usages),
    }


def memory(wanted: DumpSet, dumps: Path) -> dict[str, Any]:
    """The peak of the command, and where its time and memory go."""
    command = done(measure(hangdrill(dumps), memory=True), 1)
    steps = done(measure([PYTHON, str(HERE / "phases.py"), str(dumps)], memory=True), 0)
    told = json.loads(steps.stdout)
    check(wanted, [{"rank": rank} for rank in told["culprits"]])
    return {
        "peak_bytes": command.peak_bytes(),
        "largest_process_bytes": command.largest_process_bytes,
        "phases": {
            name: {"wall_s": ended - began, "peak_bytes": steps.peak_bytes(since_s=began, until_s=ended)}
            for name, began, ended in told["phases"]
        },
    }


def check(wanted: DumpSet, culprits: list[dict[str, Any]]) -> None:
    """Fast and wrong is no figure."""
    named = [culprit["rank"] for culprit in culprits]
    if named != [culprit_of(wanted.ranks)]:
        raise SystemExit(f"{wanted.name}: hangdrill named {named}, the truth is {[culprit_of(wanted.ranks)]}")


def done(usage: Usage, exit_code: int) -> Usage:
    if usage.exit_code != exit_code:
        raise SystemExit(f"exit code {usage.exit_code} instead of {exit_code}: {usage.stderr[-2000:]}")
    return usage


def analyzer(dumps: Path, deadline_s: float) -> dict[str, Any]:
    """torch's own analyzer, once: it may crash, and exits with 0 whatever it finds."""
    module = "torch.distributed.flight_recorder.fr_trace"
    usage = measure([PYTHON, "-m", module, str(dumps), "--prefix", PREFIX], memory=True, deadline_s=deadline_s)
    lines = usage.stderr.strip().splitlines() if usage.exit_code else []
    ended = "deadline" if usage.exit_code == -9 else f"exit code {usage.exit_code}"
    return {
        "wall_s": usage.wall_s,
        "peak_bytes": usage.peak_bytes(),
        "ended": f"{ended}{': ' + lines[-1][:200] if lines else ''}",
    }


def report(row: dict[str, Any]) -> Iterator[str]:
    """One set, as lines."""
    ours, theirs = row["hangdrill"], row["pickle"]
    low, high = row["ratio_extremes"]
    is_goal = (row["ranks"], row["entries"]) == (GOAL_SIZE, GOAL_ENTRIES)
    yield f"{row['set']}: {row['bytes'] / 1e6:,.0f} MB, {row['rounds']} rounds"
    peak = f"peak {row['pickle_peak_bytes'] / 1e6:6.0f} MB  (without gc {row['pickle_no_gc_wall_s']:.2f} s)"
    yield f"  pickle.load  {theirs['wall_s']:8.2f} s  CPU {theirs['cpu_s']:8.2f} s  {peak}"
    peak = f"peak {row['peak_bytes'] / 1e6:6.0f} MB  (largest process {row['largest_process_bytes'] / 1e6:.0f} MB)"
    peak += goal(f"{GOAL_PEAK_MB} MB", wanted=is_goal)
    yield f"  hangdrill    {ours['wall_s']:8.2f} s  CPU {ours['cpu_s']:8.2f} s  {peak}"
    ratio = f"{row['ratio']:.2f} [{low:.2f}, {high:.2f}]{goal(f'{GOAL_RATIO} x', wanted=is_goal)}"
    yield f"  ratio {ratio}, {1000 * ours['wall_s'] / row['ranks']:.2f} ms a rank"
    for name, phase in row["phases"].items():
        yield f"  {name:12} {phase['wall_s']:8.2f} s  peak {phase['peak_bytes'] / 1e6:6.0f} MB"
    if torch := row.get("torch"):
        yield f"  torch        {torch['wall_s']:8.2f} s  peak {torch['peak_bytes'] / 1e6:6.0f} MB  ({torch['ended']})"


def goal(text: str, *, wanted: bool) -> str:
    return f" (goal: at most {text})" if wanted else ""


def growth(rows: list[dict[str, Any]]) -> str:
    """The time a rank at 4096 ranks against 256, of both contenders."""
    by_ranks = {row["ranks"]: row for row in rows if row["set"].startswith("fsdp-") and "distinct" not in row["set"]}
    if not {256, 4096} <= by_ranks.keys():
        return ""
    small, large = by_ranks[256], by_ranks[4096]
    ours, theirs = (
        large[who]["wall_s"] / small[who]["wall_s"] * small["ranks"] / large["ranks"] for who in ("hangdrill", "pickle")
    )
    return f"per rank, 4096 against 256: {ours:.2f} x (goal: at most {GOAL_GROWTH} x); pickle.load {theirs:.2f} x"


def wanted_sets(given: argparse.Namespace) -> Iterator[DumpSet]:
    for ranks in given.sizes:
        yield DumpSet(ranks, given.entries)
    if given.variants_at:
        yield from (DumpSet(given.variants_at, given.entries, **variant) for variant in VARIANTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"type": lambda text: [int(one) for one in text.split(",")], "metavar": "RANKS,..."}
    parser.add_argument("--sizes", **sizes, default=[256, GOAL_SIZE])
    parser.add_argument("--entries", type=int, default=GOAL_ENTRIES, help="of each ring buffer")
    parser.add_argument("--rounds", type=int, default=5, help="at sizes up to 1024; fewer beyond")
    parser.add_argument(
        "--variants-at", type=int, default=GOAL_SIZE, help="ranks of the other two sorts of sets; 0: none"
    )
    parser.add_argument("--torch-up-to", type=int, default=GOAL_SIZE, help="ranks; 0: leave torch's analyzer out")
    parser.add_argument("--torch-deadline-s", type=float, default=600.0)
    parser.add_argument("--json", dest="json_file", type=Path, metavar="FILE")
    given = parser.parse_args()
    become_reaper()
    print(f"Python {platform.python_version()}, {len(os.sched_getaffinity(0))} cores", flush=True)
    rows = []
    for wanted in wanted_sets(given):
        dumps = make(wanted, cache_dir())
        row = compare(wanted, dumps, max(1, min(given.rounds, given.rounds * GOAL_SIZE // wanted.ranks)))
        if wanted.ranks <= given.torch_up_to and wanted == DumpSet(wanted.ranks, wanted.entries):
            row["torch"] = analyzer(dumps, given.torch_deadline_s)
        rows.append(row)
        print("\n".join(report(row)), flush=True)
    if said := growth(rows):
        print(said)
    if given.json_file is not None:
        given.json_file.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
