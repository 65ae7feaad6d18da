"""A document: the page beside what was read from it, the JSON, and whether all of it holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from markupsafe import Markup
from starlette.responses import Response

from docmill.console.markdown import in_render_thread, rendered_or_plain
from docmill.console.visit import Visit
from docmill.contracts import Asset, FileBlob, NormalizedDocument, check
from docmill.core.errors import DocmillError, NotFound
from docmill.core.parsed import Block, Box, Parsed
from docmill.core.task import Task
from docmill.ports import Ports
from docmill.work import documents
from docmill.work.objects import TenantStore, objects
from docmill.work.stages.parse import load

if TYPE_CHECKING:
    from docmill.console.app import Console

VIEWS = ("read", "json", "checks")
MAX_MARKDOWN = 4 * 1024**2
MAX_CHECKED = 200
MOST_BLOCKS = 2000
"""Of one page. Nobody points at more, and a browser should not have to draw them."""
SAME_PLACE = 0.005
ROOM = 0.004
EXCERPT = 80
SIGNS = re.compile(r"[#*_`|\\>]+|^[-+] |!?\[|\]\([^()]*\)|<[^<>]*>", re.MULTILINE)
"""What Markdown writes and nobody reads aloud."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A block of text and its box on the page."""

    number: int
    kind: str
    bbox: Box
    text: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """One page: its text as HTML, the assets on it, and where its text stands."""

    number: int
    html: Markup
    assets: list[Asset]
    damage: str | None = None
    spots: list[Spot] = field(default_factory=list)
    is_plain: bool = False
    """Too large, or too costly to format: shown as text."""
    has_image: bool = True
    """Whether there is a picture of the page; office documents and web pages have none."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    is_good: bool
    detail: str


async def show(console: Console, visit: Visit) -> Response:
    document_id: UUID = visit.request.path_params["document_id"]
    versions = await documents.get_versions(visit.ports, visit.who, document_id)
    wanted = visit.query("version")
    document = next((one for one in versions if str(one.ref.version or "") == wanted), versions[0])
    task = await _task(visit, document)
    view = visit.query("view", "read")
    view = view if view in VIEWS else "read"
    values: dict[str, Any] = {"leaf": None, "count": 0, "json": "", "checks": []}
    if view == "json":
        values["json"] = document.model_dump_json(indent=2)
    elif view == "checks":
        values["checks"] = await checks(visit.ports, document, task)
    else:
        values["leaf"], values["count"] = await _leaf(visit, document, task)
    return console.render(
        visit, "document.html", page="tasks", document=document, versions=versions, task=task, view=view, **values
    )


async def _task(visit: Visit, document: NormalizedDocument) -> Task | None:
    """The task that made it, if it is the visitor's own and still at this version."""
    number = document.meta.external_ref.get("task_id", "") if document.meta.external_ref else ""
    is_id = number.isdecimal() and len(number) < 19
    task = await visit.ports.ledger.get(int(number), visit.who.owner) if is_id else None
    return task if task and task.document_id == document.ref.document_id else None


async def _leaf(visit: Visit, document: NormalizedDocument, task: Task | None) -> tuple[Leaf | None, int]:
    number = visit.number("page") or 1
    if task and task.artifacts.parsed_key and str(task.run) == document.ref.version:
        try:
            parsed = await load(visit.ports, task.tenant, task.artifacts.parsed_key)
            return await in_render_thread(_page_of, document, parsed, number), len(parsed.pages)
        except NotFound:
            pass
    whole = next((one for one in document.assets if one.media_type == "text/markdown"), None)
    if whole is None or not isinstance(whole.blob, FileBlob) or (whole.blob.size or 0) > MAX_MARKDOWN:
        return None, 0
    try:
        blob = await documents.open_blob(visit.ports, visit.who, whole)
    except NotFound:
        return None, 0
    text = b"".join([chunk async for chunk in blob.stream]).decode("utf-8", "replace")
    html, is_plain = await in_render_thread(rendered_or_plain, text, {}, ())
    others = [one for one in document.assets if one is not whole]
    return Leaf(1, html, others, is_plain=is_plain), 1


def _page_of(document: NormalizedDocument, parsed: Parsed, number: int) -> Leaf | None:
    if not 1 <= number <= len(parsed.pages):
        return None
    page = parsed.pages[number - 1]
    # The first asset is the whole Markdown; the figures follow in the order of the parse.
    figures = list(zip(parsed.figures, document.assets[1:], strict=False))
    here = [(figure, asset) for figure, asset in figures if figure.page_index in (page.index, None)]
    images = {figure.name: str(asset.ref.asset_id) for figure, asset in figures}
    tables = [str(asset.ref.asset_id) for figure, asset in here if figure.kind == "table"]
    blocks = placed_blocks(page.blocks, [figure.bbox for figure, _ in here if figure.bbox])
    lines = page.markdown.split("\n")
    html, is_plain = rendered_or_plain(page.markdown, images, tables, blocks)
    return Leaf(
        number,
        html,
        [asset for _, asset in here],
        page.damage,
        [
            Spot(at, block.kind, roomy(block.bbox), excerpt(lines[block.first : block.end]))
            for at, block in blocks.items()
            if block.bbox
        ],
        is_plain,
        has_image=parsed.media_type == "application/pdf" or parsed.media_type.startswith("image/"),
    )


def placed_blocks(blocks: Sequence[Block], assets: Sequence[Box]) -> Mapping[int, Block]:
    """The blocks that have a place of their own, by number. Tables and figures are shown as the assets they are."""
    return {
        at: block
        for at, block in enumerate(blocks[:MOST_BLOCKS], 1)
        if block.bbox and not any(is_same(block.bbox, asset) for asset in assets)
    }


def is_same(one: Box, other: Box) -> bool:
    return all(abs(a - b) < SAME_PLACE for a, b in zip(one, other, strict=True))


def roomy(box: Box) -> Box:
    """A frame that does not cover the letters at its edges."""
    x0, y0, x1, y1 = box
    return max(0.0, x0 - ROOM), max(0.0, y0 - ROOM), min(1.0, x1 + ROOM), min(1.0, y1 + ROOM)


def excerpt(lines: Sequence[str]) -> str:
    """How the block begins, without the signs of Markdown."""
    text = " ".join(SIGNS.sub(" ", "\n".join(lines)[: 4 * EXCERPT]).split())
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT].rstrip()}…"


async def checks(ports: Ports, document: NormalizedDocument, task: Task | None) -> list[Check]:
    """What a reader may rely on, looked at now."""
    checked = check("document", document.model_dump_json(), strict=True)
    found = [Check("contract", checked.valid, "")]
    found += [Check(error.code, False, str(error.message)) for error in checked.errors[:MAX_CHECKED]]
    store = objects(ports, document.ref.tenant_id)
    found.append(Check("source", *await _stored(store, document)))
    for asset in document.assets[:MAX_CHECKED]:
        found.append(Check(asset.media_type, *await _stored(store, asset)))
    if task:
        damaged = ", ".join(str(page + 1) for page in task.damaged_pages)
        found.append(Check("pages", not damaged, damaged))
    return found


async def _stored(store: TenantStore, thing: NormalizedDocument | Asset) -> tuple[bool, str]:
    blob = thing.blob
    key = store.key_of(blob.uri) if isinstance(blob, FileBlob) else None
    if key is None or not isinstance(blob, FileBlob):
        return True, "external"
    try:
        stored = await store.stat(key)
    except DocmillError as error:
        return False, error.code
    if stored is None:
        return False, "blob_not_found"
    return stored.size == blob.size, thing.checksum[:12]
