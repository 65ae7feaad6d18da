"""Microsoft Graph, as much of it as twins need: items of one drive, and patience.

Requests are tried again after 429, 5xx and network faults, with the server's own `Retry-After` or with growing pauses;
after a 401 once with a fresh token. Large files go up in fragments, and a session that was cut is asked what it has.
Answers may get lost after the work was done, so whoever repeats a request looks whether it had worked.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO, Final, Literal, Protocol
from urllib.parse import quote, urlsplit

import httpx2

from docmill.core.errors import StageFailed, StorageFull

BASE: Final = "https://graph.microsoft.com/v1.0"
SMALL: Final = 4 * 1024 * 1024
STEP: Final = 320 * 1024
"""Fragments of an upload session are multiples of this."""
FIELDS: Final = "id,name,size,eTag,cTag,file,folder,lastModifiedDateTime,parentReference"
PAGE: Final = 999
TRANSIENT: Final = frozenset({408, 423, 425, 429, 500, 502, 503, 504, 509})

Conflicts = Literal["fail", "replace"]


class Tokens(Protocol):
    async def get(self, *, fresh: bool = False) -> str:
        """A bearer token. *fresh*: the last one was refused."""
        ...


class GraphError(Exception):
    """Graph refused, and another try would end the same way."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"Microsoft Graph answers {status} {code}")
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Item:
    """A file or folder of the drive."""

    id: str
    name: str
    size: int
    etag: str
    """Changes with everything."""
    ctag: str
    """Changes with the content only."""
    is_folder: bool
    quick_xor: str
    """Empty where the server tells none."""
    sha256: str
    modified: datetime
    parent_id: str


@dataclass(frozen=True, slots=True)
class Patience:
    tries: int = 6
    first_pause: float = 0.5
    longest_pause: float = 120.0
    """A server that wants more is left alone: the stage is tried again later."""
    sessions: int = 3


