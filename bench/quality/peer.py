"""One engine in a process of its own: paths come in by standard input, Markdown and cost go out.

This file runs inside each peer's own environment, so it imports nothing but the standard library and that engine.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

Convert = Callable[[Path], str]


def docmill() -> Convert:
    from docmill.adapters.engines.local.child import get_warm
    from docmill.adapters.engines.local.job import Job
    from docmill.adapters.engines.local.limits import Limits
    from docmill.adapters.engines.local.reading import read

    get_warm()

    def convert(path: Path) -> str:
        pages: dict[int, str] = {}
        # Figures are written, which the peers do not do; whoever called us removes them with the rest.
        folder = Path(tempfile.mkdtemp(dir=Path.cwd()))
        job = Job(
            path.absolute(),
            path.name,
            folder,
            {},
            Limits(),
            "",
            lambda page, _figures: pages.update({page.index: page.markdown}),
            lambda _done, _total: None,
        )
        read(job)
        return "\n\n".join(text for _, text in sorted(pages.items()))

    return convert


def docvortex() -> Convert:
    from docmill.adapters.engines.local import vortex

    def convert(path: Path) -> str:
        middle = vortex.analyse(path.read_bytes())
        return "\n\n".join(vortex.render(middle, page) for page in middle.pages)

    return convert


def liteparse() -> Convert:
    from liteparse import LiteParse

    parser = LiteParse(ocr_enabled=False, output_format="markdown", quiet=True, num_workers=1)
    return lambda path: "\n\n".join(page.markdown for page in parser.parse(path).pages)


def markitdown() -> Convert:
    from markitdown import MarkItDown

    converter = MarkItDown(enable_plugins=False)
    return lambda path: str(converter.convert(str(path)).text_content)


def pymupdf4llm() -> Convert:
    import pymupdf.layout  # noqa: F401  # must come first: it changes what the next one does
    import pymupdf4llm as engine

    return lambda path: str(engine.to_markdown(str(path), show_progress=False, use_ocr=False))


def kreuzberg() -> Convert:
    from kreuzberg import ExtractionConfig, extract_file_sync

    config = ExtractionConfig(output_format="markdown")
    return lambda path: str(extract_file_sync(str(path), config=config).content)


def pdf_inspector() -> Convert:
    import pdf_inspector as engine

    return lambda path: str(engine.process_pdf(str(path)).markdown or "")


def pypdfium2() -> Convert:
    import pypdfium2 as pdfium

    def convert(path: Path) -> str:
        with pdfium.PdfDocument(path) as document:
            return "\n\n".join(page.get_textpage().get_text_range() for page in document)

    return convert


ENGINES: dict[str, Callable[[], Convert]] = {
    "docmill": docmill,
    "docvortex": docvortex,
    "liteparse": liteparse,
    "markitdown": markitdown,
    "pymupdf4llm": pymupdf4llm,
    "kreuzberg": kreuzberg,
    "pdf-inspector": pdf_inspector,
    "pypdfium2": pypdfium2,
}


def cpu() -> float:
    """Processor time of this process and of all that it started."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def peak_mb() -> float:
    own, others = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return max(own, others) / 1024


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints must not get between our lines
    os.chdir(tempfile.mkdtemp(dir=os.environ.get("QUALITY_TEMP")))  # engines leave files where they stand
    convert = ENGINES[sys.argv[1]]()

    def answer(**facts: object) -> None:
        answers.write(json.dumps(facts) + "\n")
        answers.flush()

    answer(ready=True)
    for line in sys.stdin:
        path = Path(line.strip())
        began, wall = cpu(), time.perf_counter()
        try:
            markdown, error = convert(path), None
        except Exception as failure:
            markdown, error = "", f"{type(failure).__name__}: {failure}"[:300]
        answer(
            markdown=markdown.encode("utf-8", "replace").decode(),
            error=error,
            cpu=cpu() - began,
            wall=time.perf_counter() - wall,
            peak_mb=peak_mb(),
        )


if __name__ == "__main__":
    main()
