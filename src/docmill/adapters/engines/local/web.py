"""HTML pages."""

from __future__ import annotations

import base64
import binascii
import re
from html import unescape
from typing import Any
from urllib.parse import unquote_to_bytes

from docmill.core.errors import DocumentError
from docmill.core.links import LABEL, TARGET

from .. import sniff
from ..markdown import ENOUGH, coverage, disarm, html_table, image_link, pipe_tables, tidy
from .compact import outer_tables
from .job import Job

DATA_IMAGE = re.compile(
    rf"!\[({LABEL})\]\(<?data:([\w/+.-]*+)((?:;[\w=-]++)*+),((?:{TARGET})?+)>?(?:\s++\"[^\"]*+\")?\)"
)
META_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)
TITLE = re.compile(r"<title[^<>]*+>", re.IGNORECASE)
LANG = re.compile(r"<html[^>]+\blang\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
DEEPEST = 400
MOST = 0.5
"""Of a page's text. Where less would be left, the page uses its tags for something else."""
BODY = re.compile(r"<body\b[^>]*>(.*?)(?:</body\s*>|\Z)", re.IGNORECASE | re.DOTALL)
TOP_HEADING = re.compile(r"<h1\b[^>]*>.*?</h1\s*>", re.IGNORECASE | re.DOTALL)
NAVIGATION = re.compile(r"<nav\b[^>]*>.*?</nav\s*>", re.IGNORECASE | re.DOTALL)
MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(script|style|title)\b.*?(?:</\1\s*>|\Z)"
    r"""|</?([a-z][\w:-]*)(?:"[^"]*+"|'[^']*+'|[^>"']++)*+>?"""
    r"|<[!?/][^>]*+>?",
    re.IGNORECASE | re.DOTALL,
)
SPAN = re.compile(r"<t[dh]\b[^<>]{0,500}\b(?:col|row)span\b|.<table\b", re.IGNORECASE | re.DOTALL)
"""In a table: cells that span others, or a table inside."""
TABLE_TAGS = {
    "table",
    "thead",
    "tbody",
    "tfoot",
    "tr",
    "td",
    "th",
    "caption",
    "p",
    "br",
    "strong",
    "em",
    "ul",
    "ol",
    "li",
}
INLINE = frozenset(
    ("a", "abbr", "b", "cite", "code", "em", "font", "i", "mark", "s", "small", "span", "strong", "sub", "sup", "u")
)


def read(job: Job) -> None:
    html = decode(job.source.read_bytes())
    job.title = title_of(html)
    if found := LANG.search(html[:4096]):
        job.language = found[1]
    job.add_page(0, convert(job, main_content(html), page=0))
    job.progress(1, 1)


def decode(data: bytes) -> str:
    declared = META_CHARSET.search(data[:4096])
    names = [sniff.charset(data), declared[1].decode() if declared else None, "cp1252"]
    if names[0] == "cp1252" and names[1]:
        names.reverse()
        names = [names[1], *names]
    for name in filter(None, names):
        try:
            return data.decode(name)
        except (LookupError, UnicodeDecodeError):
            continue
    return data.decode("utf-8", "replace")


def title_of(html: str) -> str | None:
    head = html[:65536]
    begin = TITLE.search(head)
    end = head.lower().find("</title>", begin.end()) if begin else -1
    return " ".join(unescape(head[begin.end() : end]).split()) if begin and end >= 0 else None


def main_content(html: str) -> str:
    """The page without what is around its text: menus, banners, footers. Only if the page says itself what is which."""
    body = BODY.search(html)
    whole = body[1] if body else html
    for name in ("main", "article"):
        opened, closed = re.search(rf"<{name}\b[^>]*>", whole, re.IGNORECASE), whole.lower().rfind(f"</{name}")
        if opened is None or closed < opened.end():
            continue
        inside = whole[opened.end() : closed]
        if len(bare_text(inside)) < MOST * len(bare_text(whole)):
            continue
        title = TOP_HEADING.search(whole, 0, opened.start())
        return f"{title[0] if title and not TOP_HEADING.search(inside) else ''}{inside}"
    without = NAVIGATION.sub("", whole)
    return without if len(bare_text(without)) >= MOST * len(bare_text(whole)) else html


def convert(job: Job, html: str, page: int) -> str:
    """Markdown of the page; images that came inside it become figures, others stay links."""
    from html_to_markdown import ConversionOptions
    from html_to_markdown import convert as to_markdown

    options = ConversionOptions(
        extract_metadata=False,
        bullets="-",
        strip_tags=["script", "style", "noscript", "template", "iframe", "object"],
        max_depth=DEEPEST,
        br_in_tables=True,
    )
    try:
        result: Any = to_markdown(html, options)
    except Exception as error:
        raise DocumentError("document_broken", why="not readable as HTML") from error
    markdown = result.content or ""
    text = bare_text(html)
    # A warning says that it left out what lies too deep.
    if coverage(text, markdown) < (1 if result.warnings else ENOUGH):
        job.warn("structure dropped to keep the text")
        markdown = "\n\n".join([text.replace("<", "\\<"), *(image[0] for image in DATA_IMAGE.finditer(markdown))])
    markdown = DATA_IMAGE.sub(lambda found: keep_image(job, found, page), markdown)
    markdown = tidy(disarm(markdown))
    grids = list(pipe_tables(markdown))
    sources = [html[start:stop] for start, stop in outer_tables(html)]
    for number, (line, cells) in enumerate(grids):
        # A grid has no spans and no tables inside; the page's own table has.
        is_known = len(sources) == len(grids) and SPAN.search(sources[number]) is not None
        job.add_table(safe_table(sources[number]) if is_known else html_table(cells), page, anchor=line)
    return markdown


def safe_table(html: str) -> str:
    """The table with nothing but cells, spans and text."""
    import nh3

    spans = {"colspan", "rowspan"}
    return nh3.clean(html, tags=TABLE_TAGS, attributes={"td": spans, "th": spans}, link_rel=None).strip()


def bare_text(html: str) -> str:
    """All text, however deep, a paragraph per block. Not with html.parser: odd markup takes it hours, or breaks it."""
    one_line = " ".join(html.split())
    blocks = MARKUP.sub(lambda tag: "" if (tag[2] or "").lower() in INLINE else "\n", one_line).split("\n")
    return "\n\n".join(filter(None, (unescape(block).strip() for block in blocks)))


def keep_image(job: Job, found: re.Match[str], page: int) -> str:
    caption, _, parameters, payload = found.groups()
    try:
        data = base64.b64decode(payload) if ";base64" in parameters else unquote_to_bytes(payload)
    except (binascii.Error, ValueError):
        data = b""
    name = job.add_image(data, page) if data else None
    return image_link(name, caption) if name else f"*{caption}*" if caption else ""
