"""Jupyter notebooks: text as it is, code fenced, outputs below it, pictures as figures."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from docmill.core.errors import DocumentError

from ..markdown import disarm, image_link, tidy
from . import web
from .job import Job
from .text import decode

ESCAPES = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
MAX_OUTPUT_CHARACTERS = 20_000
"""Of one output."""
FENCES = re.compile(r"`{3,}")
LANGUAGE = re.compile(r"[A-Za-z0-9+#_-]{1,30}")
ATTACHMENT = re.compile(r"\(attachment:([^()\s]{1,200})\)")


def read(job: Job) -> None:
    try:
        book = json.loads(decode(job.source.read_bytes()))
        cells = book.get("cells")
        if cells is None:  # nbformat 3
            cells = [cell for sheet in book.get("worksheets", ()) for cell in sheet.get("cells", ())]
        details = book.get("metadata", {})
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DocumentError("document_broken", why="not readable as a notebook") from error
    kernel = details.get("kernelspec", {}) if isinstance(details, dict) else {}
    language = str(kernel.get("language", "")) if isinstance(kernel, dict) else ""
    language = language if LANGUAGE.fullmatch(language) else "python"
    parts = [part for cell in cells if isinstance(cell, dict) for part in parts_of(job, cell, language)]
    job.add_page(0, tidy("\n\n".join(filter(None, parts))))
    job.progress(1, 1)


def parts_of(job: Job, cell: dict[str, Any], language: str) -> list[str]:
    source = joined(cell.get("source", cell.get("input", "")))
    kind = cell.get("cell_type")
    if kind == "code":
        outputs = [output_of(job, one) for one in cell.get("outputs", ()) if isinstance(one, dict)]
        return [fenced(source, language) if source.strip() else "", *outputs]
    if kind == "heading":
        level = cell.get("level")
        return [f"{'#' * min(level if isinstance(level, int) and level > 0 else 1, 6)} {source.strip()}"]
    if kind == "raw":
        return [fenced(source, "")] if source.strip() else []
    return [disarm(with_attachments(job, source, cell.get("attachments")))]


def with_attachments(job: Job, source: str, attachments: object) -> str:
    def place(found: re.Match[str]) -> str:
        bundle = attachments.get(found[1]) if isinstance(attachments, dict) else None
        name = picture(job, bundle) if isinstance(bundle, dict) else None
        return f"(assets/{name})" if name else "()"

    return ATTACHMENT.sub(place, source)


def output_of(job: Job, output: dict[str, Any]) -> str:
    if "ename" in output or output.get("output_type") in ("error", "pyerr"):
        return fenced(
            ESCAPES.sub("", "\n".join(map(str, output.get("traceback", ()))) or joined(output.get("evalue"))), "text"
        )
    if "text" in output and output.get("output_type") in ("stream", None):
        return fenced(ESCAPES.sub("", joined(output["text"])), "text")
    data = output.get("data", output)
    if not isinstance(data, dict):
        return ""
    if name := picture(job, data):
        return image_link(name)
    for kind in ("text/markdown", "markdown"):
        if kind in data:
            return disarm(joined(data[kind]))
    for kind in ("text/html", "html"):
        if joined(data.get(kind)).strip():
            return web.convert(job, joined(data[kind]), page=0)
    for kind in ("text/latex", "latex"):
        if kind in data:
            return joined(data[kind])
    text = data.get("text/plain", data.get("text"))
    return fenced(ESCAPES.sub("", joined(text)), "text") if text else ""


def picture(job: Job, bundle: dict[str, Any]) -> str | None:
    for kind in ("image/png", "image/jpeg", "image/gif", "png", "jpeg"):
        if kind in bundle:
            try:
                data = base64.b64decode("".join(joined(bundle[kind]).split()))
            except (binascii.Error, ValueError):
                continue
            if name := job.add_image(data, 0):
                return name
    return None


def joined(value: object) -> str:
    return "".join(map(str, value)) if isinstance(value, list) else str(value) if value is not None else ""


def fenced(text: str, language: str) -> str:
    """A block that its own text cannot end."""
    text = text.strip("\n")[:MAX_OUTPUT_CHARACTERS]
    fence = "`" * max([3, *(len(found) + 1 for found in FENCES.findall(text))])
    return f"{fence}{language}\n{text}\n{fence}" if text.strip() else ""
