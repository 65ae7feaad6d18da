"""The service as the client commands see it: one call each, errors as lines with a code."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import click
import httpx2

from docmill import __version__
from docmill.cli.failure import Refused, Trouble

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8321"
ETL = "/api/v1/etl"
FINAL = frozenset({"completed", "failed", "cancelled"})
TIMEOUT = httpx2.Timeout(60, connect=10)
RESUME_FOR_S = 60.0
"""How long a cut stream is taken up again before the service counts as gone."""

url_option = click.option(
    "--url", envvar="DOCMILL_URL", default=DEFAULT_URL, show_default=True, help="Where the service is (DOCMILL_URL)."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def run(url: str, work: Callable[[Api], Coroutine[Any, Any, T]]) -> T:
    """Run *work* with an open connection to the service."""

    async def main() -> T:
        async with opened(url) as api:
            return await work(api)

    return asyncio.run(main())


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Api]:
    address = url.rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise click.UsageError(f"'{url}' is not an address such as {DEFAULT_URL}.")
    headers = {"User-Agent": f"docmill/{__version__}"}
    # From the environment only: a flag would show the secret to every user of the machine.
    if key := os.environ.get("DOCMILL_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    try:
        async with httpx2.AsyncClient(
            base_url=address,
            headers=headers,
            timeout=TIMEOUT,
            verify=address.startswith("https:"),  # reading the certificates takes longer than all the rest
            trust_env=not is_local(address),  # a proxy has no business between us and this machine
        ) as client:
            yield Api(client, address)
    except httpx2.InvalidURL as error:
        raise click.UsageError(f"'{url}' is not an address: {error}.") from error
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise unreachable(address) from error
    except httpx2.TransportError as error:
        raise Trouble(f"The connection to {address} broke: {str(error) or type(error).__name__}. Try again.") from error


def is_local(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def unreachable(address: str) -> Trouble:
    return Trouble(f"No docmill answers at {address}. Start one with 'docmill serve', or say where it is with --url.")


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    kind: str
    data: dict[str, Any]
    at: str


@dataclass(frozen=True, slots=True)
class Api:
    client: httpx2.AsyncClient
    address: str

    async def get(self, path: str, **params: Any) -> Any:
        return await self.call("GET", path, params=params)

    async def post(self, path: str, body: Any = None, **params: Any) -> Any:
        return await self.call("POST", path, json=body, params=params)

    async def call(self, method: str, path: str, *, params: dict[str, Any] | None = None, **more: Any) -> Any:
        """The answer's JSON; what the service refuses is a Refused."""
        given = {name: value for name, value in (params or {}).items() if value is not None}
        answer = await self.client.request(method, path, params=given, **more)
        check(answer, self.address)
        return answer.json() if answer.content else None

    async def upload(self, file: Path, project: int) -> dict[str, Any]:
        """Stream a file into the store."""
        # A path may hold bytes that are no text; the service wants a name that is.
        name = os.fsencode(file.name).decode("utf-8", "replace")
        with file.open("rb") as content:
            answer = await self.client.post(
                f"{ETL}/upload", params={"project_id": project}, files={"file": (name, content)}
            )
        check(answer, self.address)
        stored: dict[str, Any] = answer.json()
        return {**stored, "filename": name}

    async def submit(self, body: dict[str, Any]) -> dict[str, Any]:
        """Submit a stored file. The Idempotency-Key makes it safe to ask again when the answer got lost."""
        headers = {"Idempotency-Key": str(uuid4())}
        for pause in (0.2, 1.0, None):
            try:
                answer = await self.client.post(f"{ETL}/submit", json=body, headers=headers)
                break
            except httpx2.TransportError:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        check(answer, self.address)
        found: dict[str, Any] = answer.json()
        return found

    async def task(self, task_id: int) -> dict[str, Any]:
        found: dict[str, Any] = await self.get(f"{ETL}/tasks/{task_id}")
        return found

    async def follow(self, task_id: int, after: int = 0) -> AsyncIterator[Event]:
        """The task's events to its end. A cut stream is taken up where it was cut, for up to a minute."""
        loop = asyncio.get_running_loop()
        has_begun, alive = False, loop.time()
        while True:
            try:
                headers = {"Last-Event-ID": str(after)}
                async with self.client.sse(f"{ETL}/tasks/{task_id}/events", headers=headers) as stream:
                    await self._check_stream(stream.response)
                    has_begun, alive = True, loop.time()
                    async for one in stream:
                        if one.event == "end":
                            return
                        if one.data:
                            event = read_event(one.data)
                            after, alive = event.seq, loop.time()
                            yield event
            except httpx2.TransportError:
                if not has_begun:
                    raise
            except Refused as refused:
                # A service that is shutting down says so; its successor will know the task.
                if not has_begun or refused.code != "shutting_down":
                    raise
            if loop.time() - alive > RESUME_FOR_S:
                raise unreachable(self.address)
            await asyncio.sleep(0.5)

    async def download(self, path: str, to: Callable[[bytes], object], **params: Any) -> None:
        given = {name: value for name, value in params.items() if value is not None}
        async with self.client.stream("GET", path, params=given) as answer:
            if answer.is_error:
                await answer.aread()
            check(answer, self.address)
            async for chunk in answer.aiter_bytes(1 << 20):
                to(chunk)

    async def _check_stream(self, answer: httpx2.Response) -> None:
        if answer.is_error:
            await answer.aread()
        check(answer, self.address)


def read_event(text: str) -> Event:
    raw = json.loads(text)
    return Event(int(raw["seq"]), str(raw["kind"]), raw.get("data") or {}, str(raw.get("at", "")))


def check(answer: httpx2.Response, address: str) -> None:
    """Problem details become a Refused; an answer that is not docmill's says so."""
    if answer.is_success:
        return
    try:
        problem = answer.json()
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        message = f"{address} answered {answer.status_code}, and not as docmill does. Is it the right address?"
        raise Trouble(message) from None
    raise Refused(code, detail)
