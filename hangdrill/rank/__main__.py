"""`torchrun ... -m hangdrill.rank TARGET [ARGS...]`: run a program under the agent.

`HANGDRILL_AGENT` names the orders of a drill, `HANGDRILL_SOCKETS` the directory where a job of the user's own is served
to a collector. With neither in the environment the program runs untouched, and torch is not even imported.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from hangdrill.rank.orders import Orders, OrdersError, read_orders, watched_orders
from hangdrill.rank.target import TargetError, parse_target

USAGE = 64
"""Exit code for a bad command line or bad orders, as everywhere in hangdrill."""


def main() -> None:
    """Run the target named on the command line."""
    try:
        target = parse_target(sys.argv[1:])
        orders = _orders(os.environ)
        if orders is None:
            target.run()
            return
        from hangdrill.rank.agent import run_with_agent

        run_with_agent(target, orders, os.environ)
    except (OrdersError, TargetError) as error:
        print(f"hangdrill.rank: {error}", file=sys.stderr)
        raise SystemExit(USAGE) from error


def _orders(environ: Mapping[str, str]) -> Orders | None:
    """Those of a drill, else those of a watched job, else none."""
    if path := environ.get("HANGDRILL_AGENT"):
        return read_orders(Path(path))
    if sockets := environ.get("HANGDRILL_SOCKETS"):
        return watched_orders(sockets, environ.get("TORCHELASTIC_RUN_ID", ""))
    return None


if __name__ == "__main__":
    main()
