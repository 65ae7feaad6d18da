"""What both clients do alike around httpx2: address, headers, time limits, and what its errors mean."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from docmill.client.errors import Unexpected
from docmill.client.wire import Answer, Ask, Cut, Form

F = TypeVar("F", bound=Callable[..., Any])

CONNECT_S = 10.0
DEFAULT_URL = "http://127.0.0.1:8321"


def options(url: str | None, api_key: str | None, timeout: float) -> dict[str, Any]:
    address = (url or os.environ.get("DOCMILL_URL") or DEFAULT_URL).rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"'{address}' is not an address such as {DEFAULT_URL}")
    headers = {"User-Agent": f"docmill-client/{version('docmill')}"}
    if key := api_key or os.environ.get("DOCMILL_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    is_local = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")
    return {
        "base_url": address,
        "headers": headers,
        "timeout": httpx2.Timeout(timeout, connect=CONNECT_S),
        "trust_env": not is_local,  # a proxy has no business between us and this machine
        "verify": parts.scheme == "https",
    }


def dressed(method: F, call: Callable[..., Any]) -> F:
    """The method with the name, the words and the parameters of its call, for `help` and editors."""
    method.__name__, method.__doc__ = call.__name__, call.__doc__
    asked = signature(call).parameters.values()
    me = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = Signature([me, *asked])  # type: ignore[attr-defined]  # where inspect looks first
    return method


def request(ask: Ask, timeout: float) -> dict[str, Any]:
    """The arguments of httpx2's `build_request`, without the body of a form."""
    form = ask.form.headers if ask.form else {}
    return {
        "method": ask.method,
        "url": ask.path,
        "params": ask.given,
        "headers": {**form, **ask.headers},
        "json": ask.json,
        "timeout": httpx2.Timeout(timeout + ask.seconds, connect=CONNECT_S),
    }


def answer(response: httpx2.Response, body: bytes) -> Answer:
    return Answer(response.status_code, response.headers, body)


@contextmanager
def cuts() -> Iterator[None]:
    """httpx2's errors in our words."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        raise Cut(str(error) or type(error).__name__, unsent=True) from error
    except httpx2.TransportError as error:
        raise Cut(str(error) or type(error).__name__, unsent=False) from error
    except (httpx2.SSEError, httpx2.DecodingError) as error:
        raise Unexpected(str(error)) from error


def body(form: Form) -> Iterator[bytes]:
    chunks = form.content.open()
    if isinstance(chunks, AsyncIterator):
        raise TypeError("an asynchronous stream needs the AsyncClient")
    yield form.head
    yield from chunks
    yield form.tail


async def async_body(form: Form) -> AsyncIterator[bytes]:
    """The same, without stopping the event loop while a file is read."""
    yield form.head
    chunks = form.content.open()
    if isinstance(chunks, AsyncIterator):
        async for chunk in chunks:
            yield chunk
    else:
        while (piece := await asyncio.to_thread(next, chunks, None)) is not None:
            yield piece
    yield form.tail
