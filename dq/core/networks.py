"""The networks a callback never connects to.

An IPv4 address can be written inside an IPv6 one in half a dozen ways, and a gateway on the path
may carry each of them to it: every reading of an address is looked up, not only the one in sight.
What can't be read as an address is denied. Names are never looked at here: what counts is the
address that a socket is about to connect to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

DEFAULT_DENY: tuple[str, ...] = (
    "169.254.0.0/16",  # link-local, and most clouds' metadata
    "fe80::/10",
    "224.0.0.0/4",  # multicast
    "ff00::/8",
    "0.0.0.0/8",  # unspecified: Linux connects it to itself
    "::/128",
    "100.100.100.200/32",  # metadata of Alibaba
    "192.0.0.192/32",  # of Oracle
    "fd00:c1::a9fe:a9fe/128",
    "168.63.129.16/32",  # of Azure
    "fd00:ec2::254/128",  # of Amazon
    "fd20:ce::254/128",  # of Google
)
"""Loopback and private networks are not in it: internal callbacks are the normal case."""

_LAST_32 = (
    IPv6Network("::/96"),  # IPv4-compatible
    IPv6Network("::ffff:0:0/96"),  # IPv4-mapped
    IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated
    IPv6Network("64:ff9b::/96"),  # NAT64
    IPv6Network("64:ff9b:1::/48"),  # NAT64, a network's own
)
_OWN_NAT64 = _LAST_32[-1]
_NO_IPV4 = (IPv6Address("::"), IPv6Address("::1"))


class DenyList:
    """Some networks, asked about one address at a time.

    `networks` are like `10.0.0.0/8`, `fd00::/8` or a single address. Raises ValueError, naming
    it, for one that is no network.
    """

    def __init__(self, networks: Iterable[str]) -> None:
        self._v4: list[IPv4Network] = []
        self._v6: list[IPv6Network] = []
        for text in networks:
            network = ip_network(text, strict=False)
            if isinstance(network, IPv4Network):
                self._v4.append(network)
            else:
                self._v6.append(network)

    def denies(self, ip: str) -> bool:
        """Whether `ip`, or an IPv4 address written inside it, lies in one of the networks."""
        try:
            address = ip_address(ip.partition("%")[0])
        except ValueError:
            return True
        if isinstance(address, IPv4Address):
            return self._denies_v4(address)
        if any(address in network for network in self._v6):
            return True
        return any(self._denies_v4(inner) for inner in _readings(address))

    def _denies_v4(self, address: IPv4Address) -> bool:
        return any(address in network for network in self._v4)


def _readings(address: IPv6Address) -> Iterator[IPv4Address]:
    """Each IPv4 address that `address` may stand for."""
    if address in _NO_IPV4:
        return
    bits = int(address)
    if any(address in network for network in _LAST_32):
        yield IPv4Address(bits & 0xFFFF_FFFF)
    if address in _OWN_NAT64:
        yield from _nat64_readings(bits)
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo


def _nat64_readings(bits: int) -> Iterator[IPv4Address]:
    """RFC 6052's places for prefixes of 48, 56 and 64 bits: around a zero octet, zeroes after."""
    octets = bits.to_bytes(16, "big")
    for start in (6, 7, 8):
        inner = octets[start:8] + octets[9 : start + 5]
        if octets[8] == 0 and not any(octets[start + 5 :]):
            yield IPv4Address(inner)
