"""Cutting a network interface of this host, and how each cut is taken back. What it cuts, it cuts for everybody.

Never an interface that the scenario does not name, and never without the commands that undo it, which the guard holds
before the first change is made.
"""

import shutil
import socket
import subprocess
from pathlib import Path

import msgspec

from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.scenario import FaultKind
from hangdrill.node.guard import Undo

__all__ = ["Cut", "apply_cut", "check_interface", "plan_cut"]

COMMAND_DEADLINE_S = 10.0
SLOW_RATE = "8kbit"
_CAP_NET_ADMIN = 12
_PROGRAMS = {
    FaultKind.LINK_DOWN: "ip",
    FaultKind.LINK_LOSS: "iptables",
    FaultKind.LINK_SLOW: "tc",
    FaultKind.HOST_DEATH: "ip",
}


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """One change: its command, those that take it back, and what it is in words."""

    command: tuple[str, ...]
    undoes: tuple[Undo, ...]
    what: str


def check_interface(kind: FaultKind, interface: str) -> None:
    """UsageError when there is no such interface, MachineError when this process may not touch it. Changes nothing."""
    names = [name for _, name in socket.if_nameindex()]
    if interface not in names:
        raise UsageError(
            f"this host has no interface {interface}",
            where="fault.interface",
            next_step=f"it has {', '.join(names)}",
        )
    if interface == "lo":
        raise UsageError(
            "lo joins no hosts, and everything on this host needs it", where="fault.interface", next_step="name another"
        )
    if not _may_change_networks():
        raise MachineError(
            f"{kind.value} needs the right to change this host's network (CAP_NET_ADMIN)",
            where="fault.kind",
            next_step="run hangdrill as root on that host, or choose another fault",
        )
    if shutil.which(_PROGRAMS[kind]) is None:
        raise MachineError(
            f"{kind.value} needs the program {_PROGRAMS[kind]}",
            where="fault.kind",
            next_step="install iproute2 and iptables",
        )


def plan_cut(kind: FaultKind, interface: str, *, run_id: str, until_end_s: float = 0.0) -> Cut:
    """What is to be done. Reads the routes and addresses that go with a link, so that they can be given back.

    until_end_s: a host that is to look dead stays cut so long, or until the controller ends the job.
    """
    match kind:
        case FaultKind.LINK_LOSS:
            rule = ("INPUT", "-i", interface, "-m", "comment", "--comment", f"hangdrill {run_id}", "-j", "DROP")
            return Cut(
                command=("iptables", "-w", "5", "-I", *rule),
                undoes=_undoes([("iptables", "-w", "5", "-D", *rule)], until_end_s),
                what=f"{interface} receives nothing (IPv4), and still sends",
            )
        case FaultKind.LINK_SLOW:
            limit = ("tbf", "rate", SLOW_RATE, "burst", "1600", "limit", "30000")
            return Cut(
                command=("tc", "qdisc", "add", "dev", interface, "root", *limit),
                undoes=_undoes([("tc", "qdisc", "del", "dev", interface, "root")], until_end_s),
                what=f"{interface} sends {SLOW_RATE}/s",
            )
        case _:
            back = [("ip", "link", "set", "dev", interface, "up"), *_addresses(interface), *_routes(interface)]
            return Cut(
                command=("ip", "link", "set", "dev", interface, "down"),
                undoes=_undoes(back, until_end_s),
                what=f"{interface} is down",
            )


def apply_cut(cut: Cut) -> None:
    """Make the change. MachineError, in the program's own words, when it is refused."""
    try:
        done = subprocess.run(cut.command, capture_output=True, text=True, timeout=COMMAND_DEADLINE_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineError(f"{cut.command[0]} does not work: {error}", next_step="try it by hand") from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise MachineError(
            f"{' '.join(cut.command)}: {said}",
            where="fault.kind",
            next_step="try it by hand; an interface with a queueing discipline of its own cannot be slowed",
        )


def _undoes(commands: list[tuple[str, ...]], until_end_s: float) -> tuple[Undo, ...]:
    return tuple(Undo(command=command, until_end_s=until_end_s) for command in commands)


def _routes(interface: str) -> list[tuple[str, ...]]:
    """A link that goes down takes its routes along; those of the kernel's own come back with it."""
    found: list[tuple[str, ...]] = []
    for family in ("-4", "-6"):
        for line in _ask("ip", family, "route", "show", "dev", interface):
            words = line.split()
            if words and "kernel" not in words and not words[0].startswith(("fe80", "multicast")):
                found.append(("ip", family, "route", "replace", *_without_state(words), "dev", interface))
    return found


def _without_state(words: list[str]) -> list[str]:
    return [word for word in words if word not in ("linkdown", "onlink", "dead")]


def _addresses(interface: str) -> list[tuple[str, ...]]:
    """IPv6 addresses go too, unless the host is set to keep them."""
    found: list[tuple[str, ...]] = []
    for line in _ask("ip", "-6", "-o", "addr", "show", "dev", interface, "scope", "global"):
        words = line.split()
        if "inet6" in words and "dynamic" not in words:
            found.append(("ip", "-6", "addr", "replace", words[words.index("inet6") + 1], "dev", interface))
    return found


def _ask(*command: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_DEADLINE_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def _may_change_networks() -> bool:
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return False
    line = next((line for line in text.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    return bool(int(line.split()[1], 16) >> _CAP_NET_ADMIN & 1)
