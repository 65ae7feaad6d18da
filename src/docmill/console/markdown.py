"""Markdown of a document as HTML that is safe to show: what a document says is never trusted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from secrets import token_hex
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from docmill.core.parsed import Block

MARKED = {"heading_open", "paragraph_open", "list_item_open", "table_open", "fence", "code_block"}
"""Tokens that become an element which can stand for a block of the page."""
NEAR = 50
TAGS = {
    *("h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "ul", "ol", "li", "blockquote", "pre", "code", "a", "img"),
    *("em", "strong", "s", "sub", "sup", "del", "ins", "div", "span", "dl", "dt", "dd"),
    *("table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td"),
}
NUMBERED = {"id", "data-block"}
ATTRIBUTES = dict.fromkeys(("h2", "h3", "h4", "h5", "h6", "p", "li", "pre", "code"), NUMBERED) | {
    "a": {"href", "title"},
    "img": {"src", "alt"},
    "div": {"data-asset", *NUMBERED},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan", "scope"},
    "ol": {"start"},
}
BLOBS = "/api/v1/assets/"
NO_BLOCKS: Mapping[int, Block] = {}


def rendered(
    text: str, images: Mapping[str, str], tables: Sequence[str], blocks: Mapping[int, Block] = NO_BLOCKS
) -> Markup:
    """*images*: the asset id of each name that the text links as `assets/<name>`; *tables*: those of its tables.

    *blocks*, by their numbers: an element that shows one has the number in `data-block`, and the first the id
    `block-<number>`.
    """
    parser = _parser()
    tokens = parser.parse(text)
    ours = token_hex(8)  # a document may hold such attributes, too; it cannot know this
    numbers = _numbered(tokens, blocks, ours)
    _mark(tokens, images, list(tables), numbers)
    html = parser.renderer.render(tokens, parser.options, {})
    safe = nh3.clean(html, tags=TAGS, attributes=ATTRIBUTES, attribute_filter=partial(_kept, ours))
    return Markup(safe)  # noqa: S704 - nh3 has cleaned it


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def _numbered(tokens: list[Token], blocks: Mapping[int, Block], ours: str) -> dict[int, dict[str, str]]:
    """The attributes of the tokens that show blocks, by their places in the list."""
    elements = list(_elements(tokens))
    begins = [first for _, first, _ in elements]
    found: dict[int, dict[str, str]] = {}
    for number, block in blocks.items():
        low, high = bisect_left(begins, block.first), bisect_left(begins, block.end)
        shows = [at for at, _, _ in elements[low:high]]
        if not shows:
            # Lines that begin no element of their own belong to the innermost one around them.
            near = reversed(elements[max(0, low - NEAR) : low])
            shows = [at for at, _, end in near if block.first < end][:1]
        for at in shows:
            own = found.setdefault(at, {})
            own["data-block"] = f"{own['data-block']} {number}" if own else f"{ours}{number}"
        if shows:
            found[shows[0]].setdefault("id", f"{ours}block-{number}")
    return found


def _elements(tokens: list[Token]) -> Iterator[tuple[int, int, int]]:
    """What may stand for a block: the token's place, its first line and the one after its last."""
    items = 0
    for at, token in enumerate(tokens):
        if token.type in ("list_item_open", "list_item_close"):
            items += token.nesting
        inner = items and token.type == "paragraph_open"  # the item stands for its paragraphs
        if token.map and not inner and (token.type in MARKED or _is_table(token)):
            yield at, token.map[0], token.map[1]


def _mark(
    tokens: list[Token], images: Mapping[str, str], tables: list[str], numbers: Mapping[int, dict[str, str]]
) -> None:
    """Point images at their assets, number tables and blocks, and let headings begin below the page's own."""
    level = 1
    for at, token in enumerate(tokens):
        own = numbers.get(at, {})
        for name, value in own.items():
            token.attrSet(name, value)
        if token.type == "heading_open":
            # A page may begin in the middle of a chapter; its outline still goes down one step at a time.
            level = min(int(token.tag[1]) + 1, level + 1, 6)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{level}"
        elif token.type == "table_open":
            _wrap(token, tables, own, before=True)
        elif token.type == "table_close":
            token.type, token.content = "html_block", "</table></div>\n"
        elif _is_table(token):
            _wrap(token, tables, own, before=False)
        for child in token.children or ():
            if child.type == "image":
                _link(child, images)


def _is_table(token: Token) -> bool:
    return token.type == "html_block" and token.content.lstrip().lower().startswith("<table")


def _wrap(token: Token, tables: list[str], own: Mapping[str, str], *, before: bool) -> None:
    attributes = dict(own) | ({"data-asset": tables.pop(0)} if tables else {})
    said = "".join(f' {name}="{value}"' for name, value in attributes.items())
    opening = f"<div{said}>"
    content = "<table>" if before else f"{token.content}</div>"
    token.type, token.content = "html_block", f"{opening}{content}\n"


def _link(token: Token, images: Mapping[str, str]) -> None:
    source = str(token.attrGet("src") or "")
    asset = images.get(source.removeprefix("assets/"))
    token.attrSet("src", f"{BLOBS}{asset}/blob" if asset else "")


def _kept(ours: str, tag: str, attribute: str, value: str) -> Any:
    """Images are our own assets only, and blocks those that we numbered, whatever the HTML in the text says."""
    if attribute in NUMBERED:
        return value.removeprefix(ours) if value.startswith(ours) else None
    if tag == "img" and attribute == "src" and not value.startswith(BLOBS):
        return None
    return value
