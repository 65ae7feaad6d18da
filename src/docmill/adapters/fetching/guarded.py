"""Fetches a file from an address that somebody else chose.

A name is resolved once, every address that comes out is checked, and the connection goes to one of just these; the
server still sees the name (Host, SNI, certificate). So a name that points elsewhere a moment later changes nothing.
Redirects are new addresses and are checked like the first. The environment's proxies are not used.

The origin of a configured peer is exempt from these checks and gets its credentials. A redirect that leaves it ends
both.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import Any, Final
from urllib.parse import urljoin

import httpx2

from docmill.core.addresses import Network, Target, TrustedOrigin, check_url, may_call
from docmill.core.errors import Invalid, TooLarge, Unavailable
from docmill.ports import Fetched

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port -> IP addresses as text."""

CHUNK: Final = 1 << 20
CONNECT_S: Final = 10.0
READ_S: Final = 30.0
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Pace:
    """How slow a server may be: after *grace* seconds, at least *slowest* bytes a second on average."""

    slowest: int = 1024
    grace: float = 10.0


async def resolve_by_system(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class GuardedFetcher:
    """Fetches what is public, and what *allow_networks* adds to that."""

    def __init__(
        self,
        resolve: Resolve = resolve_by_system,
        *,
        allow_networks: Sequence[Network] = (),
        allow_hosts: Collection[str] | None = None,
        ports: Collection[int] | None = (80, 443),
        redirects: int = 3,
        pace: Pace = Pace(),  # noqa: B008 - it never changes
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._resolve = resolve
        self._allow_networks = tuple(allow_networks)
        self._allow_hosts = allow_hosts
        self._ports = ports
        self._redirects = redirects
        self._pace = pace
        self._tls = verify

    async def fetch(
        self, url: str, path: Path, *, limit_bytes: int, seconds: float, trusted: TrustedOrigin | None = None
    ) -> Fetched:
        """Fetch the file to *path*, whole or not at all. Addresses of the *trusted* origin are not guarded.

        Invalid `address_refused`, TooLarge `upload_too_large`, Unavailable `fetch_failed`.
        """
        draft = path.with_name(f".{token_hex(8)}.part")
        try:
            async with asyncio.timeout(seconds):
                fetched = await self._follow(url, draft, limit_bytes, trusted)
            await asyncio.to_thread(draft.replace, path)
            return fetched
        except TimeoutError as error:
            raise Unavailable("fetch_failed", why=f"it took longer than {seconds:g} s") from error
        except httpx2.TimeoutException as error:
            raise Unavailable("fetch_failed", why="the server does not answer in time") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            # The error's own text may hold addresses of our networks.
            raise Unavailable("fetch_failed", why=type(error).__name__) from error
        finally:
            draft.unlink(missing_ok=True)

    def checked(self, url: str) -> Target:
        """Read the URL, without asking anybody what its name leads to."""
        return check_url(url, ports=self._ports, allow_hosts=self._allow_hosts, allow_networks=self._allow_networks)

    async def pinned(self, url: str) -> tuple[Target, tuple[str, ...]]:
        """Check the URL, resolve its host once, and check every address. Connect to these, and to nothing else."""
        target = self.checked(url)
        found = await self._addresses(target)
        if not target.address and not all(_may_call(address, self._allow_networks) for address in found):
            raise Invalid("address_refused", why="its name leads to an address that is not public")
        return target, found

    async def _addresses(self, target: Target) -> tuple[str, ...]:
        if target.address:
            return (str(target.address),)
        try:
            found = tuple(dict.fromkeys(await self._resolve(target.host, target.port)))
        except OSError as error:
            raise Unavailable("fetch_failed", why="its name cannot be resolved") from error
        if not found:
            raise Unavailable("fetch_failed", why="its name has no address")
        return found

    async def _follow(self, url: str, draft: Path, limit_bytes: int, trusted: TrustedOrigin | None) -> Fetched:
        for _ in range(self._redirects + 1):
            own = trusted.match(url) if trusted else None
            if trusted and own:
                target, addresses, credentials = own, await self._addresses(own), trusted.headers
            else:
                # Whoever is asked from here on may redirect anywhere, also back: no credentials any more.
                trusted = None
                (target, addresses), credentials = await self.pinned(url), {}
            async with self.asked("GET", target, addresses, headers={"Accept": "*/*", **credentials}) as response:
                if response.status_code in REDIRECTS and (location := response.headers.get("location")):
                    url = urljoin(target.url, location)
                    continue
                if response.status_code != 200:
                    raise Unavailable("fetch_failed", why=f"the server answers {response.status_code}")
                return await self._save(response, draft, limit_bytes)
        raise Invalid("address_refused", why=f"it redirects more than {self._redirects} times")

    @contextlib.asynccontextmanager
    async def asked(
        self,
        method: str,
        target: Target,
        addresses: Sequence[str],
        *,
        headers: Mapping[str, str],
        content: bytes | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Ask the addresses in turn until one takes the connection. The body of the answer is still to be read."""
        if self._tls is None and target.scheme == "https":
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context, trust_env=False)
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                httpx2.AsyncClient(
                    verify=self._tls or False,
                    trust_env=False,
                    follow_redirects=False,
                    timeout=httpx2.Timeout(READ_S, connect=CONNECT_S),
                )
            )
            for number, address in enumerate(addresses, 1):
                try:
                    asking = client.stream(method, **_request(target, address, headers), content=content)
                    response = await stack.enter_async_context(asking)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    if number == len(addresses):
                        raise
                else:
                    yield response
                    return

    async def _save(self, response: httpx2.Response, draft: Path, limit_bytes: int) -> Fetched:
        told = response.headers.get("content-length", "")
        if told.isdecimal() and int(told) > limit_bytes:
            raise TooLarge("upload_too_large", limit=limit_bytes)
        digest, size, waiting = hashlib.sha256(), 0, bytearray()
        file = await asyncio.to_thread(draft.open, "xb")
        try:
            async for piece in _plain(response, self._pace):
                size += len(piece)
                if size > limit_bytes:
                    raise TooLarge("upload_too_large", limit=limit_bytes)
                digest.update(piece)
                waiting += piece
                if len(waiting) >= CHUNK:
                    await asyncio.to_thread(file.write, bytes(waiting))
                    waiting.clear()
            await asyncio.to_thread(file.write, bytes(waiting))
        finally:
            await asyncio.to_thread(file.close)
        return Fetched(
            size, digest.hexdigest(), response.headers.get("content-type", "").partition(";")[0].strip().lower()
        )


def _request(target: Target, address: str, headers: Mapping[str, str]) -> dict[str, Any]:
    host = f"[{address}]" if ":" in address else address
    return {
        "url": f"{target.scheme}://{host}:{target.port}{target.target}",
        "headers": {
            "Host": target.host_header,
            "Accept-Encoding": "identity",
            "User-Agent": "docmill",
            **headers,
        },
        "extensions": {"sni_hostname": target.host},
    }


async def _plain(response: httpx2.Response, pace: Pace) -> AsyncIterator[bytes]:
    """The body without its encoding, in pieces of bounded size, though a server was asked not to encode."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "", "gzip", "x-gzip"}:
        raise Unavailable("fetch_failed", why="the server sends an encoding that was not asked for")
    inflater = zlib.decompressobj(16 + zlib.MAX_WBITS) if "gzip" in encoding else None
    async for data in _paced(response, pace):
        if inflater is None:
            yield data
            continue
        while data and not inflater.eof:
            try:
                yield inflater.decompress(data, CHUNK)
            except zlib.error as error:
                raise Unavailable("fetch_failed", why="the answer's encoding is broken") from error
            data = inflater.unconsumed_tail
    if inflater:
        while piece := inflater.decompress(b"", CHUNK):
            yield piece
        if not inflater.eof:
            raise Unavailable("fetch_failed", why="the answer ended too early")


async def _paced(response: httpx2.Response, pace: Pace) -> AsyncIterator[bytes]:
    began, size = monotonic(), 0
    async for data in response.aiter_raw():
        size += len(data)
        took = monotonic() - began
        if took > pace.grace and size < pace.slowest * took:
            raise Unavailable("fetch_failed", why="the server sends too slowly")
        yield data


def _may_call(address: str, networks: Sequence[Network]) -> bool:
    try:
        return may_call(ip_address(address), networks)
    except ValueError:
        return False
