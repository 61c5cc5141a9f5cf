"""By which address the other nodes reach this one, on which interface, and whether it holds the endpoint.

torchrun's own guess needs a host name that resolves. Nothing is sent: a connected datagram socket only asks the routing
table. Imports no torch.
"""

import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator

__all__ = ["holds", "interface_of", "is_free", "own_address"]

_SIOCGIFADDR = 0x8915
_DISCARD_PORT = 9


def own_address(endpoint_host: str, interface: str) -> str:
    """The interface's address where one is named, else that from which the endpoint is reached. OSError when none."""
    if interface:
        found = dict(_interface_addresses()).get(interface)
        if found is None:
            names = ", ".join(name for _, name in socket.if_nameindex())
            raise OSError(f"there is no interface {interface} with an IPv4 address here; there are {names}")
        return found
    for candidate in (*_towards(endpoint_host), *(address for _, address in _interface_addresses())):
        if not ipaddress.ip_address(candidate).is_loopback:
            return candidate
    raise OSError("this node has no address that another node could reach")


def interface_of(address: str) -> str:
    """The name of the interface that has the address, or nothing."""
    return next((name for name, own in _interface_addresses() if own == address), "")


def holds(endpoint_host: str) -> bool:
    """Whether the endpoint is an address of this node: then the way to it begins and ends there. OSError: unknown name.

    A host's own name may stand for the loopback in its own /etc/hosts.
    """
    own = set(_towards(endpoint_host))
    found = {str(place[0]) for *_, place in socket.getaddrinfo(endpoint_host, _DISCARD_PORT, type=socket.SOCK_DGRAM)}
    return any(ipaddress.ip_address(address.partition("%")[0]).is_loopback or address in own for address in found)


def is_free(port: int) -> bool:
    """Whether nobody listens on the port here; connections that are only waiting to be forgotten do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen()
        except OSError:
            return False
    return True


def _towards(host: str) -> Iterator[str]:
    """The addresses that this node would send from. OSError when the name is unknown."""
    for family, kind, protocol, _, place in socket.getaddrinfo(host, _DISCARD_PORT, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(place)
            yield str(probe.getsockname()[0]).partition("%")[0]


def _interface_addresses() -> list[tuple[str, str]]:
    """(interface, IPv4 address)."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append((name, socket.inet_ntoa(answer[20:24])))
    return found
