"""Objects in a bucket: S3 and whatever speaks it, Google Cloud Storage, Azure. The client is obstore.

An object is put in one request, or in parts that become visible together; of a stream no more than a few parts are in
memory, and nothing is on disk. A small put is conditional: bytes that are there already are not written again. The
SHA-256 is kept with the object where it is known before the first byte is sent; of a long stream it is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from docmill.core.errors import BadRequest, NotFound, TooLarge, Unavailable
from docmill.core.keys import check_key
from docmill.ports import Stored

PART: Final = 8 << 20
PARTS_AT_ONCE: Final = 3
CHUNK: Final = 1 << 20
OFF_LOOP: Final = 64 << 10
"""Hashing more than this at once happens in a thread."""
LONGEST_KEY: Final = 1024
"""Bytes of UTF-8, the prefix included: S3's limit."""
DIGEST: Final = "sha256"
FILENAME: Final = "filename"
TIMEOUT_S: Final = 30.0
CONNECT_S: Final = 5.0
RETRY_S: Final = 20.0


class CloudStore:
    """A `Store` in a bucket. Credentials and endpoint come from the usual variables (AWS_…, GOOGLE_…, AZURE_…)."""

    def __init__(
        self, url: str, *, part: int = PART, retry_s: float = RETRY_S, options: Mapping[str, Any] | None = None
    ) -> None:
        parts = urlsplit(url)
        self.bucket = parts.netloc
        self._prefix_bytes = len(parts.path.strip("/").encode()) + 1
        self._part = part
        self._store: Any = from_url(
            url,
            client_options={
                "allow_http": True,
                "connect_timeout": timedelta(seconds=CONNECT_S),
                "timeout": timedelta(seconds=TIMEOUT_S),
            },
            retry_config={"max_retries": 5 if retry_s else 0, "retry_timeout": timedelta(seconds=retry_s)},
            **dict(options or {}),
        )

    async def put(
        self, key: str, chunks: AsyncIterable[bytes], *, limit: int | None = None, filename: str = ""
    ) -> Stored:
        self._check(key)
        upload = _Upload(chunks, limit)
        head = await upload.up_to(self._part)
        if upload.is_complete:
            return await self._put(key, head, upload.digest, filename)
        facts = lambda: (upload.size, upload.digest)  # noqa: E731 - known at the end only
        return await self._put_parts(key, upload.with_head(head), facts, filename=filename)

    async def put_bytes(self, key: str, data: bytes) -> Stored:
        self._check(key)
        digest = await _hashed(data)
        if len(data) <= self._part:
            return await self._put(key, data, digest)
        return await self._put_parts(key, _sliced(data, self._part), lambda: (len(data), digest), digest)

    async def put_file(self, key: str, path: Path) -> Stored:
        self._check(key)
        digest, size = await asyncio.to_thread(_hash_file, path)
        if size <= self._part:
            data = await asyncio.to_thread(path.read_bytes)
            return await self._put(key, data, await _hashed(data))
        upload = _Upload(_file_chunks(path), None)
        stored = await self._put_parts(key, upload.with_head(b""), lambda: (upload.size, upload.digest), digest)
        if stored.sha256 != digest:
            # Somebody wrote to the file while we read it: what is stored would belie its own digest.
            await self.delete(key)
            raise Unavailable("storage_failed", why="the file changed while it was stored")
        return stored

    async def stat(self, key: str) -> Stored | None:
        self._check(key)
        try:
            with _translated(key):
                found = await obstore.get_async(self._store, key, options={"head": True})
        except NotFound:
            return None
        return _described(key, found)

    async def read(self, key: str, *, limit: int | None = None) -> bytes:
        self._check(key)
        with _translated(key):
            found = await obstore.get_async(self._store, key)
            if limit is not None and found.meta["size"] > limit:
                raise TooLarge("upload_too_large", limit=limit)
            return bytes(await found.bytes_async())

    async def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        self._check(key)
        stored = await self.stat(key)
        if stored is None:
            raise NotFound("object_not_found", key=key)
        end = stored.size if end is None else min(end, stored.size)
        if start >= end:
            return
        with _translated(key):
            found = await obstore.get_async(self._store, key, options={"range": (start, end)})
            async for chunk in found.stream(min_chunk_size=CHUNK):
                yield bytes(chunk)

    async def fetch(self, key: str, path: Path) -> Stored:
        self._check(key)
        draft = path.with_name(f".{uuid4().hex}.part")
        try:
            with _translated(key):
                found = await obstore.get_async(self._store, key)
                digest, size = hashlib.sha256(), 0
                with await asyncio.to_thread(draft.open, "xb") as copy:
                    async for chunk in found.stream(min_chunk_size=CHUNK):
                        data = bytes(chunk)
                        await asyncio.to_thread(_write, copy, digest, data)
                        size += len(data)
            await asyncio.to_thread(draft.replace, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        return Stored(key, size, digest.hexdigest(), _etag(found.meta))

    async def delete(self, key: str) -> bool:
        if await self.stat(key) is None:
            return False
        try:
            with _translated(key):
                await obstore.delete_async(self._store, key)
        except NotFound:
            return False
        return True

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int, float]]:
        folder = prefix.rpartition("/")[0]
        with _translated(prefix):
            async for page in obstore.list(self._store, folder or None, chunk_size=500):
                for found in page:
                    if found["path"].startswith(prefix):
                        yield found["path"], found["size"], found["last_modified"].timestamp()

    async def free_bytes(self) -> int | None:
        return None

    def sign(self, method: str, key: str, *, seconds: float) -> str:
        """An address under which whoever has it may do *method* with the object, without credentials, for a while."""
        self._check(key)
        with _translated(key):
            return str(obstore.sign(self._store, method, key, timedelta(seconds=seconds)))  # type: ignore[call-overload]

    async def close(self) -> None:
        """There is nothing to close: connections belong to the client's own pool."""

    def _check(self, key: str) -> None:
        check_key(key)
        if len(key.encode()) + self._prefix_bytes > LONGEST_KEY:
            raise BadRequest("key_invalid", why=f"an object store allows {LONGEST_KEY} bytes")

    async def _put(self, key: str, data: bytes, digest: str, filename: str = "") -> Stored:
        """In one request. What is there already with the same digest stays as it is; other bytes are replaced."""
        attributes = _attributes(digest, filename)
        with _translated(key):
            try:
                done = await obstore.put_async(
                    self._store, key, data, attributes=attributes, mode="create", use_multipart=False
                )
            except AlreadyExistsError:
                there = await self.stat(key)
                if there and there.sha256 == digest and there.size == len(data):
                    return there
                done = await obstore.put_async(self._store, key, data, attributes=attributes, use_multipart=False)
        return Stored(key, len(data), digest, _etag(done), filename)

    async def _put_parts(
        self,
        key: str,
        chunks: AsyncIterator[bytes],
        facts: Callable[[], tuple[int, str]],
        digest: str | None = None,
        filename: str = "",
    ) -> Stored:
        """In parts, visible together. If the chunks break off, the parts are given up before this returns."""
        source = _Stoppable(chunks)
        sending = asyncio.ensure_future(
            obstore.put_async(
                self._store,
                key,
                source,
                attributes=_attributes(digest, filename),
                use_multipart=True,
                chunk_size=self._part,
                max_concurrency=PARTS_AT_ONCE,
            )
        )
        try:
            done = await asyncio.shield(sending)
        except asyncio.CancelledError:
            source.stop()
            while not sending.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([sending])
            sending.cancelled() or sending.exception()
            raise
        except BaseException as error:
            if source.error is not None:
                raise source.error from None
            with _translated(key):
                raise error
        size, sha256 = facts()
        return Stored(key, size, sha256, _etag(done), filename)


