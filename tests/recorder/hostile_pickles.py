"""Builders of pickles as a recorder writes them, and of pickles that nobody should open."""

import pickle
import struct
from pathlib import Path
from typing import Any

__all__ = ["DATA", "entry", "pickled", "plain", "short_text", "text", "write"]

DATA = Path(__file__).parents[1] / "data" / "dumps"


def entry(**changes: Any) -> dict[str, Any]:
    """One entry of a recorder, with changes; a change to None leaves the key out."""
    whole = {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "op_id": 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_795_969_082_061_724_428,
        "input_sizes": [[4, 2]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 2]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": 1_795_969_082_067_347_398,
        "retired": True,
        "timeout_ms": 10_000,
        "is_p2p": False,
        "frames": [{"name": "step", "filename": "train.py", "line": 7}],
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not None or key.startswith("time_disc")}


def plain(*entries: object, **changes: Any) -> dict[str, Any]:
    """The plain value of a whole dump."""
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {
            "0": {"last_enqueued_collective": 1, "last_started_collective": -1, "last_completed_collective": 1}
        },
        "comm_lib_version": "2.30.7",
        "entries": list(entries),
        **changes,
    }


def pickled(*entries: object, protocol: int = 2, **changes: Any) -> bytes:
    """The same as a pickle."""
    return pickle.dumps(plain(*entries, **changes), protocol=protocol)


def text(value: str) -> bytes:
    """BINUNICODE."""
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def short_text(value: str) -> bytes:
    """SHORT_BINUNICODE."""
    return b"\x8c" + bytes([len(value.encode())]) + value.encode()


def write(directory: Path, **files: bytes) -> Path:
    """Write files; in a keyword `__` stands for a slash and DOT for a dot."""
    for name, data in files.items():
        path = directory / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return directory
