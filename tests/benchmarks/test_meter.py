"""What the benchmarks measure with: the whole tree of a command counts, and nothing of it stays.

Each command is measured by a Python of its own, because the meter adopts the orphans of its process.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MEASURE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from scale.meter import become_reaper, measure
become_reaper()
usage = measure([sys.executable, "-c", sys.argv[2]], memory=sys.argv[3] == "memory", deadline_s=float(sys.argv[4]))
print(json.dumps({**usage._asdict(), "peak": usage.peak_bytes(), "before": usage.peak_bytes(until_s=0)}))
"""
NOTHING = "pass"
CHILD_HOLDS_80_MB = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import sys, select; held = b'x' * 80_000_000; select.select([], [], [], 1.0)"])
"""
ORPHAN_WORKS = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.5: pass"])
"""
NEVER_ENDS = """
import subprocess, sys, signal
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
signal.pause()
"""


def measured(code: str, what: str = "time", deadline_s: float = 60.0) -> dict[str, Any]:
    command = [sys.executable, "-c", MEASURE, str(BENCHMARKS), code, what, str(deadline_s)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout)


def test_the_memory_of_a_child_counts() -> None:
    found = measured(CHILD_HOLDS_80_MB, "memory")
    assert found["exit_code"] == 0
    assert found["peak"] > 80_000_000
    assert found["largest_process_bytes"] > 80_000_000
    assert found["before"] == 0


def test_a_small_command_has_a_small_peak() -> None:
    assert measured("import time; time.sleep(0.3)", "memory")["peak"] < 80_000_000


def test_the_cpu_time_of_an_orphan_counts() -> None:
    assert measured(ORPHAN_WORKS)["cpu_s"] >= 0.5


def test_a_command_is_told_by_what_it_printed_and_its_exit_code() -> None:
    found = measured("import sys; print('out'); print('bad', file=sys.stderr); sys.exit(3)")
    assert (found["exit_code"], found["stdout"], found["stderr"]) == (3, "out\n", "bad\n")
    assert found["samples"] == []


def test_a_command_beyond_its_deadline_is_killed_with_its_children() -> None:
    assert measured(NEVER_ENDS, deadline_s=1.0)["exit_code"] == -9
    assert measured(NOTHING)["exit_code"] == 0
