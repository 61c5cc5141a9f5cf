"""Ask an interpreter about its torch, in a process of its own, for a bounded time: the controller imports no torch."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from hangdrill.preflight.surroundings import Torch

__all__ = ["DEADLINE_S", "ask_torch"]

DEADLINE_S = 60.0
LEFT_OUT = ("TORCH_", "TORCHELASTIC_", "NCCL_", "PYTHONSTARTUP", "LD_PRELOAD")
"""Kept from the probe: a bad value of a variable is a finding, and must not end or hang the one who asks."""

_SCRIPT = """
import importlib.util, json, mmap, os, sys
def has(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
import torch
facts = {"version": str(torch.__version__), "is_hip": torch.version.hip is not None}
try:
    facts["gpus"] = torch.cuda.device_count()
except Exception:
    facts["gpus"] = None
try:
    facts["nccl"] = list(torch.cuda.nccl.version())[:3]
except Exception:
    facts["nccl"] = None
try:
    from torch.distributed import constants
    facts["default_timeout_s"] = constants.default_pg_timeout.total_seconds()
    if constants.default_pg_nccl_timeout is not None:
        facts["default_nccl_timeout_s"] = constants.default_pg_nccl_timeout.total_seconds()
except Exception:
    pass
facts["has_debug_server"] = has("torch.distributed.debug")
facts["missing_for_debug_server"] = [name for name in ("aiohttp", "jinja2", "tabulate") if not has(name)]
home = os.path.dirname(torch.__file__)
texts = ["distributed/distributed_c10d.py", "distributed/launcher/api.py", "distributed/elastic/agent/server/api.py"]
libraries = ["libc10.so", *(f"libtorch_{part}.so" for part in ("python", "cpu", "cuda", "hip", "xpu"))]
wanted, reads = set(sys.argv[1:]), {}
for path, end in [(name, b'"') for name in texts] + [("lib/" + name, b"\\0") for name in libraries]:
    path = os.path.join(home, path)
    if wanted and os.path.exists(path):
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
            seen = {name for name in wanted if held.find(name.encode() + end) >= 0}
        wanted -= seen
        reads.update(dict.fromkeys(seen, True))
reads.update(dict.fromkeys(wanted, False))
facts["reads"] = reads
print("\\n" + json.dumps(facts))
"""


def ask_torch(
    python: str,
    environ: Mapping[str, str],
    cwd: Path,
    *,
    names: Iterable[str] = (),
    deadline_s: float = DEADLINE_S,
) -> tuple[Torch | None, str]:
    """The facts, or None and why there are none. names: variables that torch's files are searched for."""
    clean = {name: value for name, value in environ.items() if not name.startswith(LEFT_OUT)}
    try:
        done = subprocess.run(
            [python, "-c", _SCRIPT, *names],
            env=clean,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"{python} gave no answer within {deadline_s:g} s"
    except OSError as error:
        return None, f"{python} does not start: {error.strerror}"
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"it ended with {done.returncode}"]
        return None, f"{python}: {lines[-1]}"
    try:
        return msgspec.convert(json.loads(done.stdout.splitlines()[-1]), Torch), ""
    except (ValueError, IndexError, msgspec.ValidationError) as error:
        return None, f"{python} answered what is not understood: {error}"
