"""reStructuredText, Org, AsciiDoc and LaTeX as Markdown: headings, lists, code, tables and links.

These are maps, not implementations of the languages: what a map does not know stays as text, so no word is lost.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import sniff
from ..markdown import disarm, html_table, pipe_tables, tidy
from .asciidoc import asciidoc
from .job import Job
from .latex import latex
from .org import org
from .rst import rst
from .text import decode

MAPS: dict[str, Callable[[str], str]] = {
    sniff.RST: rst,
    sniff.ORG: org,
    sniff.ASCIIDOC: asciidoc,
    sniff.LATEX: latex,
}


def read(job: Job) -> None:
    text = decode(job.source.read_bytes()).replace("\r\n", "\n").replace("\r", "\n").expandtabs(4)
    markdown = tidy(disarm(MAPS[job.media_type](text)))
    for line, cells in pipe_tables(markdown):
        job.add_table(html_table(cells), 0, anchor=line)
    job.add_page(0, markdown)
    job.progress(1, 1)
