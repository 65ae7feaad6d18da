"""The engine: what docling-serve reads, and what is made of its result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from docmill.adapters.engines import sniff
from docmill.adapters.engines.assembling import Assembly
from docmill.adapters.engines.polling import Origin, PolledEngine, invalid
from docmill.core.errors import DocmillError
from docmill.core.parsed import Parsed

from .document import Document
from .serve import Serve, verdict

if TYPE_CHECKING:
    from docmill.ports import Work


class DoclingEngine(PolledEngine):
    revision = 2
    called = "docling-serve"
    extensions = {  # noqa: RUF012 - a constant
        sniff.PDF: ".pdf",
        sniff.PNG: ".png",
        sniff.JPEG: ".jpg",
        sniff.TIFF: ".tiff",
        sniff.WEBP: ".webp",
        sniff.BMP: ".bmp",
        sniff.DOCX: ".docx",
        sniff.PPTX: ".pptx",
        sniff.XLSX: ".xlsx",
        sniff.HTML: ".html",
        sniff.CSV: ".csv",
        sniff.MARKDOWN: ".md",
    }
    contracts = (Serve,)

    def options_for(self, work: Work) -> dict[str, Any]:
        match work.options.get("ocr"):
            case "never":
                return {"do_ocr": "false"}
            case "always":
                return {"force_ocr": "true"}
        return {}

    def read(self, result: Path, folder: Path, origin: Origin) -> Parsed:
        assets = folder / "assets"
        assets.mkdir(exist_ok=True)
        try:
            told = msgspec.json.decode(result.read_bytes())
            if told.get("kind") == "TaskFailureResult" or told.get("status") in ("failure", "skipped"):
                raise verdict(self.name, told.get("failure"))
            document = Document(told["document"]["json_content"], assets)
            blocks = list(document.blocks())
            title = document.title
        except DocmillError:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
            raise invalid(self.name, "its JSON has another shape") from error
        if told.get("status") == "partial_success":
            origin.facts["warnings"] = ["the provider read the document in part only"]
        assembly = Assembly(self.name, origin.media_type, folder, document.images)
        return assembly.build(blocks, document.page_count, title=title, facts=origin.facts)
