"""A completed task's document in the formats of docling-serve: Markdown, JSON, HTML, plain text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import nh3
import pybase64
from markdown_it import MarkdownIt
from PIL import Image

from docmill.core.docling import Picture, docling_document, items_of, plain_text
from docmill.core.errors import Invalid
from docmill.core.output import stem_of
from docmill.core.parsed import Figure, Page, Parsed
from docmill.core.task import Task
from docmill.core.twin import relink
from docmill.ports import Ports
from docmill.work.objects import objects
from docmill.work.stages.parse import load, scratch
from docmill.work.stages.publish import asset_key

Format = Literal["md", "json", "html", "text"]
Images = Literal["embedded", "placeholder", "referenced"]

EMBED_BYTES = 32 * 1024**2
"""Of one image; a larger one is left out of the answer and stays an asset."""
PLACE = "docmill-image:"
PLACEHOLDER = "<!-- image -->"


@dataclass(frozen=True, slots=True)
class Wanted:
    formats: tuple[Format, ...] = ("md",)
    images: Images = "embedded"
    first: int = 1
    last: int = 0
    """Pages, counted from 1; 0: to the end."""

    def has(self, page: Page) -> bool:
        return self.first <= page.index + 1 and (not self.last or page.index + 1 <= self.last)


@dataclass(frozen=True, slots=True)
class Export:
    filename: str
    contents: Mapping[Format, Any]
    files: Mapping[str, bytes]
    """Images that the Markdown refers to, by their paths beside it."""
    damage: Mapping[int, str]
    """Pages that could not be read, counted from 1, and why."""

    @property
    def stem(self) -> str:
        return stem_of(self.filename)


async def export(ports: Ports, task: Task, wanted: Wanted) -> Export:
    """The document, from what the task left. Costly parts run beside the event loop."""
    parsed = await load(ports, task.tenant, task.artifacts.parsed_key or "")
    pages = tuple(page for page in parsed.pages if wanted.has(page))
    parsed = replace(parsed, pages=pages)
    images = await _images(ports, task, parsed) if wanted.images != "placeholder" else {}
    return await asyncio.to_thread(_made, task.filename, parsed, wanted, images)


@asynccontextmanager
async def fetched_from(ports: Ports, url: str, *, seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
    """The bytes at an address that somebody named, if it is safe to go there."""
    if ports.fetcher is None:
        raise Invalid("address_refused", why="nothing may be fetched here")
    async with scratch(ports.scratch / f"fetch-{uuid4()}") as there:
        path = there / "source"
        await ports.fetcher.fetch(url, path, limit_bytes=ports.limits.upload_bytes, seconds=seconds)
        yield _chunks(path)


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as stream:
        while chunk := await asyncio.to_thread(stream.read, 1 << 20):
            yield chunk


async def _images(ports: Ports, task: Task, parsed: Parsed) -> dict[str, bytes]:
    store = objects(ports, task.tenant)
    shown = [one for one in parsed.figures if _is_shown(one, parsed)]
    return {one.name: await store.read(asset_key(task, one.name), limit=EMBED_BYTES) for one in shown}


def _is_shown(figure: Figure, parsed: Parsed) -> bool:
    on_page = figure.page_index is None or figure.page_index in {page.index for page in parsed.pages}
    return figure.media_type.startswith("image/") and figure.size <= EMBED_BYTES and on_page


def _made(filename: str, parsed: Parsed, wanted: Wanted, images: Mapping[str, bytes]) -> Export:
    types = {figure.name: figure.media_type for figure in parsed.figures}
    stem = stem_of(filename)
    pictures = {name: found for name, data in images.items() if (found := _picture(data, types[name]))}
    paths = {name: f"{stem}_artifacts/{number:03}_{name}" for number, name in enumerate(images)}
    is_embedded = wanted.images == "embedded"
    links = {name: one.uri for name, one in pictures.items()} if is_embedded else paths
    markdown = _markdown(parsed, links)
    contents: dict[Format, Any] = {}
    items = items_of(parsed.pages)
    for one in wanted.formats:
        if one == "md":
            contents[one] = markdown
        elif one == "html":
            contents[one] = _html(stem, markdown)
        elif one == "text":
            contents[one] = plain_text(items)
        else:
            contents[one] = docling_document(stem, parsed, parsed.pages, items, pictures if is_embedded else {})
    damage = {page.index + 1: page.damage for page in parsed.pages if page.damage}
    files = {} if is_embedded else {paths[name]: data for name, data in images.items()}
    return Export(filename, contents, files, damage)


def _markdown(parsed: Parsed, links: Mapping[str, str]) -> str:
    texts = [page.markdown.strip() for page in parsed.pages if page.markdown.strip()]
    marks = {figure.name: links.get(figure.name, f"{PLACE}{n}") for n, figure in enumerate(parsed.figures)}
    linked = relink("\n\n".join(texts), marks)
    return _without_places(linked) if PLACE in linked else linked


def _without_places(markdown: str) -> str:
    """Images that are not sent leave docling's mark."""
    out, rest = [], markdown
    while (at := rest.find(f"]({PLACE}")) >= 0:
        start, end = rest.rfind("![", 0, at), rest.find(")", at)
        out.append(rest[: start if start >= 0 else at] + PLACEHOLDER)
        rest = rest[end + 1 :]
    return "".join([*out, rest])


def _html(title: str, markdown: str) -> str:
    body = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown)
    # What a document says is not trusted, and whoever asked may show it in a browser.
    safe = nh3.clean(body, url_schemes={*nh3.ALLOWED_URL_SCHEMES, "data"})
    head = f'<head>\n<meta charset="utf-8">\n<title>{nh3.clean_text(title)}</title>\n</head>'
    return f"<!DOCTYPE html>\n<html>\n{head}\n<body>\n{safe}\n</body>\n</html>\n"


def _picture(data: bytes, media_type: str) -> Picture | None:
    try:
        with Image.open(BytesIO(data)) as image:
            width, height = image.size
    except Exception:
        return None  # not an image after all; its asset can still be fetched
    return Picture(f"data:{media_type};base64,{pybase64.b64encode(data).decode()}", media_type, width, height)
