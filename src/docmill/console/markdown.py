"""Markdown of a document as HTML that is safe to show: what a document says is never trusted."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from math import inf
from secrets import token_hex
from typing import Any, TypeVar

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline import text as parse_text
from markdown_it.token import Token
from markupsafe import Markup

from docmill.core.parsed import Block

T = TypeVar("T")

MARKED = {"heading_open", "paragraph_open", "list_item_open", "table_open", "fence", "code_block"}
"""Tokens that become an element which can stand for a block of the page."""
NEAR = 50
MAX_RENDERED_CHARS = 512 * 1024
MAX_PLAIN_CHARS = 1024**2
MAX_RENDER_S = 3.0
"""Processor time of one page; an honest one of the largest size takes about that."""
DEADLINE = "deadline"
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


MAX_RENDER_THREADS = 2
_threads = ThreadPoolExecutor(MAX_RENDER_THREADS, thread_name_prefix="render")


async def in_render_thread(function: Callable[..., T], *args: Any) -> T:
    """Render beside the event loop, in few threads of its own: hostile pages must not take those of everybody else."""
    return await asyncio.get_running_loop().run_in_executor(_threads, function, *args)


def rendered(
    text: str, images: Mapping[str, str], tables: Sequence[str], blocks: Mapping[int, Block] = NO_BLOCKS
) -> Markup:
    """*images*: the asset id of each name that the text links as `assets/<name>`; *tables*: those of its tables.

    *blocks*, by their numbers: an element that shows one has the number in `data-block`, and the first the id
    `block-<number>`.
    """
    parser = _parser()
    tokens = parser.parse(text, {DEADLINE: time.thread_time() + MAX_RENDER_S})
    ours = token_hex(8)  # a document may hold such attributes, too; it cannot know this
    numbers = _numbered(tokens, blocks, ours)
    _mark(tokens, images, list(tables), numbers)
    html = parser.renderer.render(tokens, parser.options, {})
    safe = nh3.clean(html, tags=TAGS, attributes=ATTRIBUTES, attribute_filter=partial(_kept, ours))
    return Markup(safe)  # noqa: S704 - nh3 has cleaned it


def rendered_or_plain(
    text: str, images: Mapping[str, str], tables: Sequence[str], blocks: Mapping[int, Block] = NO_BLOCKS
) -> tuple[Markup, bool]:
    """The same within limits of size and time; beyond them as plain text, and True. Meant for a thread."""
    if len(text) <= MAX_RENDERED_CHARS:
        try:
            return rendered(text, images, tables, blocks), False
        except RenderTimeout:
            pass
    return Markup("<pre>{}</pre>").format(text[:MAX_PLAIN_CHARS]), True


class RenderTimeout(Exception):
    """The text takes the Markdown parser too long: for some texts it needs quadratic time."""


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    # The parser calls its rules at every place of the text: these two only look at the time.
    parser.inline.ruler.at("text", _text_within_deadline)
    parser.block.ruler.before("code", "deadline", _check_block_deadline, {"alt": []})
    return parser


def _check_deadline(env: Mapping[str, Any]) -> None:
    if time.thread_time() > env.get(DEADLINE, inf):
        raise RenderTimeout


def _text_within_deadline(state: StateInline, silent: bool) -> bool:
    _check_deadline(state.env)
    return parse_text(state, silent)


def _check_block_deadline(state: StateBlock, first: int, last: int, silent: bool) -> bool:  # noqa: ARG001
    _check_deadline(state.env)
    return False


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
