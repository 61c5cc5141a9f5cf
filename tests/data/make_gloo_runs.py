"""Make tests/data/gloo_runs again: real gloo jobs with a known fault, recorded by hangdrill's own drills.

    python tests/data/make_gloo_runs.py              # runs all drills first: about eight minutes on two cores
    python tests/data/make_gloo_runs.py --from OUT   # takes what `hangdrill run ... --out OUT` left

Of each run directory it keeps what `hangdrill diagnose` reads: the manifest, the dumps and traces it lists, and the
agents' facts. truth.json comes from the scenario and from the agent's own report of its fault, never from a diagnosis.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KEPT = HERE / "gloo_runs"
MAX_CASE_BYTES = 60_000

NO_TRANSFERS = "gloo records no send or receive"
CASES = {
    "quick/all-reduce-hold": "",
    "quick/ddp-hold": "",
    "quick/fsdp2-hold": "",
    "quick/mesh-subgroup-hold": "",
    "faults/tensor-parallel-hold-r1": "",
    "faults/all-to-all-hold-r2": "",
    "faults/ddp-hold-gil-r0": "",
    "faults/mesh-2d-spin-r2": "",
    "quick/ddp-stop": "",
    "quick/ddp-kill": "",
    "faults/tensor-parallel-exit-r0": "",
    "quick/all-reduce-raise": "",
    "faults/all-reduce-skip-r0": "",
    "quick/all-reduce-wrong-op": "",
    "faults/all-to-all-wrong-op-r0": "",
    "faults/mesh-2d-wrong-op-r2": "",
    "faults/ddp-wrong-shape-r2": "",
    "faults/all-reduce-wrong-dtype-r1": "",
    "faults/ddp-dataloader-r2": "",
    "faults/fsdp2-in-destroy-r0": "",
    "faults/pipeline-hold-r1": NO_TRANSFERS,
    "faults/pipeline-kill-r2": "",
    "quick/ddp-none": "",
    "quick/all-reduce-slow": "",
}
"""Shipped scenario -> why gloo's evidence cannot tell who it was (empty: it can, or the dead process does)."""

HARMLESS = {"none", "slow"}
AT_ONE_OPERATION = {
    "hold", "hold-gil", "spin", "stop", "kill", "exit", "raise", "in-destroy", "wrong-op", "wrong-shape",
    "wrong-dtype",
}  # fmt: skip
"""Faults after which the others wait in the very operation that the fault was placed at. After a skipped one they go
on, one operation out of step; a fault in the data loader is at no operation."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--from", dest="out", type=Path, help="results of hangdrill run; default: run the drills now")
    out = parser.parse_args().out
    if out is not None:
        keep_all(out)
        return
    with tempfile.TemporaryDirectory() as folder:
        drill(Path(folder))
        keep_all(Path(folder))


def drill(out: Path) -> None:
    """Exit code 2 is no failure: where gloo cannot tell, the drill's verdict is UNKNOWN."""
    done = subprocess.run([sys.executable, "-m", "hangdrill", "run", *CASES, "--out", str(out), "-j", "1"], check=False)
    if done.returncode not in (0, 1, 2):
        sys.exit(f"hangdrill run ended with {done.returncode}")


def keep_all(out: Path) -> None:
    """All of them, or none: what was kept before stays until every run is there."""
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        for scenario, cannot_tell in CASES.items():
            print(keep(out / scenario, Path(folder, "runs"), cannot_tell))
        shutil.rmtree(KEPT, ignore_errors=True)
        shutil.copytree(Path(folder, "runs"), KEPT)


