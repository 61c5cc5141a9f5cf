"""How long a CPU drill takes, against the least it could take.

The least is: importing torch in all ranks at once, plus the process-group timeout. Goal: at most 1.25 x that.
Both are measured alternately in this run; the medians are compared.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORLD_SIZE = 4
TIMEOUT_S = 5.0


def import_torch_in_all_ranks_s() -> float:
    began = time.monotonic()
    ranks = [subprocess.Popen([sys.executable, "-c", "import torch"]) for _ in range(WORLD_SIZE)]
    for rank in ranks:
        rank.wait()
    return time.monotonic() - began


def drill_s(out_dir: Path) -> float:
    command = [sys.executable, "-m", "hangdrill", "run", "quick/ddp-hold", "--out", str(out_dir)]
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    imports, drills = [], []
    import_torch_in_all_ranks_s()  # fill the page cache for both sides
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(rounds):
            imports.append(import_torch_in_all_ranks_s())
            drills.append(drill_s(Path(scratch, str(number))))
    least_s = statistics.median(imports) + TIMEOUT_S
    drill_median_s = statistics.median(drills)
    print(f"import torch in {WORLD_SIZE} ranks: {statistics.median(imports):.2f} s; timeout: {TIMEOUT_S:.2f} s")
    print(f"drill quick/ddp-hold: {drill_median_s:.2f} s = {drill_median_s / least_s:.2f} x the least (goal 1.25)")


if __name__ == "__main__":
    main()
