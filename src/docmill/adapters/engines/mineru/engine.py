"""The engine: one MinerU, wherever it is and whatever it speaks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docmill.adapters.engines import sniff
from docmill.adapters.engines.polling import Origin, PolledEngine
from docmill.core.parsed import Parsed

from .cloud import Cloud
from .results import read
from .three import Three
from .today import Today

if TYPE_CHECKING:
    from docmill.ports import Work

OCR_MODES: Final = {"always": "ocr", "never": "txt"}


class MinerUEngine(PolledEngine):
    revision = 2
    called = "MinerU"
    extensions = {  # noqa: RUF012 - a constant
        sniff.PDF: ".pdf",
        sniff.PNG: ".png",
        sniff.JPEG: ".jpg",
        sniff.WEBP: ".webp",
        sniff.GIF: ".gif",
        sniff.BMP: ".bmp",
        sniff.TIFF: ".tiff",
        sniff.DOCX: ".docx",
        sniff.PPTX: ".pptx",
        sniff.XLSX: ".xlsx",
        sniff.HTML: ".html",
    }
    contracts = (Today, Three, Cloud)

    def options_for(self, work: Work) -> dict[str, Any]:
        mode = OCR_MODES.get(str(work.options.get("ocr")))
        return {"ocr_mode": mode} if mode else {}

    def read(self, result: Path, folder: Path, origin: Origin) -> Parsed:
        return read(result, folder, origin)
