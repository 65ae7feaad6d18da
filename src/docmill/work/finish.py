"""An external worker's result becomes artifacts, just as a local parse does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from posixpath import basename
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from docmill.core.archive import Unpacked, text_entry, unpack_images
from docmill.core.errors import BadRequest, NotFound
from docmill.core.keys import check_key
from docmill.core.machine import Change, StageResult
from docmill.core.parsed import Figure, Page, Parsed
from docmill.core.reports import Final, Succeeded
from docmill.core.task import Attempt, Task
from docmill.ports import Ports
from docmill.work.objects import objects
from docmill.work.receive import receive
from docmill.work.stages.dispatch import result_key
from docmill.work.stages.parse import keep, scratch
from docmill.work.stages.step import Step, result_prefix

MAX_RESULT_BYTES = 1024**3
MAX_TEXT_BYTES = 256 * 1024**2
FETCH_S = 300.0

_LINK = re.compile(r"(!?\[[^\]]*\]\()<?([^)>\s]+)>?((?:\s+\"[^\"]*\")?\))")


async def finish(ports: Ports, task: Task, attempt: Attempt, final: Final, *, outcome_hash: str) -> Change:
    """Read the result, keep it as artifacts, and report the stage as done. Bytes first, pointer second."""
    step = Step(task, attempt, lambda _done, _total: None)
    async with scratch(ports.scratch / f"{attempt.id}-final") as folder:
        final = await _fetched(ports, task, attempt, final, folder)
        parsed = await asyncio.to_thread(_parsed, final, folder, attempt.worker or "external")
        artifacts = await keep(ports, step, parsed, folder)
    result = StageResult(
        artifacts=artifacts,
        engine=attempt.worker,
        cache_hit=False,
        pages=len(parsed.pages),
        facts={"engine": attempt.worker, "pages": len(parsed.pages), "figures": len(parsed.figures), **final.facts},
    )
    return await receive(ports, task.id, attempt.id, Succeeded(result), outcome_hash=outcome_hash)


async def _fetched(ports: Ports, task: Task, attempt: Attempt, final: Final, folder: Path) -> Final:
    """What the report only points to is brought here: an archive by its address, a result by its key."""
    if final.archive_url and final.archive is None:
        if ports.fetcher is None:
            raise BadRequest("callback_payload_invalid", why="images_archive_url is not fetched by this service")
        path = folder / "archive.zip"
        await ports.fetcher.fetch(final.archive_url, path, limit_bytes=MAX_RESULT_BYTES, seconds=FETCH_S)
        final = replace(final, archive=path)
    if final.text is None and final.archive is None:
        found = await _result_object(ports, task, attempt, final.result_key, folder)
        final = replace(final, **found)
    return final


async def _result_object(ports: Ports, task: Task, attempt: Attempt, given: str | None, folder: Path) -> dict[str, Any]:
    key = own_result_key(attempt, given or result_key(attempt.id))
    path = folder / "result"
    try:
        await objects(ports, task.tenant).fetch(key, path)
    except NotFound as missing:
        raise BadRequest("result_missing", key=key) from missing
    return await asyncio.to_thread(_read_result, path, folder)


def own_result_key(attempt: Attempt, key: str) -> str:
    try:
        check_key(key)
    except BadRequest as error:
        raise BadRequest("result_key_invalid", why=str(error.facts.get("why"))) from error
    if not key.startswith(result_prefix(attempt.id)):
        raise BadRequest("result_key_invalid", why="it lies outside the job's own prefix")
    return key


def _read_result(path: Path, folder: Path) -> dict[str, Any]:
    """Markdown, JSON of the secretary's `data` shape, or a ZIP with a Markdown file and images: told by its bytes."""
    with path.open("rb") as source:
        head = source.read(4)
    if head.startswith(b"PK"):
        text, found = folder / "result.md", text_entry(path)
        text.write_text(found.text if found else "", encoding="utf-8")
        return {"text": text, "archive": path}
    if path.stat().st_size > MAX_TEXT_BYTES:
        raise BadRequest("result_unreadable", why="it is too large for Markdown or JSON")
    raw = path.read_bytes()
    if head.lstrip().startswith(b"{"):
        return _read_json(raw, folder)
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise BadRequest("result_unreadable", why="it is neither UTF-8 Markdown, nor JSON, nor a ZIP") from error
    return {"text": path}


def _read_json(raw: bytes, folder: Path) -> dict[str, Any]:
    from pybase64 import b64decode

    try:
        value = msgspec.json.decode(raw)
        data = value.get("data", value)
        found: dict[str, Any] = {}
        if isinstance(data.get("extracted_text"), str):
            found["text"] = folder / "result.md"
            (folder / "result.md").write_text(data["extracted_text"], encoding="utf-8")
        if isinstance(data.get("images_archive_data"), str):
            found["archive"] = folder / "archive.zip"
            (folder / "archive.zip").write_bytes(b64decode(data["images_archive_data"], validate=True))
        told = (data.get("metadata") or {}).get("text_contents") or []
        found["pages"] = tuple((int(page["page"]), str(page["content"])) for page in told)
    except (ValueError, TypeError, AttributeError, KeyError, msgspec.DecodeError) as error:
        raise BadRequest("result_unreadable", why="its JSON is not of the documented shape") from error
    if not found.get("text") and not found.get("archive"):
        raise BadRequest("result_unreadable", why="its JSON has neither extracted_text nor images_archive_data")
    return found


def _parsed(final: Final, folder: Path, worker: str) -> Parsed:
    images = unpack_images(final.archive, folder / "assets") if final.archive else ()
    names = {image.name_in_zip: image.safe_name for image in images}
    text = final.text.read_text(encoding="utf-8") if final.text else ""
    by_page = sorted(final.pages)
    pages = [Page(number - 1, relinked(content, names)) for number, content in by_page if number >= 1]
    whole = relinked(text, names)
    if not pages or len(whole) > 2 * sum(len(page.markdown) for page in pages):
        pages = [Page(0, whole)]
    shown = "\n".join(page.markdown for page in pages)
    missing = [image for image in images if f"assets/{image.safe_name}" not in shown]
    if missing:
        # An image that no text names would be lost: it is shown at the end.
        tail = "\n\n".join(f"![](assets/{image.safe_name})" for image in missing)
        last = pages[-1]
        pages[-1] = Page(last.index, f"{last.markdown.rstrip()}\n\n{tail}\n")
    return Parsed(worker, "text/markdown", tuple(pages), tuple(_figure(image, pages) for image in images))


def _figure(image: Unpacked, pages: list[Page]) -> Figure:
    link = f"assets/{image.safe_name}"
    page = next((page for page in pages if link in page.markdown), pages[-1])
    return Figure(image.safe_name, "image", image.media_type, image.sha256, image.size, page_index=page.index)


def relinked(markdown: str, names: Mapping[str, str]) -> str:
    """Links to files of the archive lead to where we keep them, whatever folder the worker had them in."""
    by_base: dict[str, str] = {}
    for name, safe in names.items():
        by_base.setdefault(basename(name.replace("\\", "/")), safe)

    def mend(match: re.Match[str]) -> str:
        target = unquote(match[2])
        safe = names.get(target) or names.get(target.removeprefix("./"))
        if safe is None and "://" not in target:
            safe = by_base.get(basename(target))
        return f"{match[1]}{quote(f'assets/{safe}')}{match[3]}" if safe else match[0]

    return _LINK.sub(mend, markdown)
