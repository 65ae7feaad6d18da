"""What readers and retrieval see and the classic scores do not: whole paragraphs, lists, code, marks, links, levels.

Each measure is a handful of counts, so that documents can be added up: `wanted`, `got` and `hit` for what is matched
one by one, plain counts for the rest.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rapidfuzz import fuzz

from . import markup

MIN_RATIO = 92
"""Percent of two texts that must agree before they count as the same item."""
MIN_PARAGRAPH_LETTERS = 60
MATCHED = (
    "heading",
    "level",
    "paragraph",
    "item",
    "nested item",
    "code block",
    "code indent",
    "inline code",
    "bold",
    "italic",
    "link",
)
FRONT = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)
FENCED = re.compile(r"```.*?```", re.DOTALL)
NOT_PROSE = re.compile(r"(#|\||<table|[-*+] |\d+[.)] |>|§)")
STARTS_SMALL = re.compile(r"[*_]*[a-zäöüàéè]")
ENDS_OPEN = re.compile(r"[\w,\-][*_]*$")
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")

_parser = MarkdownIt("commonmark").enable("table")


def normalized(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


def find_items(markdown: str) -> dict[str, list[str]]:
    """Every matched kind with the texts of its items."""
    found: dict[str, list[str]] = defaultdict(list)
    tokens = _parser.parse(FRONT.sub("", markdown))
    nesting = 0
    for number, token in enumerate(tokens):
        following = tokens[number + 1] if number + 1 < len(tokens) else token
        if token.type in ("bullet_list_open", "ordered_list_open"):
            nesting += 1
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            nesting -= 1
        elif token.type == "heading_open":
            title = normalized(inline_text(following))
            found["heading"].append(title)
            found["level"].append(f"{title}|{token.tag}")
        elif token.type == "list_item_open" and number + 2 < len(tokens) and tokens[number + 2].type == "inline":
            text = normalized(inline_text(tokens[number + 2]))[:60]
            found["item"].append(text)
            if nesting > 1:
                found["nested item"].append(f"{text}|{nesting}")
        elif token.type in ("fence", "code_block"):
            found["code block"].append(normalized(token.content))
            if token.content.count("\n") > 1:
                found["code indent"].append("\n".join(line.rstrip() for line in token.content.strip().splitlines()))
        elif token.type == "paragraph_open" and not nesting and following.type == "inline":
            text = normalized(inline_text(following))
            if len(text) > MIN_PARAGRAPH_LETTERS:
                found["paragraph"].append(text)
        elif token.type == "inline":
            for kind, text in inline_items(token):
                found[kind].append(text)
    return found


def inline_text(token: Token) -> str:
    texts = ("text", "code_inline")
    breaks = ("softbreak", "hardbreak")
    return "".join(
        child.content if child.type in texts else " " if child.type in breaks else "" for child in token.children or ()
    )


def inline_items(token: Token) -> Iterator[tuple[str, str]]:
    kinds = {"strong": "bold", "em": "italic", "link": "link"}
    stack: list[tuple[str, list[str]]] = []
    for child in token.children or ():
        name, _, side = child.type.rpartition("_")
        if name in kinds and side == "open":
            stack.append((kinds[name], []))
        elif name in kinds and side == "close" and stack:
            kind, parts = stack.pop()
            yield kind, normalized("".join(parts))
            if stack:
                stack[-1][1].extend(parts)
        else:
            if child.type == "code_inline":
                yield "inline code", normalized(child.content)
            if stack:
                stack[-1][1].append(child.content or "")


def match(truth: str, found: str) -> Counter[str]:
    """`wanted`, `got` and `hit` of each kind, as `kind:wanted` and so on."""
    tally: Counter[str] = Counter()
    wanted, got = find_items(truth), find_items(found)
    for kind in MATCHED:
        left = Counter(got[kind])
        is_exact = kind in ("level", "nested item", "code indent")
        hits = 0
        missed = []
        for text in wanted[kind]:
            if left[text] > 0:
                left[text] -= 1
                hits += 1
            else:
                missed.append(text)
        for text in () if is_exact else missed:
            near = max((one for one, n in left.items() if n > 0), key=lambda one: fuzz.ratio(text, one), default=None)
            if near is not None and fuzz.ratio(text, near) >= MIN_RATIO:
                left[near] -= 1
                hits += 1
        tally[f"{kind}:wanted"] = len(wanted[kind])
        tally[f"{kind}:got"] = len(got[kind])
        tally[f"{kind}:hit"] = hits
    return tally


def blocks(markdown: str) -> list[str]:
    text = FENCED.sub("\n\n§\n\n", FRONT.sub("", markdown))
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    return [block.strip() for block in re.split(r"\n\s*\n", text) if block.strip()]


def is_paragraph(block: str) -> bool:
    return not NOT_PROSE.match(block) and len(block) > 25


def count_paragraph_faults(truth: str | None, found: str) -> Counter[str]:
    """Paragraphs that end inside a sentence, and neighbours of the truth that became one."""
    own = blocks(found)
    tally: Counter[str] = Counter()
    for one, other in pairwise(own):
        if is_paragraph(one) and not re.match(r"(#|\||<table|[-*+] |>|§)", other):
            tally["cuts"] += bool(STARTS_SMALL.match(other) and ENDS_OPEN.search(one))
    if truth is not None:
        paragraphs = [normalized(block) for block in blocks(truth) if is_paragraph(block)]
        paragraphs = [text for text in paragraphs if len(text) > MIN_PARAGRAPH_LETTERS]
        plain = [normalized(block) for block in own]
        for one, other in pairwise(paragraphs):
            tally["neighbours"] += 1
            tally["merged"] += any(one[-40:] in block and other[:40] in block for block in plain)
    return tally


def count_invented_tables(truth: str, found: str) -> int:
    """Tables of a document that has none."""
    return 0 if markup.tables(truth) else len(markup.tables(found))


def cover(text: str, markdown: str) -> tuple[int, int]:
    """How many of the page's words the result has, and how many there are."""
    wanted, found = (Counter(WORD.findall(side.casefold())) for side in (text, markup.plain(markdown)))
    return (wanted & found).total(), wanted.total()
