"""What parent and child say to each other: a length of four bytes, then JSON. Checked on both sides, never pickled."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from docmill.core.parsed import Figure, Page

HEADER = 4
LARGEST = 256 * 1024 * 1024


class Parse(msgspec.Struct, tag="parse", frozen=True):
    """Parent to child: do this document."""

    source: str
    filename: str
    folder: str
    options: dict[str, Any]
    limits: dict[str, Any]


class Render(msgspec.Struct, tag="render", frozen=True):
    """Parent to child: draw one page, counted from 0."""

    source: str
    page: int
    width: int
    limits: dict[str, Any]


class Window(msgspec.Struct, frozen=True):
    """Pages of a long document that are looked at together; those before *wanted* are written already."""

    start: int
    stop: int
    wanted: int


class Part(msgspec.Struct, tag="part", frozen=True):
    """Parent to child: read a window of a long document."""

    document: Parse
    window: Window
    total: int


class Before(msgspec.Struct, tag="before", frozen=True):
    """Parent to child: what stands at the edges of the pages before the window."""

    edges: list[list[str]]


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """Parent to child: another document waits for your place; give the window back after the page that you are at."""


class SoFar(msgspec.Struct, frozen=True):
    """What was found in some pages, apart from themselves."""

    pages: int
    damaged: int
    sample: str
    first_heading: str | None
    facts: dict[str, Any]


class Conclude(msgspec.Struct, tag="conclude", frozen=True):
    """Parent to child: all windows are read; say what can only be said of the whole."""

    source: str
    options: dict[str, Any]
    limits: dict[str, Any]
    media_type: str
    title: str | None
    so_far: SoFar


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """Sent once, before any document was read: which layers of the sandbox are in force, and what was still possible
    in spite of them."""

    layers: dict[str, str]
    possible: list[str]


class Started(msgspec.Struct, tag="started", frozen=True):
    """The child took the document. Whatever happens to it from now on is the document's doing."""


class Progress(msgspec.Struct, tag="progress", frozen=True):
    done: int
    total: int | None


class Finished(msgspec.Struct, tag="page", frozen=True):
    """A page is done; its figures lie in the folder."""

    page: Page
    figures: list[Figure]


class Long(msgspec.Struct, tag="long", frozen=True):
    """The document is long: nothing is read yet, its windows can be had one by one."""

    media_type: str
    title: str | None
    pages: int
    window: int
    rss_mb: int


class Edges(msgspec.Struct, tag="edges", frozen=True):
    """What stands at the edges of the window's pages. The child waits for `Before`."""

    pages: list[list[str]]


class Read(msgspec.Struct, tag="read", frozen=True):
    """The window is read up to a page, to its end unless the parent called."""

    upto: int
    so_far: SoFar
    written: int
    rss_mb: int


class Done(msgspec.Struct, tag="done", frozen=True):
    media_type: str
    title: str | None
    language: str | None
    facts: dict[str, Any]
    rss_mb: int


class Drawn(msgspec.Struct, tag="drawn", frozen=True):
    """The page as PNG."""

    png: bytes
    rss_mb: int


class Failed(msgspec.Struct, tag="failed", frozen=True):
    kind: Literal["document", "stage", "missing"]
    code: str
    facts: dict[str, Any]
    rss_mb: int


Order = Parse | Render | Part | Before | Stop | Conclude
Answer = Ready | Started | Progress | Finished | Long | Edges | Read | Done | Drawn | Failed

_answers = msgspec.json.Decoder(Answer)
_orders = msgspec.json.Decoder(Order)


class BadFrame(ValueError):
    """The other side said something that is no frame."""


def pack(message: msgspec.Struct) -> bytes:
    body = msgspec.json.encode(message)
    if len(body) > LARGEST:
        raise BadFrame(f"a frame of {len(body)} bytes")
    return len(body).to_bytes(HEADER, "big") + body


def length(header: bytes) -> int:
    size = int.from_bytes(header, "big")
    if size > LARGEST:
        raise BadFrame(f"a frame of {size} bytes")
    return size


def read_answer(body: bytes) -> Answer:
    try:
        answer: Answer = _answers.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadFrame(str(error)) from error
    return answer


def read_order(body: bytes) -> Order:
    order: Order = _orders.decode(body)
    return order
