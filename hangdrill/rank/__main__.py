"""`torchrun ... -m hangdrill.rank TARGET [ARGS...]`: run a program under the agent.

Without `HANGDRILL_AGENT` in the environment the program runs untouched, and torch is not even imported.
"""

import os
import sys
from pathlib import Path

from hangdrill.rank.orders import OrdersError
from hangdrill.rank.target import TargetError, parse_target

USAGE = 64
"""Exit code for a bad command line or bad orders, as everywhere in hangdrill."""


def main() -> None:
    """Run the target named on the command line."""
    try:
        target = parse_target(sys.argv[1:])
        orders = os.environ.get("HANGDRILL_AGENT")
        if not orders:
            target.run()
            return
        from hangdrill.rank.agent import run_with_agent

        run_with_agent(target, Path(orders), os.environ)
    except (OrdersError, TargetError) as error:
        print(f"hangdrill.rank: {error}", file=sys.stderr)
        raise SystemExit(USAGE) from error


if __name__ == "__main__":
    main()