class Graph:
    def __init__(
        self,
        tokens: Tokens,
        *,
        drive: str = "me/drive",
        base: str = BASE,
        patience: Patience = Patience(),  # noqa: B008 - it never changes
        fragment: int = 16 * STEP,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        client: httpx2.AsyncClient | None = None,
    ) -> None:
        """*drive*: `me/drive`, `drives/<id>`, `users/<id>/drive`, `sites/<id>/drive`."""
        if fragment % STEP:
            raise ValueError(f"a fragment is a multiple of {STEP} bytes")
        self._tokens = tokens
        self._drive = f"{base}/{drive.strip('/')}"
        self._base = base
        self._patience = patience
        self._fragment = fragment
        self._sleep = sleep
        self._client = client or httpx2.AsyncClient(timeout=httpx2.Timeout(60.0, connect=15.0), follow_redirects=False)

    async def close(self) -> None:
        await self._client.aclose()

    # --- items

    async def find(self, names: tuple[str, ...], *, parent_id: str | None = None) -> Item | None:
        """The item at a path below the drive's root, or below a folder."""
        start = f"items/{_segment(parent_id)}" if parent_id else "root"
        path = "/".join(map(_segment, names))
        where = f"{start}:/{path}" if names else start
        try:
            answer = await self._ask("GET", f"{self._drive}/{where}?$select={FIELDS}")
        except GraphError as error:
            if error.status == 404:
                return None
            raise
        return _item(answer.json())

    async def children(self, folder_id: str) -> list[Item]:
        url = f"{self._drive}/items/{_segment(folder_id)}/children?$select={FIELDS}&$top={PAGE}"
        found: list[Item] = []
        while url:
            page = (await self._ask("GET", url)).json()
            found += map(_item, page["value"])
            url = page.get("@odata.nextLink", "")
            if url and not url.startswith(self._base + "/"):
                raise GraphError(502, "foreignNextLink")  # it would be sent our token
        return found

    async def make_folder(self, parent_id: str, name: str) -> Item:
        """The folder of that name, made if need be."""
        body = {"name": name, "folder": {}, "@microsoft.graph.conflictBehavior": "fail"}
        try:
            answer = await self._ask("POST", f"{self._drive}/items/{_segment(parent_id)}/children", json=body)
            return _item(answer.json())
        except GraphError as error:
            there = await self.find((name,), parent_id=parent_id) if error.status == 409 else None
            if there is None or not there.is_folder:
                raise
            return there

    async def move(self, item: Item, *, parent_id: str, name: str, guarded: bool = True) -> Item:
        """Move and rename at once. *guarded*: only if nobody changed the item since. A taken name is an error 409."""
        body = {
            "name": name,
            "parentReference": {"id": parent_id},
            "@microsoft.graph.conflictBehavior": "fail",
        }
        headers = {"If-Match": item.etag} if guarded and item.etag else {}
        try:
            answer = await self._ask("PATCH", self._url(item.id), json=body, headers=headers)
            return _item(answer.json())
        except GraphError as error:
            if error.status in {409, 412}:
                now = await self.find((name,), parent_id=parent_id)
                if now and now.id == item.id:
                    return now  # an earlier try had worked, and only its answer got lost
            raise

    async def delete(self, item: Item) -> None:
        """To the recycle bin. Gone already is fine; changed since is an error 412."""
        try:
            await self._ask("DELETE", self._url(item.id), headers={"If-Match": item.etag} if item.etag else {})
        except GraphError as error:
            if error.status != 404:
                raise

    async def read(self, item: Item, *, limit: int) -> bytes:
        if item.size > limit:
            raise GraphError(413, "tooLarge")
        return b"".join([piece async for piece in self._content(item)])

    async def digest(self, item: Item) -> str:
        """The SHA-256 of a file's content, which is fetched for it."""
        digest = hashlib.sha256()
        async for piece in self._content(item):
            digest.update(piece)
        return digest.hexdigest()

    async def _content(self, item: Item) -> AsyncIterator[bytes]:
        """A file's bytes. What breaks off half-way is for the caller's next try."""
        answer = await self._ask("GET", f"{self._url(item.id)}/content", redirects=True)
        if not answer.is_redirect:
            yield answer.content
            return
        # The address that it leads to carries its own leave; our token stays here.
        async with self._client.stream("GET", self._foreign(answer.headers.get("location", ""))) as content:
            if not content.is_success:
                raise StageFailed("twin_unavailable", why=f"OneDrive: a download answers {content.status_code}")
            async for piece in content.aiter_bytes():
                yield piece

    # --- uploads

    async def upload(
        self, parent_id: str, name: str, content: BinaryIO, *, conflicts: Conflicts = "fail", etag: str = ""
    ) -> Item:
        """Put a file into a folder. *etag*: replace only this version (412 if it is another by now)."""
        size = content.seek(0, os.SEEK_END)
        where = f"{self._drive}/items/{_segment(parent_id)}:/{_segment(name)}:"
        headers = {"If-Match": etag} if etag else {}
        if size > SMALL:
            return await self._upload_in_parts(where, name, content, size, conflicts, headers)
        content.seek(0)
        url = f"{where}/content?@microsoft.graph.conflictBehavior={conflicts}"
        headers["Content-Type"] = "application/octet-stream"
        return _item((await self._ask("PUT", url, content=content.read(), headers=headers)).json())

    async def _upload_in_parts(
        self, where: str, name: str, content: BinaryIO, size: int, conflicts: Conflicts, headers: dict[str, str]
    ) -> Item:
        body = {"item": {"@microsoft.graph.conflictBehavior": conflicts, "name": name}}
        for _ in range(self._patience.sessions):
            session = (await self._ask("POST", f"{where}/createUploadSession", json=body, headers=headers)).json()
            url = self._foreign(session.get("uploadUrl", ""))
            try:
                if item := await self._send_parts(url, content, size):
                    return item
            except BaseException:
                with suppress(GraphError, StageFailed, httpx2.HTTPError):
                    await self._client.delete(url)
                raise
        raise StageFailed("twin_unavailable", why="OneDrive loses its upload sessions")

    async def _send_parts(self, url: str, content: BinaryIO, size: int) -> Item | None:
        """Send what the session still wants, until it has all. None: the session has expired."""
        start, failures = 0, 0
        while True:
            content.seek(start)
            part = await asyncio.to_thread(content.read, self._fragment)
            span = {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{size}"}
            try:
                answer = await self._client.put(url, content=part, headers=span)
            except httpx2.TransportError:
                answer = None
            if answer is not None and answer.status_code in {200, 201}:
                return _item(answer.json())
            if answer is not None and answer.status_code == 202:
                before, start = start, _wanted(answer, start + len(part), size)
                failures = failures if start > before else failures + 1
            elif answer is None or answer.status_code in TRANSIENT | {416}:
                failures += 1
                await self._pause(failures, answer)
                asked = await self._ask("GET", url, signed=False, allow={404, 410})
                if asked.status_code in {404, 410}:
                    return None
                start = _wanted(asked, start, size)
            elif answer.status_code in {404, 410}:
                return None
            else:
                raise _refusal(answer)
            if failures >= self._patience.tries:
                raise StageFailed("twin_unavailable", why="OneDrive does not take the file")

    # --- asking

    async def _ask(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        signed: bool = True,
        redirects: bool = False,
        allow: set[int] | None = None,
    ) -> httpx2.Response:
        failures, fresh = 0, False
        while True:
            sent = dict(headers or {})
            if signed:
                sent["Authorization"] = f"Bearer {await self._tokens.get(fresh=fresh)}"
            answer: httpx2.Response | None = None
            try:
                answer = await self._client.request(method, url, json=json, content=content, headers=sent)
            except httpx2.TransportError as error:
                why = type(error).__name__
            if answer is not None:
                if answer.is_success or (redirects and answer.is_redirect) or answer.status_code in (allow or ()):
                    return answer
                if answer.status_code == 401 and signed and not fresh:
                    fresh = True
                    continue
                if answer.status_code not in TRANSIENT:
                    raise _refusal(answer)
                why = f"it answers {answer.status_code}"
            failures += 1
            if failures >= self._patience.tries:
                raise StageFailed("twin_unavailable", why=f"OneDrive: {why}")
            await self._pause(failures, answer)

    async def _pause(self, failures: int, answer: httpx2.Response | None) -> None:
        wanted = _retry_after(answer) if answer is not None else None
        if wanted is not None and wanted > self._patience.longest_pause:
            raise StageFailed("twin_unavailable", why=f"OneDrive wants to be left alone for {wanted:.0f} s")
        pause = self._patience.first_pause * 2 ** (failures - 1)
        jittered = min(pause, self._patience.longest_pause) * random.uniform(0.5, 1.0)
        await self._sleep(jittered if wanted is None else max(wanted, 0.0) + random.uniform(0, 0.1))

    def _url(self, item_id: str) -> str:
        return f"{self._drive}/items/{_segment(item_id)}"

    def _foreign(self, url: str) -> str:
        """An address that Graph gave: it must be as safe a kind of address as Graph's own."""
        if urlsplit(url).scheme != urlsplit(self._base).scheme:
            raise GraphError(502, "foreignAddress")
        return url


def _segment(name: str | None) -> str:
    return quote(name or "", safe="!$&'()*+,;=@")


def _item(raw: dict[str, Any]) -> Item:
    hashes = raw.get("file", {}).get("hashes", {})
    modified = raw.get("lastModifiedDateTime", "1970-01-01T00:00:00Z")
    return Item(
        id=raw["id"],
        name=raw["name"],
        size=raw.get("size", 0),
        etag=raw.get("eTag", ""),
        ctag=raw.get("cTag", ""),
        is_folder="folder" in raw,
        quick_xor=hashes.get("quickXorHash", ""),
        sha256=hashes.get("sha256Hash", "").lower(),
        modified=datetime.fromisoformat(modified),
        parent_id=raw.get("parentReference", {}).get("id", ""),
    )


def _wanted(answer: httpx2.Response, otherwise: int, size: int) -> int:
    """Where the session wants to go on."""
    ranges = answer.json().get("nextExpectedRanges") or []
    start = str(ranges[0]).partition("-")[0] if ranges else ""
    return int(start) if start.isdecimal() and int(start) < size else min(otherwise, max(size - 1, 0))


def _retry_after(answer: httpx2.Response) -> float | None:
    text = answer.headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        return float(text) if text.replace(".", "", 1).isdecimal() else _seconds_until(parsedate_to_datetime(text))
    except (ValueError, TypeError):
        return None


def _seconds_until(moment: datetime) -> float:
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()


def _refusal(answer: httpx2.Response) -> Exception:
    try:
        code = str(answer.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        code = ""
    if answer.status_code == 507 or code in {"quotaLimitReached", "insufficientStorage"}:
        return StorageFull("storage_full", is_remote=True)  # the drive of a person, who must make room first
    if answer.status_code == 401:
        return StageFailed("twin_unavailable", why="OneDrive no longer takes the sign-in; sign in again")
    return GraphError(answer.status_code, code)


# --- hashes


class QuickXor:
    """OneDrive's own hash: 160 bits, each byte turned 11 bits further than the one before, and the length."""

    WIDTH: Final = 160

    def __init__(self) -> None:
        self._row = 0
        self._rest = b""
        self._length = 0

    def update(self, data: bytes) -> None:
        """Bytes that are 160 apart land at the same place, so they are folded by whole rows first."""
        self._length += len(data)
        data = self._rest + data
        whole = len(data) // self.WIDTH * self.WIDTH
        for at in range(0, whole, self.WIDTH):
            self._row ^= int.from_bytes(data[at : at + self.WIDTH], "little")
        self._rest = data[whole:]

    def value(self) -> str:
        row = (self._row ^ int.from_bytes(self._rest, "little")).to_bytes(self.WIDTH, "little")
        total = self._length << 96
        for index, byte in enumerate(row):
            turned = byte << (index * 11 % self.WIDTH)
            total ^= turned & (1 << self.WIDTH) - 1 ^ turned >> self.WIDTH
        return base64.b64encode(total.to_bytes(20, "little")).decode()
