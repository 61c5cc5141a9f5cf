"""Make tests/data/gpu_runs again, from what `hangdrill run gpu --out OUT` left on a machine with two GPUs.

    python tests/data/make_gpu_runs.py --from OUT --older OLDER

OLDER holds some of the same drills with torch 2.11 (`--python`). As make_gloo_runs.py, whose rules of truth it uses.
Dumps of NCCL hold paths in their frames: these are replaced, so the dumps are pickled anew and the manifest's sizes
and hashes with them. Which truths nobody can find is written here, from the fault and from which ranks left a dump,
never from a diagnosis.
"""

import argparse
import hashlib
import json
import pickle
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from make_gloo_runs import load, store, truth_of

HERE = Path(__file__).parent
KEPT = HERE / "gpu_runs"
MAX_CASE_BYTES = 60_000

NO_DUMP = "no rank left a dump"
ALL_INSIDE = "a kernel that does not end: all ranks are inside the operation, and none has finished it"
TWO_RANKS = "two ranks did two different things: nobody is outvoted"
BATCH_OVER = "nccl2 calls a batch of sends and receives completed at once, and the stalled rank left no dump"
BATCHED = ("nccl.native.pipeline-hold-r1",)
MISMATCHES = ("wrong-op", "wrong-shape", "wrong-dtype")
SAID = {
    "hold": "rank-absent",
    "wrong-op": "op-mismatch",
    "wrong-shape": "shape-mismatch",
    "wrong-dtype": "dtype-mismatch",
}

