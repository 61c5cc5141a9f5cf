"""How long the quick suite takes with -j 2, 3 and 4 on this machine (goal: at most 60 s on two cores)."""

import os
import subprocess
import sys
import tempfile
import time


def main() -> None:
    for jobs in (2, 3, 4):
        with tempfile.TemporaryDirectory() as scratch:
            began = time.monotonic()
            command = [sys.executable, "-m", "hangdrill", "run", "-j", str(jobs), "--out", scratch + "/runs"]
            result = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
            elapsed_s = time.monotonic() - began
        print(f"-j {jobs}: {elapsed_s:.1f} s, exit code {result.returncode}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
