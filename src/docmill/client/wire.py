"""The wire without a wire: what to send, and what an answer means. Nothing here opens a connection or sleeps.

A call is a generator that yields steps and is sent their outcomes, so that `Client` and `AsyncClient` differ in how
they take a step and in nothing else.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from uuid import uuid4

from docmill.client.errors import KINDS, Refused, Unexpected, Unreachable

T = TypeVar("T")
Source = Path | str | bytes | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]
"""A path, the bytes themselves, an open file, or pieces of bytes as they come."""

CHUNK = 256 * 1024
AGAIN = frozenset({429, 502, 503, 504})
"""The service did nothing: asking again is safe, whatever was asked."""
PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
LONGEST_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file to send."""

    name: str
    size: int | None
    open: Callable[[], Iterator[bytes] | AsyncIterator[bytes]]
    can_rewind: bool

    @classmethod
    def of(cls, source: Source, filename: str | None = None) -> Content:
        if isinstance(source, str | Path):
            path = Path(source)
            return cls(filename or path.name, path.stat().st_size, lambda: _of_path(path), can_rewind=True)
        if isinstance(source, bytes | bytearray | memoryview):
            held = bytes(source)
            return cls(filename or "document", len(held), lambda: iter((held,)), can_rewind=True)
        name = filename or Path(str(getattr(source, "name", "document"))).name
        if isinstance(source, AsyncIterable):
            return cls(name, None, lambda: aiter(source), can_rewind=False)
        if hasattr(source, "read"):
            stream: BinaryIO = source  # type: ignore[assignment]  # whatever can be read
            return cls(name, None, lambda: iter(lambda: stream.read(CHUNK), b""), can_rewind=False)
        return cls(name, None, lambda: iter(source), can_rewind=False)


def _of_path(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


@dataclass(frozen=True, slots=True)
class Form:
    """multipart/form-data with one file at its end."""

    fields: Mapping[str, str]
    content: Content
    boundary: str = field(default_factory=lambda: uuid4().hex)

    @property
    def head(self) -> bytes:
        parts = [
            f'--{self.boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in self.fields.items()
        ]
        # A path may hold bytes that are no text; the service wants a name that is.
        name = self.content.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for char, escaped in (('"', "%22"), ("\r", "%0D"), ("\n", "%0A")):
            name = name.replace(char, escaped)
        parts.append(
            f'--{self.boundary}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        return "".join(parts).encode()

    @property
    def tail(self) -> bytes:
        return f"\r\n--{self.boundary}--\r\n".encode()

    @property
    def headers(self) -> dict[str, str]:
        kind = {"Content-Type": f"multipart/form-data; boundary={self.boundary}"}
        if self.content.size is None:
            return kind
        return kind | {"Content-Length": str(len(self.head) + self.content.size + len(self.tail))}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    form: Form | None = None
    into: Path | None = None
    """Where the body of a good answer goes, instead of into memory."""
    is_safe: bool = True
    """Sending it twice has the effect of sending it once."""
    seconds: float = 0.0
    """That the service may take longer than usual."""

    @property
    def given(self) -> dict[str, Any]:
        return {name: value for name, value in self.params.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise Unexpected(f"{self.status} without JSON") from None

    @property
    def retry_after(self) -> float:
        raw = self.headers.get("retry-after", "")
        return min(float(raw), LONGEST_PAUSE) if raw.isdecimal() and len(raw) < 6 else 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Do:
    """Work on this machine that may take a while: files to write, an archive to unpack."""

    work: Callable[[], Any]


class Cut(Exception):
    """The connection was never there (`unsent`), or broke before the answer was whole."""

    def __init__(self, why: str, *, unsent: bool) -> None:
        super().__init__(why)
        self.unsent = unsent


Step = Ask | Pause | Do
Steps = Generator[Step, Any, T]


def answered(ask: Ask) -> Steps[Answer]:
    """The good answer. What can be asked again safely is asked again; everything else is an error with a code."""
    for pause in (*PAUSES, None):
        wait = 0.0
        try:
            answer: Answer = yield ask
        except Cut as cut:
            if pause is None or not (ask.is_safe or cut.unsent) or not _can_repeat(ask):
                raise Unreachable(str(cut)) from cut
        else:
            if answer.is_good:
                return answer
            if answer.status not in AGAIN or pause is None or not _can_repeat(ask):
                raise refusal(answer)
            wait = answer.retry_after
        yield Pause(max(wait, jittered(pause)))
        ask = _renewed(ask)
    raise AssertionError("the last try returns or raises")


def _can_repeat(ask: Ask) -> bool:
    return ask.form is None or ask.form.content.can_rewind


def _renewed(ask: Ask) -> Ask:
    return replace(ask, form=replace(ask.form, boundary=uuid4().hex)) if ask.form else ask


def jittered(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.0)


def refusal(answer: Answer) -> Refused | Unexpected:
    """The error that an answer is."""
    try:
        problem = json.loads(answer.body)
        return KINDS.get(answer.status, Refused)(answer.status, problem)
    except (ValueError, KeyError, TypeError):
        return Unexpected(f"status {answer.status} without a code. Is it the right address?")