class _Upload:
    """A stream on its way: counted, hashed and held to its limit."""

    def __init__(self, chunks: AsyncIterable[bytes], limit: int | None) -> None:
        self._chunks = aiter(chunks)
        self._limit = limit
        self._digest = hashlib.sha256()
        self.size = 0
        self.is_complete = False

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    async def next(self) -> bytes:
        """The next bytes; none at the end."""
        async for chunk in self._chunks:
            if not chunk:
                continue
            self.size += len(chunk)
            if self._limit is not None and self.size > self._limit:
                raise TooLarge("upload_too_large", limit=self._limit)
            if len(chunk) > OFF_LOOP:
                await asyncio.to_thread(self._digest.update, chunk)
            else:
                self._digest.update(chunk)
            return chunk
        self.is_complete = True
        return b""

    async def up_to(self, size: int) -> bytes:
        """What comes until the end, or until it is more than *size*."""
        parts, length = [], 0
        while length <= size and (chunk := await self.next()):
            parts.append(chunk)
            length += len(chunk)
        return b"".join(parts)

    async def with_head(self, head: bytes) -> AsyncIterator[bytes]:
        if head:
            yield head
        while chunk := await self.next():
            yield chunk


class _Stoppable:
    """An iterator that another task can end: the reader gets an error, so that it cleans up instead of finishing."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._stopped = asyncio.Event()
        self.error: BaseException | None = None

    def stop(self) -> None:
        self._stopped.set()

    def __aiter__(self) -> _Stoppable:
        return self

    async def __anext__(self) -> bytes:
        coming = asyncio.ensure_future(anext(self._chunks, b""))
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({coming, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopped.is_set():
                raise ConnectionError("given up")
            chunk = coming.result()
        except BaseException as error:
            self.error = error
            raise ConnectionError("given up") from error
        finally:
            for waiting in (coming, stopped):
                waiting.cancel()
            await asyncio.gather(coming, stopped, return_exceptions=True)
        if not chunk:
            raise StopAsyncIteration
        return chunk


@contextlib.contextmanager
def _translated(key: str) -> Any:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound("object_not_found", key=key) from error
    except (BaseError, OSError) as error:
        # The client's message names addresses and keys: it belongs into our log, not into an answer.
        raise Unavailable("storage_unavailable") from error


def _described(key: str, found: Any) -> Stored:
    given = found.attributes
    return Stored(
        key, found.meta["size"], given.get(DIGEST, ""), _etag(found.meta), _decode_name(given.get(FILENAME, ""))
    )


def _attributes(digest: str | None, filename: str) -> dict[str, str]:
    """Metadata travel in HTTP headers, which are ASCII: base64 also keeps 255 characters below S3's 2 KB."""
    name = urlsafe_b64encode(filename.encode()).decode()
    return ({DIGEST: digest} if digest else {}) | ({FILENAME: name} if name else {})


def _decode_name(text: str) -> str:
    try:
        return urlsafe_b64decode(text).decode()
    except ValueError:
        return ""  # somebody else's metadata


def _etag(facts: Mapping[str, Any]) -> str:
    return str(facts.get("e_tag") or "").strip('"')


async def _hashed(data: bytes) -> str:
    if len(data) <= OFF_LOOP:
        return hashlib.sha256(data).hexdigest()
    return await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())


def _write(copy: IO[bytes], digest: hashlib._Hash, data: bytes) -> None:
    copy.write(data)
    digest.update(data)


def _hash_file(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return digest.hexdigest(), file.tell()


async def _sliced(data: bytes, part: int) -> AsyncIterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(data), part):
        yield bytes(view[start : start + part])


async def _file_chunks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk
