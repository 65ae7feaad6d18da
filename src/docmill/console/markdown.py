"""Markdown of a document as HTML that is safe to show: what a document says is never trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

TAGS = {
    *("h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "ul", "ol", "li", "blockquote", "pre", "code", "a", "img"),
    *("em", "strong", "s", "sub", "sup", "del", "ins", "div", "span", "dl", "dt", "dd"),
    *("table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td"),
}
ATTRIBUTES = {
    "a": {"href", "title"},
    "img": {"src", "alt"},
    "div": {"data-asset"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan", "scope"},
    "ol": {"start"},
}
BLOBS = "/api/v1/assets/"


def rendered(text: str, images: Mapping[str, str], tables: Sequence[str]) -> Markup:
    """*images*: the asset id of each name that the text links as `assets/<name>`; *tables*: those of its tables."""
    parser = _parser()
    tokens = parser.parse(text)
    _mark(tokens, images, list(tables))
    html = parser.renderer.render(tokens, parser.options, {})
    safe = nh3.clean(html, tags=TAGS, attributes=ATTRIBUTES, attribute_filter=_kept)
    return Markup(safe)  # noqa: S704 - nh3 has cleaned it


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def _mark(tokens: list[Token], images: Mapping[str, str], tables: list[str]) -> None:
    """Point images at their assets, number the tables, and let headings begin below the page's own."""
    level = 1
    for token in tokens:
        if token.type == "heading_open":
            # A page may begin in the middle of a chapter; its outline still goes down one step at a time.
            level = min(int(token.tag[1]) + 1, level + 1, 6)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{level}"
        elif token.type == "table_open":
            _wrap(token, tables, before=True)
        elif token.type == "table_close":
            token.type, token.content = "html_block", "</table></div>\n"
        elif token.type == "html_block" and token.content.lstrip().lower().startswith("<table"):
            _wrap(token, tables, before=False)
        for child in token.children or ():
            if child.type == "image":
                _link(child, images)


def _wrap(token: Token, tables: list[str], *, before: bool) -> None:
    asset = tables.pop(0) if tables else ""
    opening = f'<div data-asset="{asset}">' if asset else "<div>"
    content = "<table>" if before else f"{token.content}</div>"
    token.type, token.content = "html_block", f"{opening}{content}\n"


def _link(token: Token, images: Mapping[str, str]) -> None:
    source = str(token.attrGet("src") or "")
    asset = images.get(source.removeprefix("assets/"))
    token.attrSet("src", f"{BLOBS}{asset}/blob" if asset else "")


def _kept(tag: str, attribute: str, value: str) -> Any:
    """Images come from our own assets only, whatever the HTML in the text says."""
    if tag == "img" and attribute == "src" and not value.startswith(BLOBS):
        return None
    return value
