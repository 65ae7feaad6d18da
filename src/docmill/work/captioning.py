"""Let a vision model look at a document's images. It may fail, or be absent: the document never waits for it long."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from docmill.contracts import NormalizedDocument
from docmill.core.captions import Caption, nearest, wanted
from docmill.core.errors import DocmillError
from docmill.core.parsed import Figure, Parsed
from docmill.core.task import Task
from docmill.ports import Captioner, Picture, Ports
from docmill.work.extracting import stays_home
from docmill.work.objects import objects

log = structlog.get_logger(__name__)

LOOKS_AT_ONCE = 4
MAX_OCR_TOLD = 2_000
STAGE_SHARE = 0.5
"""Of the stage's time: the rest is for the document, the twin and the mount."""


@dataclass(slots=True)
class Captions:
    """Captions by the name of the figure, and why some are missing."""

    found: dict[str, Caption] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    """How many images have none, by code."""

    def miss(self, code: str, count: int = 1) -> None:
        self.missing[code] = self.missing.get(code, 0) + count


async def captions_of(
    ports: Ports, task: Task, parsed: Parsed, keys: Mapping[str, str], known: Mapping[str, Caption]
) -> Captions:
    """Captions of the images that want one. *known*: by SHA-256, from an earlier version of the document."""
    captions, captioner = Captions(), ports.captioner
    figures = [figure for figure in parsed.figures if wanted(figure)]
    if captioner is None or not figures:
        return captions
    if stays_home(ports, task) and not captioner.home:
        captions.miss("llm_forbidden", len(figures))
        return captions
    captions.found = {one.name: known[one.sha256] for one in figures if one.sha256 in known}
    left = [one for one in figures if one.name not in captions.found]
    if len(left) > ports.limits.captions:
        captions.miss("caption_limit", len(left) - ports.limits.captions)
        left = left[: ports.limits.captions]
    gate = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def look(figure: Figure) -> None:
        async with gate:
            await _look(ports, task, captioner, figure, keys[figure.name], captions)

    looks = [asyncio.ensure_future(look(figure)) for figure in left]
    seconds = min(ports.limits.caption_seconds, ports.limits.task_timeout_s * STAGE_SHARE)
    try:
        if looks:
            await asyncio.wait(looks, timeout=seconds)
    finally:
        late = [one for one in looks if not one.done()]
        for one in late:
            one.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
    if late:
        captions.miss("caption_timeout", len(late))
    return captions


async def _look(ports: Ports, task: Task, captioner: Captioner, figure: Figure, key: str, captions: Captions) -> None:
    try:
        picture = Picture(
            await objects(ports, task.tenant).read(key),
            figure.media_type,
            nearest(figure.context_before, end=True),
            nearest(figure.context_after, end=False),
            figure.ocr_text[:MAX_OCR_TOLD],
        )
        captions.found[figure.name] = await captioner.caption(picture)
    except DocmillError as error:
        captions.miss(error.code)
    except Exception:
        # A description is a kindness; the document is what was asked for.
        log.exception("caption_failed", task=task.id)
        captions.miss("internal_error")


def known_captions(document: NormalizedDocument | None, model: str | None = None) -> dict[str, Caption]:
    """What this model, or any, said about the same bytes before."""
    assets = document.assets if document else []
    return {
        asset.checksum: Caption(asset.text_description or "", asset.caption_model or "", asset.caption_confidence or 0)
        for asset in assets
        if asset.caption_method == "vlm_caption" and model in (None, asset.caption_model)
    }
