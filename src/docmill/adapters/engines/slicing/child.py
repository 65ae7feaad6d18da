"""The child: counts the pages of one PDF, or cuts it. One job, one line of JSON out, then it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from docmill.adapters.engines.confine import allow_cpu, confine

LOOKED_AT = 24
"""Pages that are asked for a text layer, spread over the document."""


def main() -> None:
    job = json.loads(sys.argv[1])
    confine(job["parent"], job["memory_mb"], job["output_mb"])
    allow_cpu(job["seconds"])
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
        cut(pdf, Path(job["folder"]), job["slices"])
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
        piece.save(str(folder / f"{number:05d}.pdf"))
        piece.close()


def answer(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
