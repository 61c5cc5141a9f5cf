"""`python -m hangdrill.node --run RUN --node K`: one host's part in a drill, as a scheduler starts it."""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from hangdrill.drill.waiting import Interrupt, handling_signals
from hangdrill.model.errors import ExitCode, HangdrillError
from hangdrill.node.joining import NodeOptions
from hangdrill.node.process import serve_node

SLURM = "slurm"


def main(arguments: list[str] | None = None) -> int:
    """Serve until the end. Returns torchrun's exit code, or that of the error."""
    options = parse(arguments)
    with Interrupt() as interrupt, handling_signals(interrupt):
        try:
            code = serve_node(options, os.environ, interrupt)
        except HangdrillError as error:
            print(f"node {options.node}: {error}", file=sys.stderr)
            return int(error.exit_code)
    return 128 - code if code < 0 else code


def parse(arguments: list[str] | None) -> NodeOptions:
    """Options as a value."""
    parser = _Parser(prog="python -m hangdrill.node", description="One host's part in a drill.")
    parser.add_argument("--run", type=Path, required=True, help="the run directory, which all hosts share")
    parser.add_argument("--node", required=True, help='number of this node, from 0; "slurm" takes SLURM_NODEID')
    parser.add_argument("--address", default="", help="this host's address for the others")
    parser.add_argument("--rdzv-endpoint", default="", dest="endpoint", help="HOST:PORT at which the nodes meet")
    parser.add_argument("--local-dir", type=Path, help="for this host's own files; default: the temporary directory")
    values = vars(parser.parse_args(arguments))
    text = os.environ.get("SLURM_NODEID", "") if values["node"] == SLURM else values["node"]
    if not text.isdecimal():
        parser.error(f"--node: expected a number, got {text!r}" if text else "--node slurm: there is no SLURM_NODEID")
    return NodeOptions(**{**values, "node": int(text)})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(int(ExitCode.USAGE), f"node: {message}\n")


if __name__ == "__main__":
    sys.exit(main())
