"""Which address of this host the others reach it by, on which interface it is, and a free port there.

Nothing is sent: a connected datagram socket only asks the routing table.
"""

import contextlib
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from hangdrill.model.errors import MachineError, UsageError

__all__ = ["free_port", "interface_of", "own_address"]

_SIOCGIFADDR = 0x8915
_LOOPBACK = "lo"
_DISCARD_PORT = 9


def own_address(given: str, *, peer: str) -> str:
    """The address: as given (a name is looked up), else that by which `peer` is reached, else the host's own name's.

    UsageError when the name given is unknown, MachineError when there is none but the loopback's.
    """
    if given:
        try:
            return str(socket.getaddrinfo(given, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            raise UsageError(
                f"unknown address: {given}", where="--address", next_step="name an address of this host"
            ) from error
    for candidate in (_towards(peer), _of_own_name(), *_of_interfaces()):
        if candidate and not ipaddress.ip_address(candidate).is_loopback:
            return candidate
    raise MachineError(
        "this host has no address that another host could reach",
        where=socket.gethostname(),
        next_step="name one with --address",
    )


def interface_of(address: str) -> str | None:
    """The interface that has the address; None when none has, as behind a translation of addresses."""
    wanted = ipaddress.ip_address(address)
    for name, own in _interface_addresses():
        if ipaddress.ip_address(own) == wanted:
            return name
    return None


def free_port(address: str) -> int:
    """A port that is free now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            listener.bind((address, 0))
        except OSError as error:
            raise UsageError(
                f"{address} is no address of this host: {error.strerror}",
                where="--address",
                next_step="name one of this host's own, or --rdzv-endpoint HOST:PORT",
            ) from error
        return int(listener.getsockname()[1])


def _towards(peer: str) -> str | None:
    """The address that this host would send from."""
    if not peer:
        return None
    with contextlib.suppress(OSError):
        family, kind, protocol, _, place = socket.getaddrinfo(peer, _DISCARD_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0]).partition("%")[0]
    return None


def _of_own_name() -> str | None:
    with contextlib.suppress(OSError):
        return str(socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)[0][4][0])
    return None


def _of_interfaces() -> tuple[str, ...]:
    return tuple(address for name, address in _interface_addresses() if name != _LOOPBACK)


def _interface_addresses() -> list[tuple[str, str]]:
    """(interface, address) of IPv4 first, then of IPv6."""
    found: list[tuple[str, str]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
                found.append((name, socket.inet_ntoa(answer[20:24])))
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, *_, name = line.split()
            found.append((name, str(ipaddress.IPv6Address(int(digits, 16)))))
    return found