NAMES = """
nccl.collector.all-reduce-dataloader-r1 nccl.collector.all-reduce-exit-r1 nccl.collector.all-reduce-gpu-kernel-r1
nccl.collector.all-reduce-hold-gil-r1 nccl.collector.all-reduce-in-destroy-r1 nccl.collector.all-reduce-kill-r1
nccl.collector.all-reduce-none nccl.collector.all-reduce-oom-r1 nccl.collector.all-reduce-raise-r1
nccl.collector.all-reduce-skip-r1 nccl.collector.all-reduce-slow-r1 nccl.collector.all-reduce-spin-r1
nccl.collector.all-reduce-stop-r1 nccl.collector.all-reduce-store-death-r0 nccl.collector.all-reduce-wrong-dtype-r1
nccl.collector.all-reduce-wrong-op-r1 nccl.collector.all-reduce-wrong-shape-r1 nccl.collector.coalesced-hold-r1
nccl.collector.pipeline-hold-r1 nccl.collector.pipeline-gpu-kernel-r1 nccl.collector.mesh-2d-hold-r1
nccl.native.all-reduce-hold-r1 nccl.native.all-reduce-wrong-shape-r1 nccl.native.pipeline-hold-r1
nccl.debug-server.all-reduce-hold-gil-r1 nccl.debug-server-60s.all-reduce-stop-r1
nccl-lazy.collector.all-reduce-kill-r1 nccl-lazy.collector.all-reduce-wrong-dtype-r1
nccl-lazy.collector.all-to-all-hold-r1 nccl-lazy.collector.pipeline-hold-r1 nccl-lazy.debug-server.all-reduce-hold-r1
nccl-lazy.debug-server-60s.all-reduce-hold-r1 nccl-lazy.native.ddp-hold-r1
nccl-legacy.collector.all-reduce-kill-r1 nccl-legacy.collector.all-reduce-store-death-r0
nccl-legacy.collector.all-reduce-stop-r1 nccl-legacy.collector.all-reduce-wrong-op-r1
nccl-legacy.collector.all-reduce-wrong-dtype-r1 nccl-legacy.collector.all-to-all-hold-r1
nccl-legacy.collector.coalesced-hold-r1 nccl-legacy.collector.pipeline-hold-r1
nccl-legacy.collector.tensor-parallel-hold-r1 nccl-legacy.native.fsdp2-hold-r1 nccl-legacy.native.all-reduce-wrong-op-r1
nccl-legacy.debug-server.all-reduce-hold-gil-r1 nccl-legacy.debug-server-60s.all-reduce-stop-r1
mixed.collector.all-reduce-kill-r1 mixed.collector.pipeline-hold-r1 mixed.collector.all-reduce-stop-r1
mixed.native.all-reduce-hold-r1 mixed.debug-server.all-reduce-hold-r1
rolled-back.collector.pipeline-hold-r1 rolled-back.collector.all-reduce-hold-gil-r1
rolled-back.native.all-reduce-hold-r1 rolled-back.debug-server.all-reduce-stop-r1
"""
CASES = NAMES.split()
OLDER = "torch-2.11"
OLDER_CASES = (
    "native.all-reduce-hold-r1",
    "native.all-reduce-stop-r1",
    "debug-server.all-reduce-hold-r1",
    "collector.all-reduce-hold-gil-r1",
    "collector.all-reduce-kill-r1",
    "collector.all-reduce-wrong-op-r1",
    "collector.all-reduce-none",
)
"""Of the backend nccl, which is the legacy one there."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--from", dest="out", type=Path, required=True, help="results of hangdrill run gpu")
    parser.add_argument("--older", type=Path, required=True, help="results of some of them with torch 2.11")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        for name in CASES:
            print(keep(given.out / "gpu" / name, Path(folder, "runs", name)))
        for name in OLDER_CASES:
            print(keep(given.older / "gpu" / f"nccl.{name}", Path(folder, "runs", f"{OLDER}.{name}")))
        shutil.rmtree(KEPT, ignore_errors=True)
        shutil.copytree(Path(folder, "runs"), KEPT)


def keep(run: Path, case: Path) -> str:
    """Keep one run; returns what to print of it."""
    plan = load(run / "plan.json")
    facts = [load(path) for path in sorted(run.glob("control/*.facts.json"))]
    faults = [load(path) for path in sorted(run.glob("control/*.fault.json"))]
    manifest = cleaned(load(run / "evidence" / "manifest.json"), plan["run_dir"])
    manifest["artifacts"] = [one for one in manifest["artifacts"] if one["kind"] in {"dump", "trace"}]
    arrived = sorted({one["rank"] for one in manifest["artifacts"]})
    for artifact in manifest["artifacts"]:
        data = cleaned_file(run / "evidence" / artifact["path"], plan["run_dir"])
        artifact |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        path = case / "evidence" / artifact["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    store(case / "evidence" / "manifest.json", manifest)
    for path in sorted(run.glob("control/*.facts.json")):
        store(case / "control" / path.name, {**cleaned(load(path), plan["run_dir"]), "host": "host"})
    truth = truth_of(plan, facts, faults, cannot_tell(case.name, plan["scenario"]["fault"]["kind"], arrived))
    cell, road, _ = case.name.replace(OLDER, "older").split(".", 2)
    truth |= {
        "dumps_that_arrived": arrived,
        "cell": cell.replace("older", OLDER),
        "road": road,
        "backend_class": facts[0]["backend_class"],
    }
    if truth["fault"] in SAID and arrived and truth["workload"] != "pipeline":
        truth["kind"] = SAID[truth["fault"]]
    store(case / "truth.json", truth)
    return checked(case)


def cannot_tell(name: str, fault: str, arrived: list[int]) -> str:
    if name in BATCHED:
        return BATCH_OVER
    if fault not in {"none", "slow"} and not arrived:
        return NO_DUMP
    return ALL_INSIDE if fault == "gpu-kernel" else TWO_RANKS if fault in MISMATCHES else ""


def cleaned(value: Any, run_dir: str) -> Any:
    """The value with the paths of that machine replaced, wherever they stand."""
    if isinstance(value, dict):
        return {key: cleaned(one, run_dir) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(cleaned(one, run_dir) for one in value)
    if isinstance(value, str) and "/" in value:
        value = value.replace(run_dir, "/run")
        value = re.sub(r"^/(?!run/)\S*?/(?=site/|lib/python3)", "/venv/", value)
    return value


def cleaned_file(path: Path, run_dir: str) -> bytes:
    if path.suffix == ".json":
        text = path.read_text()
        value = json.loads(text)
        return text.encode() if cleaned(value, run_dir) == value else json.dumps(cleaned(value, run_dir)).encode()
    value = pickle.loads(path.read_bytes())  # our own, from the run just made
    return pickle.dumps(cleaned(value, run_dir), protocol=2)


def checked(case: Path) -> str:
    """What to print; ends the program when something of that machine is left, or the case is too large."""
    paths = [path for path in case.rglob("*") if path.is_file()]
    for path in paths:
        if found := re.search(rb"/(root|opt|home|tmp|usr)/\S*", path.read_bytes()):
            sys.exit(f"{path}: {found.group()!r} is a path of that machine")
    size = sum(path.stat().st_size for path in paths)
    if size > MAX_CASE_BYTES:
        sys.exit(f"{case.name}: {size} bytes are more than {MAX_CASE_BYTES}")
    return f"{case.name}: {size} bytes"


if __name__ == "__main__":
    main()
