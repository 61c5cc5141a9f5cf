"""How long `hangdrill --help` takes, beside `python -c pass` in the same environment.

Goal: at most 0.15 s more. Both are run alternately; the medians are compared, and bytecode is compiled beforehand.
"""

import argparse
import statistics
import subprocess
import sys
import time

NOTHING = [sys.executable, "-c", "pass"]
HELP = [sys.executable, "-m", "hangdrill", "--help"]


def elapsed_s(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    elapsed_s(HELP)  # compiles the bytecode and fills the page cache
    nothing, helped = [], []
    for _ in range(rounds):
        nothing.append(elapsed_s(NOTHING))
        helped.append(elapsed_s(HELP))
    least, took = statistics.median(nothing), statistics.median(helped)
    print(f"python -c pass {least:.3f} s, hangdrill --help {took:.3f} s: {took - least:.3f} s more (goal: 0.150 s)")


if __name__ == "__main__":
    main()
