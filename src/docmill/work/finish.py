"""An external worker's result becomes artifacts, just as a local parse does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import structlog

from docmill.core.addresses import TrustedOrigin
from docmill.core.archive import text_entry, unpack_images
from docmill.core.errors import BadRequest, DocmillError, Invalid, NotFound, TooLarge, Unavailable
from docmill.core.keys import check_key
from docmill.core.machine import Change, StageResult
from docmill.core.reports import Final, PageText, Succeeded
from docmill.core.task import Attempt, Task
from docmill.ports import Ports
from docmill.work.objects import objects
from docmill.work.receive import receive
from docmill.work.report_pages import WrittenParse, list_pictures, write_parse
from docmill.work.stages.parse import keep_files, scratch
from docmill.work.stages.step import Step, result_key, result_prefix

log = structlog.get_logger(__name__)

MAX_RESULT_BYTES = 1024**3
MAX_TEXT_BYTES = 256 * 1024**2
FETCH_S = 300.0
READ_CHARS = 1024**2
WHOLE_ARCHIVE = "archive_url"
"""Everything that a job made: fetched only when no other archive is given."""


@dataclass(slots=True)
class _Material:
    """What the report brought, as files."""

    text: Path | None
    pages: tuple[PageText, ...]
    archive: Path | None
    """It came with the report: one that is broken makes the report invalid."""
    fetched: dict[str, Path] = field(default_factory=dict)
    """Archives that were fetched, by the field that named them."""
    missing: dict[str, DocmillError] = field(default_factory=dict)
    """What could not be had, and why."""

    @property
    def has_text(self) -> bool:
        return bool((self.text and self.text.stat().st_size) or any(page.size for page in self.pages))


async def finish(ports: Ports, task: Task, attempt: Attempt, final: Final, *, outcome_hash: str) -> Change:
    """Read the result, keep it as artifacts, and report the stage as done. Bytes first, pointer second.

    Several reports may be finished at once for one attempt. Each has a folder and keys of its own; the ledger decides
    which of them counts, and the objects of the others are collected later.
    """
    report_id = uuid4().hex
    step = Step(task, attempt, lambda _done, _total: None, report_id=report_id)
    worker = attempt.worker or "external"
    async with scratch(ports.scratch / f"{attempt.id}-{report_id}") as folder:
        material = await _gather(ports, task, attempt, final, folder)
        parse = await asyncio.to_thread(_write, material, folder, worker)
        artifacts = await keep_files(ports, step, parse.assets, folder)
    missing = [
        {"field": name, "code": error.code, "message": error.message} for name, error in material.missing.items()
    ]
    if missing:
        log.warning("archives_missing", task=task.id, job=str(attempt.id), missing=missing)
    if removed := final.facts.get("characters_removed"):
        log.warning("characters_removed", task=task.id, job=str(attempt.id), characters=removed)
    result = StageResult(
        artifacts=artifacts,
        engine=attempt.worker,
        cache_hit=False,
        pages=parse.pages,
        missing_archives=tuple(material.missing),
        facts={"engine": attempt.worker, "pages": parse.pages, "figures": parse.figures, **final.facts}
        | {"phase": "completed", "percent": 100.0}
        | ({"message": final.message} if final.message else {})
        | ({"missing_archives": missing} if missing else {}),
    )
    return await receive(
        ports,
        task.id,
        attempt.id,
        Succeeded(result),
        token_hash=attempt.token_hash,
        outcome_hash=outcome_hash,
        report_id=report_id,
    )


async def _gather(ports: Ports, task: Task, attempt: Attempt, final: Final, folder: Path) -> _Material:
    """What the report only points to is brought here: a text or archives by their addresses, a result by its key."""
    material = _Material(final.text, final.pages, final.archive)
    is_elsewhere = final.text is None and final.archive is None
    if is_elsewhere and (final.result_key or not (final.text_url or final.archive_urls)):
        material = replace(material, **await _result_object(ports, task, attempt, final.result_key, folder))
    await _fetch_all(ports, attempt, final, material, folder)
    return material


async def _fetch_all(ports: Ports, attempt: Attempt, final: Final, material: _Material, folder: Path) -> None:
    worker = ports.workers.get(attempt.worker or "")
    origin = worker.origin if worker else None

    async def fetch(name: str, address: str, limit_bytes: int) -> Path | None:
        path = folder / name
        try:
            await _fetch(ports, origin, address, path, limit_bytes)
        except TooLarge as error:
            material.missing[name] = BadRequest(error.code, **error.facts)
            return None
        except (Invalid, Unavailable) as error:
            material.missing[name] = error
            return None
        return path

    if final.text_url and not material.has_text:
        material.text = await fetch("markdown_url", final.text_url, MAX_TEXT_BYTES)
        if material.text and not await asyncio.to_thread(_is_utf8, material.text):
            material.missing["markdown_url"] = BadRequest("result_unreadable", why="it is not UTF-8 Markdown")
            material.text = None
    urls = dict(final.archive_urls)
    if material.archive or len(urls) > 1:
        urls.pop(WHOLE_ARCHIVE, None)
    paths = await asyncio.gather(*(fetch(name, url, MAX_RESULT_BYTES) for name, url in urls.items()))
    material.fetched = {name: path for name, path in zip(urls, paths, strict=True) if path}


async def _fetch(ports: Ports, origin: TrustedOrigin | None, address: str, path: Path, limit_bytes: int) -> None:
    if ports.fetcher is None:
        raise Invalid("address_refused", why="this service fetches nothing")
    url = origin.resolve(address) if origin else address
    await ports.fetcher.fetch(url, path, limit_bytes=limit_bytes, seconds=FETCH_S, trusted=origin)


def _is_utf8(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as file:
            while file.read(READ_CHARS):
                pass
    except UnicodeDecodeError:
        return False
    return True


def _write(material: _Material, folder: Path, worker: str) -> WrittenParse:
    archives = [unpack_images(material.archive, folder / "assets")] if material.archive else []
    for name, path in material.fetched.items():
        try:
            archives.append(unpack_images(path, folder / "assets"))
        except BadRequest as error:
            # A worker's error page with status 200 is not an archive either.
            material.missing[name] = error
    if material.missing and not archives and not material.has_text:
        # Nothing is left of the report. Of several reasons one that may pass is told, so that the worker tries again.
        raise min(material.missing.values(), key=lambda error: error.status != Unavailable.status)
    pictures, names = list_pictures(archives)
    return write_parse(material.text, material.pages, pictures, names, folder=folder, engine=worker)


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


def _write_pages(pages: list[tuple[int, str]], folder: Path) -> tuple[PageText, ...]:
    path, written = folder / "pages", []
    with path.open("wb") as file:
        for number, content in sorted(pages):
            if number >= 1:
                start = file.tell()
                written.append(PageText(number, path, start, file.write(content.encode())))
    return tuple(written)


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
        contents = (data.get("metadata") or {}).get("text_contents") or []
        found["pages"] = _write_pages([(int(page["page"]), str(page["content"])) for page in contents], folder)
    except (ValueError, TypeError, AttributeError, KeyError, msgspec.DecodeError) as error:
        raise BadRequest("result_unreadable", why="its JSON is not of the documented shape") from error
    if not found.get("text") and not found.get("archive"):
        raise BadRequest("result_unreadable", why="its JSON has neither extracted_text nor images_archive_data")
    return found
