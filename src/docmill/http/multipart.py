"""multipart/form-data as a stream: parts come one after the other, and a file is never held whole.

form = Form.of(headers, chunks, limits)
while part := await form.next_part():
    if part.is_file: async for chunk in part.chunks(): ...
    else: text = await part.text()
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.datastructures import Headers

from docmill.core.errors import BadRequest, TooLarge, UnsupportedMedia
from docmill.http.wire import check_text

_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{1,200}")
_PLAIN_ENCODINGS = (b"", b"binary", b"8bit", b"7bit")


@dataclass(frozen=True, slots=True)
class FormLimits:
    fields: int = 16
    field_bytes: int = 64 * 1024
    files: int = 1
    parts: int = 128
    headers: int = 8
    header_bytes: int = 4_096


class Form:
    """Pulls parts out of a body. Bytes are asked for only when somebody wants the next piece."""

    def __init__(self, boundary: bytes, body: AsyncIterator[bytes], limits: FormLimits) -> None:
        self.limits = limits
        self._body = body
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._field = self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._part: Part | None = None
        self._ended = False
        self._parts = self._fields = self._files = 0
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_end": self._on_end,
            },
            max_header_count=limits.headers,
            max_header_size=limits.header_bytes,
        )
        self._opened: deque[Part] = deque()

    @classmethod
    def of(cls, headers: Headers, body: AsyncIterator[bytes], limits: FormLimits) -> Form:
        given = headers.get("content-type", "")
        kind, options = parse_options_header(given)
        if kind != b"multipart/form-data":
            raise UnsupportedMedia(
                "media_type_unsupported",
                expected="multipart/form-data",
                given=given.partition(";")[0][:100] or "nothing",
            )
        boundary = options.get(b"boundary", b"")
        if not _BOUNDARY.fullmatch(boundary):
            raise _broken("Content-Type has no usable boundary")
        return cls(boundary, body, limits)

    async def next_part(self) -> Part | None:
        """The next part, or None at the end. What was not read of the part before is skipped."""
        if self._part:
            async for _ in self._part.chunks():
                pass
            self._part = None
        if await self._next() == "begin":
            self._part = self._opened.popleft()
            self._count(self._part)
            return self._part
        return None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Data of the current part."""
        while True:
            kind, data = await self._next_piece()
            if kind == "end":
                return
            yield data

    async def _next(self) -> str:
        kind, _ = await self._next_piece()
        return kind

    async def _next_piece(self) -> tuple[str, bytes]:
        while not self._waiting:
            if self._ended:
                return ("over", b"")
            await self._feed()
        return self._waiting.popleft()

    async def _feed(self) -> None:
        try:
            chunk = await anext(self._body)
        except StopAsyncIteration:
            # The closing boundary never came: the client stopped half-way, or cut the form off.
            raise BadRequest("upload_incomplete") from None
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise _broken(str(error)) from None

    def _count(self, part: Part) -> None:
        if part.is_file:
            self._files += 1
            if self._files > self.limits.files:
                raise BadRequest("request_invalid", why=f"the form has more than {self.limits.files} file(s).")
        else:
            self._fields += 1
            if self._fields > self.limits.fields:
                raise BadRequest("request_invalid", why=f"the form has more than {self.limits.fields} fields.")

    # The parser calls these while it reads a chunk.

    def _on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > self.limits.parts:
            raise BadRequest("request_invalid", why=f"the form has more than {self.limits.parts} parts.")
        self._headers = {}

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        name = self._field.lower()
        if name in self._headers:
            raise _broken("a part has the same header twice")
        self._headers[name] = self._value
        self._field = self._value = b""

    def _on_headers_finished(self) -> None:
        self._opened.append(Part.of(self, self._headers))
        self._waiting.append(("begin", b""))

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._waiting.append(("data", data[start:end]))

    def _on_part_end(self) -> None:
        self._waiting.append(("end", b""))

    def _on_end(self) -> None:
        self._ended = True


@dataclass(slots=True)
class Part:
    form: Form
    name: str
    filename: str | None
    content_type: str | None
    _done: bool = False

    @classmethod
    def of(cls, form: Form, headers: dict[bytes, bytes]) -> Part:
        kind, options = parse_options_header(headers.get(b"content-disposition"))
        if kind != b"form-data" or b"name" not in options:
            raise _broken("a part is not form-data with a name")
        if headers.get(b"content-transfer-encoding", b"").strip().lower() not in _PLAIN_ENCODINGS:
            raise _broken("a part has a Content-Transfer-Encoding")
        filename = options.get(b"filename")
        return cls(
            form,
            _text(options[b"name"]),
            None if filename is None else _text(filename).replace("%22", '"'),
            _media_type(headers.get(b"content-type", b"")),
        )

    @property
    def is_file(self) -> bool:
        """An empty name is what a browser sends when no file was chosen."""
        return bool(self.filename)

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._done:
            return
        async for data in self.form.pieces():
            yield data
        self._done = True

    async def text(self) -> str:
        """The value of a field."""
        limit = self.form.limits.field_bytes
        value = bytearray()
        async for data in self.chunks():
            value += data
            if len(value) > limit:
                raise TooLarge("body_too_large", limit=limit)
        try:
            return check_text(value.decode("utf-8"))
        except UnicodeDecodeError:
            raise BadRequest("request_invalid", why=f"the field '{self.name[:64]}' is not UTF-8.") from None


def _text(raw: bytes) -> str:
    """Names come as the UTF-8 bytes that the browser wrote; old clients write Latin-1."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return check_text(text)


def _media_type(raw: bytes) -> str | None:
    text = raw.decode("latin-1").partition(";")[0].strip().lower()
    return text if _MEDIA_TYPE.fullmatch(text) else None


def _broken(why: str) -> BadRequest:
    return BadRequest("request_invalid", why=f"the form is not well-formed multipart ({why[:200]}).")
