"""The child: counts the pages of one PDF, cuts it, or judges a result. One job, one line of JSON out, then it ends."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from docmill.adapters.engines.confine import allow_cpu, confine
from docmill.adapters.engines.sandbox.levels import Level
from docmill.core.errors import StorageFull, unwrap
from docmill.core.parsed import Page
from docmill.core.routing import quality

LOOKED_AT = 24
"""Pages that are asked for a text layer, spread over the document."""


def main() -> None:
    job = json.loads(sys.argv[1])
    isolation = confine(**job["confine"])
    if job["needs_full_sandbox"] and isolation.level is not Level.FULL:
        answer(code="sandbox_insufficient", level=isolation.level, why=isolation.missing())
        return
    allow_cpu(job["seconds"])
    if job["do"] == "judge":
        answer(**judge(Path(job["source"])))
    else:
        read_pdf(job)


def judge(source: Path) -> dict[str, int]:
    pages = json.loads(source.read_bytes())
    return asdict(quality([Page(index, markdown, damage) for index, (markdown, damage) in enumerate(pages)]))


def read_pdf(job: dict[str, Any]) -> None:
    import pypdfium2 as pdfium

    try:
        pdf = pdfium.PdfDocument(job["source"])
    except pdfium.PdfiumError as error:
        code = "document_encrypted" if "password" in str(error).lower() else "document_broken"
        answer(code=code)
        return
    if job["do"] == "count":
        answer(**count(pdf))
    else:
        try:
            cut(pdf, Path(job["folder"]), job["slices"])
        except OSError as error:
            if not isinstance(unwrap(error), StorageFull):
                raise
            answer(code="storage_full")
        else:
            answer(ok=True)


def count(pdf: Any) -> dict[str, int]:
    pages = len(pdf)
    step = max(1, pages // LOOKED_AT)
    looked = list(range(0, pages, step))[:LOOKED_AT]
    return {"pages": pages, "looked_at": len(looked), "text_pages": sum(has_text(pdf, index) for index in looked)}


def has_text(pdf: Any, index: int) -> bool:
    import pypdfium2 as pdfium

    try:
        return bool(pdf[index].get_textpage().count_chars())
    except pdfium.PdfiumError:
        return False


def cut(pdf: Any, folder: Path, slices: list[list[int]]) -> None:
    import pypdfium2 as pdfium

    for number, (first, last) in enumerate(slices):
        piece = pdfium.PdfDocument.new()
        piece.import_pages(pdf, list(range(first, last + 1)))
        with Output(folder / f"{number:05d}.pdf") as output:
            piece.save(output)
        piece.close()


class Output:
    """A file for PDFium, which ignores an exception of the stream that it writes to: raised when the file is closed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self._error = error
            raise

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError) if self._error else nullcontext():
            self._file.close()
        if self._error:
            raise self._error


def answer(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
