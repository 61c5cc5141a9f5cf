"""One node's part of a job on several: it starts torchrun there, and ends everything when the lease is over.

    python -m hangdrill.rank.canary.on_node --lease FILE --endpoint HOST:PORT [--interface NAME] [--limit-s S]
        [-- COMMAND ...]

Its first line says what it found. Without a command that is all. Of the command's words, {address} becomes this node's
address, and {holds} 1 on the node that holds the endpoint, else 0. The command gets GLOO_SOCKET_IFNAME where it has
none. When this process is killed, torchrun is killed with it, and the ranks end with the lease by themselves.
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hangdrill.rank.canary.addresses import holds, interface_of, is_free, own_address
from hangdrill.rank.canary.lease import ENDED, LEASE_VARIABLE, LIMIT_S, Lease
from hangdrill.rank.canary.marked import MARK, end_marked
from hangdrill.rank.files import wait_until

__all__ = ["FACTS_WORD", "main"]

FACTS_WORD = "hangdrill-node: "
CONTROLLER_VARIABLE = "HANGDRILL_CONTROLLER"
LOOK_S = 0.25
PORT_S = LIMIT_S + 15.0
"""So long a job that is over may keep the endpoint's port: its controller was killed, and its lease runs out."""
PR_SET_PDEATHSIG = 1


def main() -> int:
    """To the end of the command, or of the lease."""
    options = _options()
    lease = Lease(options.lease, limit_s=options.limit_s)
    try:
        facts = _facts(options, lease)
    except OSError as error:
        print(f"hangdrill: {socket.gethostname()}: {error}", file=sys.stderr, flush=True)
        return ENDED
    print(FACTS_WORD + json.dumps(facts), flush=True)
    if not options.command:
        return 0
    filled = {"{address}": str(facts["address"]), "{holds}": str(int(bool(facts["holds"])))}
    return _serve([_filled(word, filled) for word in options.command], lease, options.lease, str(facts["interface"]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hangdrill.rank.canary.on_node")
    parser.add_argument("--lease", type=Path, required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--interface", default="")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("command", nargs="*")
    return parser.parse_args()


def _facts(options: argparse.Namespace, lease: Lease) -> dict[str, object]:
    """What this node is. OSError, with the reason, when it can have no part in the job."""
    directory = options.lease.parent
    if not lease.look():
        raise OSError(f"cannot read {options.lease}: OUT must lie on a file system that all nodes share")
    own_file = directory / f".{socket.gethostname()}.{os.getpid()}"
    try:
        own_file.touch()
        own_file.unlink()
    except OSError as error:
        what = f"cannot write to {directory}: {error.strerror}; every node must be able to write to OUT"
        raise OSError(what) from error
    host, _, port = options.endpoint.rpartition(":")
    host = host.strip("[]")
    try:
        address = own_address(host, options.interface)
        is_holder = holds(host)
    except socket.gaierror as error:
        raise OSError(f"nodes.endpoint: the name {host} is unknown on this node: {error.strerror}") from error
    if is_holder and not wait_until(lambda: lease.look() and is_free(int(port)), limit_s=PORT_S, poll_s=LOOK_S):
        raise OSError(f"nodes.endpoint: another program has the port {port} here, {PORT_S:g} s long")
    return {
        "host": socket.gethostname(),
        "address": address,
        "interface": interface_of(address),
        "holds": is_holder,
        "python": sys.executable,
    }


def _filled(word: str, filled: Mapping[str, str]) -> str:
    for name, value in filled.items():
        word = word.replace(name, value)
    return word


def _serve(command: Sequence[str], lease: Lease, lease_path: Path, interface: str) -> int:
    """Run it. Whatever it leaves behind on this node is killed."""
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _: told.append(got))
    mark = f"{socket.gethostname()}.{os.getpid()}"
    own = {MARK: mark, LEASE_VARIABLE: str(lease_path), CONTROLLER_VARIABLE: f"{os.getpid()}:{_started_ticks()}"}
    gloo = {"GLOO_SOCKET_IFNAME": interface} if interface else {}
    parent = os.getpid()
    child = subprocess.Popen(
        command,
        env={**gloo, **os.environ, **own},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: _die_with(parent),  # noqa: PLW1509 - no thread has been started yet
    )
    lease.keep_looking()
    why = ""
    while child.poll() is None and not why:
        why = lease.over() or (f"ended by {signal.Signals(told[0]).name}" if told else "")
        _wait(child)
    left = end_marked(mark, at_once=not why)
    code = child.wait()
    if left:
        print(f"hangdrill: {socket.gethostname()}: {left} processes could not be killed", file=sys.stderr, flush=True)
    if why:
        print(f"hangdrill: {socket.gethostname()}: {why}", file=sys.stderr, flush=True)
        return ENDED
    return 128 - code if code < 0 else code


def _wait(child: "subprocess.Popen[bytes]") -> None:
    try:
        child.wait(LOOK_S)
    except subprocess.TimeoutExpired:
        return


def _die_with(parent: int) -> None:
    """In the child: SIGKILL when its parent dies, also when that was already so."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(ENDED)


def _started_ticks() -> str:
    """Of this process: with the pid it tells it from all others of this node."""
    return Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()[19]


if __name__ == "__main__":
    sys.exit(main())
