"""Which addresses may be called. Pure: whoever resolves names asks here about every address that came out.

An address is called only if it is of the public internet, or of a network that the operator allowed. The standard
library's `is_global` does not say that: it takes multicast and IPv6 forms of private addresses for global.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from unicodedata import normalize
from urllib.parse import urljoin

from docmill.core.errors import Invalid

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LONGEST_URL: Final = 2048
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
ALL_NETWORKS: Final[tuple[Network, ...]] = (IPv4Network("0.0.0.0/0"), IPv6Network("::/0"))

_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, and the metadata of clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_UNICAST_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "3fff::/20",
    )
)
# Forms that carry an IPv4 address, and how many bits stand behind it.
_CARRIERS: Final = (
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
)
_ISATAP: Final = 0x5EFE

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<target>/[^?#]*)?(?P<query>\?[^#]*)?(#.*)?"
)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:%@]+)(:(?P<port>[0-9]{1,5})?)?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_DEVIATING = frozenset("ßẞς\u200c\u200d")
"""Old and new rules for names (IDNA 2003, 2008) spell these differently."""


@dataclass(frozen=True, slots=True)
class Target:
    """An address that may be asked for: its host is a plain ASCII name, or an IP address that may be called."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query."""

    @property
    def address(self) -> Address | None:
        """The host, if it is an IP address."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host_header}{self.target}"


@dataclass(frozen=True, slots=True)
class TrustedOrigin:
    """The origin of a peer that the operator configured: it may be called at any port and in any network.

    Only this origin is sent the headers, which hold the peer's credentials.
    """

    url: str
    """Scheme, host and port."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def resolve(self, address: str) -> str:
        """The full URL of an address that may be relative to the origin."""
        try:
            return urljoin(f"{self.url}/", address)
        except ValueError as error:
            raise _refused("it is not a URL") from error

    def match(self, url: str) -> Target | None:
        """The URL's target if it is of this very origin, else None."""
        try:
            own, target = (check_url(one, ports=None, allow_networks=ALL_NETWORKS) for one in (self.url, url))
        except Invalid:
            return None
        is_same = (own.scheme, own.host, own.port) == (target.scheme, target.host, target.port)
        return target if is_same else None


def is_public(ip: Address | str) -> bool:
    """Whether the address is of a host of the public internet."""
    address = ip_address(ip) if isinstance(ip, str) else ip
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address.scope_id:
        return False
    for network, shift in _CARRIERS:
        if address in network:
            return is_public(IPv4Address(int(address) >> shift & 0xFFFFFFFF))
    if int(address) >> 32 & 0xFDFFFFFF == _ISATAP:
        return False
    return address in _UNICAST_6 and not any(address in network for network in _NOT_PUBLIC_6)


def may_call(ip: Address | str, allow_networks: Sequence[Network] = ()) -> bool:
    """Whether the address is public, or of a network that the operator allowed."""
    address = ip_address(ip) if isinstance(ip, str) else ip
    return is_public(address) or any(
        address in network for network in allow_networks if network.version == address.version
    )


def check_url(
    url: str,
    *,
    ports: Collection[int] | None = (80, 443),
    schemes: Collection[str] = ("http", "https"),
    allow_hosts: Collection[str] | None = None,
    allow_networks: Sequence[Network] = (),
) -> Target:
    """Read a URL strictly; else Invalid `address_refused`.

    *ports*: None allows all. *allow_hosts*: only these names, or below `*.example.com`; None allows all.
    What a name resolves to is still to be checked, address by address.
    """
    if len(url) > LONGEST_URL:
        raise _refused(f"it is longer than {LONGEST_URL} characters")
    if "\\" in url or any(char.isspace() or not char.isprintable() for char in url):
        raise _refused("it has spaces, control characters or backslashes")
    match = _URL.fullmatch(url)
    if not match:
        raise _refused("it is not a full URL")
    scheme = match["scheme"].lower()
    if scheme not in schemes:
        raise _refused(f"its scheme is not one of {', '.join(schemes)}")
    host, port = _host_and_port(match["authority"], scheme)
    if ports is not None and port not in ports:
        raise _refused(f"port {port} is not allowed")
    target = Target(scheme, host, port, _ascii_target(match["target"] or "/", match["query"] or ""))
    if allow_hosts is not None and not any(_matches(host, pattern) for pattern in allow_hosts):
        raise _refused("its host is not on the list")
    literal = (
        IPv4Address("127.0.0.1") if _matches(host, "localhost") or _matches(host, "*.localhost") else target.address
    )
    if literal and not may_call(literal, allow_networks):
        raise _refused("it is not a public address")
    return target


def _host_and_port(authority: str, scheme: str) -> tuple[str, int]:
    if "@" in authority:
        raise _refused("it carries credentials")
    match = _AUTHORITY.fullmatch(authority)
    if not match:
        raise _refused("its host is not a plain name or address")
    port = int(match["port"]) if match["port"] else DEFAULT_PORTS.get(scheme, 0)
    if not 0 < port < 65536:
        raise _refused("its port is not a port")
    return _host(match["host"]), port


def _host(text: str) -> str:
    if text.startswith("["):
        try:
            return str(IPv6Address(text[1:-1]))
        except ValueError as error:
            raise _refused("its host is not an IPv6 address") from error
    name = _ascii(text).lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _refused("its host is not a plain name or address")
    if _NUMBER.fullmatch(labels[-1]):
        return _canonical_ipv4(name)
    return name


def _canonical_ipv4(name: str) -> str:
    """Other spellings of IPv4 addresses (127.1, 0x7f000001, 0177.0.0.1) mean different hosts to different readers."""
    try:
        return str(IPv4Address(name))
    except ValueError as error:
        raise _refused("its host looks like a number, but is not an IPv4 address of four decimal parts") from error


def _ascii(name: str) -> str:
    if name.isascii():
        return name
    lowered = name.lower()
    # What normalising would change may look like one name and be another: ｌocalhost, ①27.0.0.1, a。b
    if normalize("NFKC", lowered) != lowered or not _DEVIATING.isdisjoint(name):
        raise _refused("its host has characters that are read in several ways; write it in its xn-- form")
    try:
        return lowered.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise _refused("its host is not a valid international name") from error


def _ascii_target(path: str, query: str) -> str:
    """Path and query, with what is not ASCII percent-encoded."""
    text = path + query
    return text if text.isascii() else "".join(c if c.isascii() else _percent(c) for c in text)


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


def _matches(host: str, pattern: str) -> bool:
    wanted = pattern.lower()
    return host.endswith(wanted[1:]) if wanted.startswith("*.") else host == wanted


def _refused(why: str) -> Invalid:
    return Invalid("address_refused", why=why)
