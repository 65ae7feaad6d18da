"""Who is at the other end: the right-most address that no trusted proxy of ours vouches away."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import Scope

MOST_HOPS = 20

Network = IPv4Network | IPv6Network


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    return tuple(ip_network(text, strict=False) for text in texts)


def peer_of(scope: Scope, trusted: Sequence[Network]) -> str:
    """The client's address. A header counts only behind a proxy that was configured, and only from the right."""
    peer: str = (scope.get("client") or ("unknown", 0))[0]
    if not trusted or not is_within(peer, trusted):
        return peer
    hops = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
    for hop in reversed(hops[-MOST_HOPS:]):
        address = hop.strip().strip("[]")
        if not _is_address(address):
            return peer
        peer = address
        if not is_within(address, trusted):
            return peer
    return peer


def bucket_of(peer: str) -> str:
    """One subscriber has a whole IPv6 /64: limits count it as one."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_within(text: str, trusted: Sequence[Network]) -> bool:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped  # how a socket for both families names an IPv4 peer
    return any(address.version == network.version and address in network for network in trusted)
