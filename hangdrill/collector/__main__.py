"""`python -m hangdrill.collector`: the collector as a process of its own, as a drill starts it."""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec

from hangdrill.collector.collect import collect
from hangdrill.collector.options import CollectorOptions
from hangdrill.delivery import DELIVER_WITHIN_S, DeliveryOptions
from hangdrill.model.errors import ExitCode, HangdrillError, UsageError
from hangdrill.model.scenario import Incident


def main(arguments: list[str] | None = None) -> int:
    """Collect until the job is over, SIGTERM or SIGINT. Returns the exit code."""
    stop = _Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop.on_signal)
    try:
        collect(parse(arguments), stop)
    except HangdrillError as error:
        print(f"collector: {error}", file=sys.stderr)
        return int(error.exit_code)
    return int(ExitCode.PASS)


def parse(arguments: list[str] | None) -> CollectorOptions:
    """Options as a value. argparse, because this process has to be there before the ranks are."""
    parser = _Parser(prog="python -m hangdrill.collector", description="Pull evidence from the ranks of a job.")
    parser.add_argument("--sockets", type=Path, required=True, help="directory of the ranks' control-plane sockets")
    parser.add_argument("--to", type=Path, required=True, help="directory for the evidence")
    parser.add_argument("--control", type=Path, help="directory of the rank agents' files")
    parser.add_argument("--run-id", default="")
    parser.add_argument("--world-size", type=int)
    parser.add_argument("--backend", action="append", default=[], dest="backends", help="may be repeated")
    parser.add_argument("--stall-after-s", type=float, help="default: 0.8 x the operation's own timeout")
    parser.add_argument("--poll-s", type=float, default=0.2)
    parser.add_argument("--settle-s", type=float, default=0.5)
    parser.add_argument("--linger-s", type=float, default=10.0, help="wait so long for a restart when all are gone")
    parser.add_argument("--native-prefix", help="prefix of the files torch writes by itself (TORCH_FR_DUMP_TEMP_FILE)")
    parser.add_argument("--parent-pid", type=int, help="end when this process is gone")
    parser.add_argument("--contained", action="store_true", help="the ranks are in a container, with pids of their own")
    _add_delivery(parser)
    values = vars(parser.parse_args(arguments))
    delivery = DeliveryOptions(
        url=values.pop("deliver_to"),
        within_s=values.pop("deliver_within_s"),
        job=values.pop("job"),
        host=values.pop("host"),
        run=values["run_id"],
        started_ns=values.pop("started_ns"),
        incident=_incident(values.pop("incident")),
    )
    return CollectorOptions(**{**values, "backends": tuple(values["backends"])}, delivery=delivery)


def _add_delivery(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--deliver-to", help="URL or directory that the evidence is delivered to")
    parser.add_argument("--deliver-within-s", type=float, default=DELIVER_WITHIN_S)
    parser.add_argument("--job", default="", help="the job's name, for the delivery")
    parser.add_argument("--host", default="", help="this host's name, for the delivery")
    parser.add_argument("--started-ns", type=int, help="when the run began, for the delivery")
    parser.add_argument("--incident", type=Path, help="JSON file of the hooks: a webhook's URL is a secret")


def _incident(path: Path | None) -> Incident:
    if path is None:
        return Incident()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Incident)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"cannot read the hooks: {error}", where=str(path)) from error


class _Stop:
    """Set by signals. Not a threading.Event: a second signal inside the first one's handler would wait for its lock."""

    def __init__(self) -> None:
        self._signalled = False

    def is_set(self) -> bool:
        return self._signalled

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signalled = True


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(int(ExitCode.USAGE), f"collector: {message}\n")


if __name__ == "__main__":
    sys.exit(main())