def keep(run: Path, into: Path, cannot_tell: str) -> str:
    """Keep one run; returns what to print of it."""
    plan = load(run / "plan.json")
    facts = [load(path) for path in sorted(run.glob("control/*.facts.json"))]
    faults = [load(path) for path in sorted(run.glob("control/*.fault.json"))]
    truth = truth_of(plan, facts, faults, cannot_tell)
    clean = cleaner(plan)
    manifest = json.loads(clean((run / "evidence" / "manifest.json").read_text()))
    manifest["artifacts"] = [one for one in manifest["artifacts"] if one["kind"] in {"dump", "trace"}]
    truth["dumps_that_arrived"] = sorted({one["rank"] for one in manifest["artifacts"]})

    case = into / name_of(truth)
    store(case / "truth.json", truth)
    store(case / "evidence" / "manifest.json", manifest)
    for artifact in manifest["artifacts"]:
        copy_unchanged(run / "evidence" / artifact["path"], case / "evidence" / artifact["path"], clean)
    for path in sorted(run.glob("control/*.facts.json")):
        store(case / "control" / path.name, {**json.loads(clean(path.read_text())), "host": "host"})
    size = sum(path.stat().st_size for path in case.rglob("*") if path.is_file())
    if size > MAX_CASE_BYTES:
        sys.exit(f"{case.name}: {size} bytes are more than {MAX_CASE_BYTES}")
    return f"{case.name}: {size} bytes"


def truth_of(plan: Any, facts: list[Any], faults: list[Any], cannot_tell: str) -> dict[str, Any]:
    """What the scenario did, and where the agent says that it did it."""
    scenario = plan["scenario"]
    job, fault, kind = scenario["job"], scenario["fault"], scenario["fault"]["kind"]
    targets = [] if kind == "none" else sorted({*fault["ranks"], *([] if fault["rank"] is None else [fault["rank"]])})
    if sorted(one["rank"] for one in faults) != targets:
        sys.exit(f"{plan['name']}: the fault was not confirmed on {targets}; run it again")
    hang = kind not in HARMLESS
    truth: dict[str, Any] = {
        "torch": facts[0]["torch"],
        "backend": job["backend"],
        "workload": job["workload"],
        "world_size": job["nnodes"] * job["nproc_per_node"],
        "injected": f"hangdrill run {plan['name']}",
        "fault": kind,
        "hang": hang,
        "stalled_rank": targets[0] if hang else None,
        "culprits": targets if hang else [],
        "timeout_s": job["timeout_s"],
    }
    if scenario["expect"]["kind"] is not None:
        truth["kind"] = scenario["expect"]["kind"]
    if hang and kind in AT_ONE_OPERATION:
        report = faults[0]
        truth |= {"group": members(report, facts), "op": report["op"], "sequence": report["sequence"]}
    if cannot_tell:
        truth["cannot_tell"] = cannot_tell
    return truth


def members(report: Any, facts: list[Any]) -> list[int]:
    """The global ranks of the group that the fault was placed in, as the culprit's own agent knows them."""
    mine = next(one for one in facts if one["rank"] == report["rank"])
    found = [one["ranks"] for one in mine["groups"] if report["group"] in (one["desc"], one["name"])]
    if len(found) != 1:
        sys.exit(f"group {report['group']} of rank {report['rank']} is one of {found}")
    return list(found[0])


def name_of(truth: dict[str, Any]) -> str:
    rank = "" if truth["stalled_rank"] is None else f"-rank-{truth['stalled_rank']}"
    return f"{truth['workload']}-{truth['fault']}{rank}-of-{truth['world_size']}"


def cleaner(plan: Any) -> Any:
    """A function that replaces the paths of this machine in a text of JSON; what follows them stays."""
    checkout = str(HERE.parents[1])
    known = {plan["run_dir"]: "/run", str(Path(plan["python"]).parents[1]): "/venv", checkout: "/checkout"}
    known |= {sys.base_prefix: "/python"} if len(sys.base_prefix) > len("/usr") else {}

    def clean(text: str) -> str:
        for path in sorted(known, key=len, reverse=True):
            text = re.sub(re.escape(path) + r"(?=[/\"])", known[path], text)
        return text

    return clean


def copy_unchanged(source: Path, target: Path, clean: Any) -> None:
    """Dumps keep their bytes, so the manifest's sha256 holds; gloo's have no frames, so no paths either."""
    data = source.read_bytes()
    text = data.decode("latin-1")
    if clean(text) != text:
        sys.exit(f"{source} holds paths of this machine")
    target.write_bytes(data)


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def store(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main()
