"""XML of strangers: no DTD, no entities, no network, and as much of a damaged file as can be had."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from docmill.core.errors import DocumentError

if TYPE_CHECKING:
    from lxml.etree import _Element

ENTITY = re.compile(rb"<!ENTITY\b", re.IGNORECASE)
ENTITY_DECLARATION = re.compile(rb"<!ENTITY\s+%?\s*([\w.:-]{1,100})[^<>]{0,100000}>?", re.IGNORECASE)
WORD_ENTITY = re.compile(
    rb"""<!ENTITY\s+([\w.:-]{1,100})\s+(?:"([^"&<%]{0,200})"|'([^'&<%]{0,200})')\s*>""", re.IGNORECASE
)
"""An entity that stands for a few letters."""
REFERENCE = re.compile(rb"&([\w.:-]{1,100});")
MAX_PROLOG_BYTES = 4096
HIDDEN = frozenset(
    (
        *("script", "style", "binary", "binary-data", "head", "font-face-decls", "annotation-xml", "tex-math"),
        # Numbers of articles and journals, for machines
        *("journal-id", "issn", "article-id", "contrib-id", "pub-date", "history", "object-id", "counts"),
        *("elocation-id", "custom-meta-group", "processing-meta", "self-uri", "pub-id"),
    )
)
"""Elements whose text is not displayed."""
INLINE = frozenset(
    (
        *("a", "abbr", "b", "bold", "code", "em", "emphasis", "ext-link", "font", "i", "italic", "link", "literal"),
        *("mark", "monospace", "quote", "s", "sc", "small", "span", "strikethrough", "strong", "sub", "subscript"),
        *("sup", "superscript", "tspan", "tt", "u", "xref"),
    )
)
"""Elements that do not end a word."""


def parse(data: bytes, *, recover: bool = True) -> _Element:
    """The root element. Entities are refused, not expanded."""
    from lxml import etree

    if b"\0" in data[:200] and ENTITY.search(data[: 1 << 20].replace(b"\0", b"")):
        raise DocumentError("document_bomb", why="its XML declares entities")
    data = without_entities(data)
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        recover=recover,
        huge_tree=True,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise DocumentError("document_broken", why="not readable as XML") from error
    if root is None:
        raise DocumentError("document_broken", why="not readable as XML")
    return root


def without_entities(data: bytes) -> bytes:
    """The text without its DOCTYPE. Entities that stand for a word are replaced; others are refused, never expanded."""
    start = data.find(b"<!DOCTYPE")
    if start < 0 or start > MAX_PROLOG_BYTES:
        if ENTITY.search(data):
            raise DocumentError("document_bomb", why="its XML declares entities")
        return data
    end, subset = data.find(b">", start), data.find(b"[", start)
    if not 0 <= subset < end:
        return data[:start] + data[end + 1 :] if end >= 0 else data
    stop = data.find(b"]", subset)
    end = data.find(b">", stop) if stop >= 0 else -1
    if end < 0:
        raise DocumentError("document_broken", why="not readable as XML")
    declared, rest = data[subset:stop], data[:start] + data[end + 1 :]
    if ENTITY.search(rest):
        raise DocumentError("document_bomb", why="its XML declares entities")
    words = {found[1]: found[2] or found[3] or b"" for found in WORD_ENTITY.finditer(declared)}
    for found in ENTITY_DECLARATION.finditer(declared):
        if found[1] not in words and b" NDATA " not in found[0]:  # NDATA names a file, and is not text
            raise DocumentError("document_bomb", why="its XML declares entities that stand for other entities or files")
    if not words:
        return rest
    return REFERENCE.sub(lambda found: words.get(found[1], found[0]), rest)


def name_of(element: Any) -> str:
    """The name without its namespace; comments and the like have none."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def text_of(root: Any) -> str:
    """All text that is shown, a line per block."""
    return "".join(pieces(root)).strip()


def pieces(root: Any) -> Iterator[str]:
    """Without recursion: a file decides how deep it is."""
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        element, is_done = stack.pop()
        name = name_of(element)
        is_block = name not in INLINE
        if is_done:
            if is_block:
                yield "\n"
            yield element.tail or ""
            continue
        if not name or name in HIDDEN:
            yield element.tail or "" if element is not root else ""
            continue
        if is_block:
            yield "\n"
        yield element.text or ""
        stack.append((element, True))
        stack.extend((child, False) for child in reversed(element))
