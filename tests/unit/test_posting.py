"""Posting to addresses that somebody else chose: guarded like fetching; no redirect followed; failures are answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_network
from typing import Any

import pytest

from docmill.adapters.fetching.guarded import GuardedFetcher
from docmill.adapters.fetching.posting import GuardedPoster
from docmill.core.errors import Invalid
from docmill.core.webhooks import Answer

LOOPBACK = (ip_network("127.0.0.1/32"),)
Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(reply: Reply) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers as told; its port, and the requests that it saw."""
    seen: list[bytes] = []
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.current_task())  # type: ignore[arg-type]
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            seen.append(head + await reader.readexactly(size))
            await reply(writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


def saying(status: str, **headers: str) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "Content-Length: 0", "", ""]).encode())
        await writer.drain()

    return reply


async def posted(reply: Reply, *, seconds: float = 30, **options: Any) -> tuple[Answer, list[bytes]]:
    async with serving(reply) as (port, seen):
        poster = GuardedPoster(GuardedFetcher(ports=None, **{"allow_networks": LOOPBACK} | options))
        headers = {"Content-Type": "application/json", "webhook-id": "msg_1"}
        answer = await poster.post(f"http://hooks.test:{port}/in?a=b", b'{"x": 1}', headers, seconds=seconds)
    return answer, seen


def leading_to(*addresses: str) -> Any:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return [addresses[min(len(asked), len(addresses)) - 1]]

    return resolve


HERE = leading_to("127.0.0.1")


async def test_the_body_and_the_headers_arrive_as_they_are() -> None:
    answer, [request] = await posted(saying("204 No Content"), resolve=HERE)

    assert (204, None, None) == (answer.status, answer.code, answer.retry_after_s)
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /in?a=b HTTP/1.1\r\n")
    assert b"hooks.test" in head
    assert b"webhook-id: msg_1" in head
    assert b'{"x": 1}' == body


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("301 Moved", "webhook_redirected"),
        ("307 Temporary", "webhook_redirected"),
        ("410 Gone", "webhook_gone"),
        ("500 Oh", "webhook_refused"),
        ("404 Not", "webhook_refused"),
    ],
)
async def test_every_other_status_is_a_failure_and_no_redirect_is_followed(status: str, code: str) -> None:
    answer, seen = await posted(saying(status, Location="/elsewhere", Retry_After="7"), resolve=HERE)

    assert (int(status[:3]), code, 7.0) == (answer.status, answer.code, answer.retry_after_s)
    assert 1 == len(seen)


async def test_a_name_that_leads_inside_gets_nothing() -> None:
    for inside in ("169.254.169.254", "10.0.0.1", "::1", "64:ff9b::7f00:1"):
        answer, seen = await posted(saying("200 OK"), resolve=leading_to(inside))

        assert (None, "address_refused", []) == (answer.status, answer.code, seen)


async def test_a_name_that_leads_elsewhere_a_moment_later_changes_nothing() -> None:
    """It is resolved once, and that address is called."""
    answer, seen = await posted(saying("200 OK"), resolve=leading_to("127.0.0.1", "169.254.169.254"))

    assert (200, 1) == (answer.status, len(seen))


async def test_a_receiver_that_drips_is_given_up() -> None:
    async def drips(writer: asyncio.StreamWriter) -> None:
        for byte in b"HTTP/1.1 200 OK\r\n" * 100:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)

    answer, _ = await posted(drips, seconds=0.4, resolve=HERE)

    assert (None, "webhook_timeout") == (answer.status, answer.code)
    assert answer.took_ms >= 350


async def test_nonsense_cut_connections_and_nobody_there_are_answers_too() -> None:
    async def nonsense(writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\xff not HTTP at all\r\n\r\n")
        await writer.drain()

    async def nothing(_: asyncio.StreamWriter) -> None:
        return

    async def unknown(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    for reply in (nonsense, nothing):
        answer, _ = await posted(reply, resolve=HERE)
        assert (None, "webhook_unreachable") == (answer.status, answer.code)
    answer, _ = await posted(nothing, resolve=unknown)
    assert "webhook_unreachable" == answer.code
    poster = GuardedPoster(GuardedFetcher(allow_networks=LOOPBACK, ports=None))
    assert "webhook_unreachable" == (await poster.post("http://127.0.0.1:1/", b"", {}, seconds=30)).code
    assert "address_refused" == (await poster.post("ftp://127.0.0.1:1/", b"", {}, seconds=30)).code


def test_an_address_is_checked_before_it_is_kept() -> None:
    poster = GuardedPoster(GuardedFetcher())

    poster.check("https://hooks.example/in")
    for bad in (
        "http://127.0.0.1/",
        "https://hooks.example:8080/",
        "gopher://hooks.example/",
        "https://a:b@x.example/",
    ):
        with pytest.raises(Invalid):
            poster.check(bad)
