"""Make docs/fault-matrix.md from the results of `make matrix`: `python docs/make_matrix.py OUT_DIR [OUT_DIR ...]`.

Of a drill that is in several directories, the last one counts: so single cells can be run again.
"""

import argparse
from pathlib import Path

import msgspec

from hangdrill.drill.scenario_file import find_all
from hangdrill.model.run import DrillResult
from hangdrill.report.matrix import matrix_markdown

HEAD = """# The fault matrix

Every built-in workload, every fault, on the first, a middle and the last rank, on gloo: {count} real torchrun jobs,
run by `make matrix` (three ranks a job, four for `mesh-2d`; process-group timeout 4 s; the collector's road; torch
{torch}).

The page may join several runs: of a cell that was run again on mended code, the last run counts.

- **right**: the verdict and the culprit are the injected truth. For `slow` and `none` that is: no hang is reported.
  The same holds for wrong shapes and dtypes of the pipeline's sends: gloo takes a send that is smaller than the
  receive's buffer, and nothing hangs.
- **cannot tell**: hangdrill says that the evidence cannot name the culprit, and why. No innocent rank is named.
- **wrong**: anything else.

"""


def main() -> None:
    """Read the results and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out_dirs", type=Path, nargs="+")
    parser.add_argument("--to", type=Path, default=Path(__file__).with_name("fault-matrix.md"))
    arguments = parser.parse_args()
    found: dict[str, DrillResult] = {}
    for out_dir in arguments.out_dirs:
        for path in sorted(out_dir.rglob("result.json")):
            result = msgspec.json.decode(path.read_bytes(), type=DrillResult)
            found[result.scenario] = result
    wanted = [named.name for named in find_all(["faults"])]
    missing = [name for name in wanted if name not in found]
    if missing:
        parser.exit(1, f"{len(missing)} cells have no result: {', '.join(missing[:10])}\n")
    results = [found[name] for name in wanted]
    torch = sorted({result.environment.torch or "unknown" for result in results})
    head = HEAD.format(count=len(results), torch=" and ".join(torch))
    arguments.to.write_text(head + matrix_markdown(results), encoding="utf-8")


if __name__ == "__main__":
    main()
