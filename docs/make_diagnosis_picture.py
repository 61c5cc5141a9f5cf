"""Make docs/img/diagnosis.png, the page of a made-up hang of many ranks: `python docs/make_diagnosis_picture.py`.

The job: tensor-parallel groups of 8 and data-parallel groups across them. One rank stays behind in its data loader,
its tensor-parallel peers wait for it, and everybody else waits for those. Two ranks left no dump.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hangdrill.diagnosis import diagnose
from hangdrill.model.dump import DumpFormat, Frame, Group, Operation, OperationState, RankDump
from hangdrill.report.html import page_html
from hangdrill.report.story import tell_story

START_NS = 1_795_969_000_000_000_000
STEP_NS = 2_100_000
WIDTH = 8
"""Ranks of a tensor-parallel group."""
LAYERS = 4
CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    "--force-device-scale-factor=1.5",
)


def history(rank: int, world: int, *, late: bool, behind: bool, steps: int, kept: int) -> Iterator[Operation]:
    """One rank: LAYERS all_gathers of its tensor-parallel group, then one all_reduce across, a step."""
    tensor, data = f"{1 + rank // WIDTH}", f"{1 + world // WIDTH + rank % WIDTH}"
    counts = {"tp": 0, "dp": 0}
    total = steps * (LAYERS + 1)
    for number in range(total):
        across = number % (LAYERS + 1) == LAYERS
        desc = "dp" if across else "tp"
        counts[desc] += 1
        is_last = across if not behind else number == total - LAYERS - 1
        last_step = number >= total - LAYERS - 1
        if late and last_step:
            return
        pending = last_step and is_last
        if number >= total - kept:
            yield operation(number, desc, data if across else tensor, counts[desc], rank, pending=pending)
        if pending:
            return


def operation(number: int, desc: str, group: str, sequence: int, rank: int, *, pending: bool) -> Operation:
    """One entry, with a stack as torch records it."""
    line = 88 if desc == "dp" else 41
    frames = (
        Frame(filename="/venv/site-packages/torch/distributed/distributed_c10d.py", line=4174, name="all_reduce"),
        Frame(filename="/app/train/parallel.py" if desc == "tp" else "/app/train/loop.py", line=line, name="step"),
        Frame(filename="/app/train/loop.py", line=31, name="main"),
    )
    return Operation(
        record_id=number,
        pg_id=int(group),
        group_name=group,
        group_desc=desc,
        name="_all_gather_base" if desc == "tp" else "all_reduce",
        backend="nccl2",
        sequence=sequence,
        p2p=False,
        op_id=sequence - 1,
        state=OperationState.SCHEDULED if pending else OperationState.COMPLETED,
        retired=not pending,
        created_ns=START_NS + number * STEP_NS + (rank * 7919) % 90_000,
        timeout_ms=600_000,
        frames=frames,
    )


def dumps(world: int, culprit: int, lost: frozenset[int], steps: int) -> list[RankDump]:
    """All dumps but the lost ones."""
    every = Group(name="0", desc="default_pg", ranks=tuple(range(world)))
    found = []
    for rank in range(world):
        if rank in lost:
            continue
        first = rank // WIDTH * WIDTH
        tensor = Group(name=f"{1 + rank // WIDTH}", desc="tp", ranks=tuple(range(first, first + WIDTH)))
        name = f"{1 + world // WIDTH + rank % WIDTH}"
        data = Group(name=name, desc="dp", ranks=tuple(range(rank % WIDTH, world, WIDTH)))
        behind = first == culprit // WIDTH * WIDTH
        kept = 60 if rank % 64 == 41 else 10_000
        operations = tuple(history(rank, world, late=rank == culprit, behind=behind, steps=steps, kept=kept))
        found.append(
            RankDump(
                rank=rank,
                path=f"fr_{rank}",
                format=DumpFormat.PICKLE,
                version=(2, 10),
                groups=(every, tensor, data),
                status=(),
                operations=operations,
            )
        )
    return found


def main() -> None:
    """Write the page, and a picture of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=512)
    parser.add_argument("--culprit", type=int, default=137)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "img")
    parser.add_argument("--height", type=int, default=1560)
    parser.add_argument("--keep", action="store_true", help="keep the page too")
    arguments = parser.parse_args()
    lost = frozenset({arguments.culprit + 3, arguments.world - 1})
    evidence = dumps(arguments.world, arguments.culprit, lost, arguments.steps)
    page = arguments.to / "diagnosis.html"
    page.write_text(page_html(tell_story(diagnose(evidence), evidence)), encoding="utf-8")
    picture = arguments.to / "diagnosis.png"
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", f"--window-size=1180,{arguments.height}"]
        subprocess.run([*command, f"--screenshot={picture}", page.as_uri()], check=True, timeout=120)
    if not arguments.keep:
        page.unlink()


if __name__ == "__main__":
    main()
