"""The controller never imports torch, and `--help` imports nothing heavy: shown in a process of its own."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

HEAVY = {"torch", "numpy", "rich", "msgspec", "jinja2", "psutil", "fsspec", "dask", "distributed"}
PROBE = """
import json, sys
from hangdrill.cli import run_command
codes = [run_command(arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([codes, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


def modules_after(*commands: list[str]) -> tuple[list[int], set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(commands)], capture_output=True, text=True, check=True, timeout=120
    )
    codes, modules = json.loads(done.stderr.splitlines()[-1])
    return codes, set(modules)


def dump(path: Path, *, entered: int) -> None:
    """A dump of one of two ranks that entered so many all_reduces."""
    entries = [
        {
            "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number + 1,
            "p2p_seq_id": 0, "op_id": number + 1, "profiling_name": "nccl2:all_reduce", "time_created_ns": number,
            "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]], "output_dtypes": ["Float"],
            "state": "completed" if number < 2 else "scheduled", "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None, "retired": number < 2, "timeout_ms": 5000, "is_p2p": False,
        }
        for number in range(entered)
    ]  # fmt: skip
    content = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {},
        "comm_lib_version": "",
        "entries": entries,
    }
    path.write_bytes(pickle.dumps(content, protocol=2))


def test_help_of_every_command_imports_nothing_heavy() -> None:
    names = ["run", "list", "show", "check", "diagnose", "preflight", "collect", "clean", "schema"]
    codes, modules = modules_after(["--help"], ["--version"], *([name, "--help"] for name in names))
    assert set(codes) == {0}
    assert not modules & HEAVY


def test_list_show_check_and_diagnose_do_not_import_torch(tmp_path: Path) -> None:
    dump(tmp_path / "fr_0", entered=3)
    dump(tmp_path / "fr_1", entered=2)
    codes, modules = modules_after(
        ["list"], ["show", "quick/ddp-hold"], ["check", str(tmp_path)], ["diagnose", str(tmp_path), "--json"]
    )
    assert codes == [0, 0, 64, 1]
    assert not modules & {"torch", "dask", "distributed"}


def test_the_probe_sees_what_is_imported() -> None:
    _, modules = modules_after(["list"])
    assert {"msgspec", "hangdrill"} <= modules
