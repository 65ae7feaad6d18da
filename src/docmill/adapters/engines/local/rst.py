"""reStructuredText as Markdown, line by line. Of directives that are not known, the text stays."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import pairwise

from ..markdown import table
from .records import block

Lines = list[str]

MAX_DEPTH = 12
"""Blocks in blocks; what is deeper stays as plain lines."""
RST_RULE = re.compile(r"([=\-`:.'\"~^_*+#<>])\1{2,}\s*$")
RST_DIRECTIVE = re.compile(r" *\.\. +(?:\|[^|\n]{1,100}\| +)?([\w:+.-]{1,60})::(?: +(.*))?$")
RST_COMMENT = re.compile(r" *\.\.(?: |$)")
RST_TARGET = re.compile(r" *\.\. +_([^:\n]{1,200}):(?: +(\S{1,2000}))?\s*$")
RST_NOTE = re.compile(r" *\.\. +\[(#?[\w.-]{0,50}|\*)\] +(.*)$")
RST_FIELD = re.compile(r" *:([^:\n]{1,60}):(?: +(.*))?$")
RST_LITERAL = re.compile(r"``([^`\n]{1,500})``")
RST_LINK = re.compile(r"`([^`<\n]{1,300}?)\s*<([^<>`\s]{1,1000})>`__?")
RST_ROLE = re.compile(r":[a-zA-Z][\w:+.-]{0,60}:`([^`\n]{1,500})`")
RST_NAMED = re.compile(r"`([^`\n]{1,300})`__?(?!\w)")
RST_ITEM = re.compile(r"(?:[-*+•]|\(?(?:\d{1,9}|[A-Za-z#])[.)]) ")
RST_GRID = re.compile(r" *\+(?:[-=]+\+)+\s*$")
RST_SIMPLE = re.compile(r" *=+(?: +=+)+\s*$")
ADMONITIONS = frozenset(
    ("note", "warning", "tip", "important", "caution", "attention", "danger", "error", "hint", "admonition", "seealso")
)
CODE_DIRECTIVES = frozenset(("code", "code-block", "sourcecode", "literalinclude", "parsed-literal", "highlight"))


def rst(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(rst_lines(lines, {}))


def rst_lines(lines: Lines, levels: dict[str, int], depth: int = 0) -> Iterator[str]:
    if depth > MAX_DEPTH:
        yield from (line.strip() for line in lines)
        return
    at, is_in_list = 0, False
    while at < len(lines):
        line = lines[at]
        if not line or line.isspace():
            yield ""
            at += 1
        elif heading := rst_heading(lines, at, levels):
            yield from ("", heading[0], "")
            at = heading[1]
        elif found := RST_DIRECTIVE.match(line):
            body, at = taken_block(lines, at + 1, indent_of(line))
            yield from ("", *rst_directive(found[1], found[2] or "", body, levels, depth), "")
        elif found := RST_TARGET.match(line):
            if found[2]:
                yield f"{found[1].strip('`')}: <{found[2]}>  "
            at += 1
        elif found := RST_NOTE.match(line):
            body, at = taken_block(lines, at + 1, indent_of(line))
            rest = " ".join([found[2], *(one.strip() for one in body)])
            yield from ("", f"[^{found[1].strip('#*') or 'note'}]: {rst_inline(rest)}", "")
        elif RST_COMMENT.match(line):
            body, at = taken_block(lines, at + 1, indent_of(line))
        elif RST_GRID.match(line) or RST_SIMPLE.match(line):
            shown, at = rst_table(lines, at)
            yield from ("", shown, "")
        elif RST_RULE.fullmatch(line.strip()) and len(line.strip()) > 3:
            yield from ("", "---", "")
            at += 1
        elif found := RST_FIELD.match(line):
            yield f"- **{found[1]}:** {rst_inline(found[2] or '')}"
            at += 1
        elif (line.rstrip().endswith("::") and line.strip() not in ("..", "::")) or line.strip() == "::":
            before = line.rstrip().removesuffix("::").rstrip()
            if before.strip():
                yield rst_inline(before) + ":"
            body, at = taken_block(lines, at + 1, indent_of(line))
            if body:
                yield from ("", block("\n".join(body), ""), "")
        elif found := re.match(r" *(?:\| |\|$)", line):
            yield rst_inline(line.strip()[2:]) + "  "
            at += 1
        elif line.startswith(" ") and line.strip() and not is_in_list and (at == 0 or not lines[at - 1].strip()):
            body, at = taken_block(lines, at, 0)
            inner = "\n".join(rst_lines(body, levels, depth + 1)).strip()
            yield from ("", *(f"> {one}".rstrip() for one in inner.split("\n")), "")
        else:
            if line.strip() and not line.startswith(" "):
                is_in_list = RST_ITEM.match(line) is not None
            yield rst_inline(re.sub(r"^( *)#\. ", r"\g<1>1. ", line))
            at += 1


def rst_heading(lines: Lines, at: int, levels: dict[str, int]) -> tuple[str, int] | None:
    """A title with a rule below it, or above and below."""
    rule = lines[at].strip()
    if len(lines) > at + 2 and RST_RULE.fullmatch(rule) and lines[at + 2].strip() == rule and lines[at + 1].strip():
        style, title, following = rule[0] * 2, lines[at + 1].strip(), at + 3
    elif len(lines) > at + 1 and lines[at].strip() and not lines[at].startswith(" ") and is_underline(lines, at):
        style, title, following = lines[at + 1].strip()[0], lines[at].strip(), at + 2
    else:
        return None
    level = levels.setdefault(style, len(levels) + 1)
    return f"{'#' * min(level, 6)} {rst_inline(title)}", following


def is_underline(lines: Lines, at: int) -> bool:
    below = lines[at + 1].strip()
    if not RST_RULE.fullmatch(below) or lines[at + 1].startswith(" "):
        return False
    return len(below) >= min(len(lines[at].strip()), 4) and not RST_RULE.fullmatch(lines[at].strip())


def rst_directive(name: str, argument: str, body: Lines, levels: dict[str, int], depth: int) -> Iterator[str]:
    options = 0
    while options < len(body) and RST_FIELD.match(body[options]):
        options += 1
    said = {found[1]: found[2] or "" for line in body[:options] if (found := RST_FIELD.match(line))}
    content = body[options:]
    while content and not content[0].strip():
        content.pop(0)
    if name in CODE_DIRECTIVES:
        yield block("\n".join(content), argument.strip() if re.fullmatch(r"[\w+-]{1,30}", argument.strip()) else "")
    elif name in ("image", "figure"):
        yield (
            f"*{said.get('alt') or argument.strip()}*"
            if name == "image"
            else f"*{said.get('alt', '')}*".replace("**", "")
        )
        yield ""
        yield from rst_lines(content, levels, depth + 1)
    elif name == "math":
        yield "$$\n" + "\n".join([argument, *content]).strip() + "\n$$"
    elif name == "csv-table":
        rows = list(csv.reader([said.get("header", ""), *content] if said.get("header") else content))
        yield (f"**{argument}**\n\n" if argument else "") + table(
            [[cell.strip() for cell in row] for row in rows if row]
        )
    elif name == "list-table":
        yield (f"**{argument}**\n\n" if argument else "") + list_table(content)
    elif name in ADMONITIONS:
        inner = "\n".join(rst_lines(([argument] if argument else []) + content, levels, depth + 1)).strip()
        quoted = "\n".join(f"> {line}".rstrip() for line in inner.split("\n"))
        yield f"> **{name.capitalize()}**\n>\n{quoted}"
    else:
        # Of other directives, such as Sphinx has, the text stays.
        if argument:
            yield rst_inline(argument)
            yield ""
        yield from rst_lines(content, levels, depth + 1)


def list_table(content: Lines) -> str:
    rows: list[list[str]] = []
    for line in content:
        stripped = line.strip()
        if stripped.startswith("* -"):
            rows.append([rst_inline(stripped[3:].strip())])
        elif stripped.startswith("- ") and rows:
            rows[-1].append(rst_inline(stripped[2:].strip()))
        elif stripped and rows:
            rows[-1][-1] += f" {rst_inline(stripped)}"
    return table(rows)


def rst_table(lines: Lines, at: int) -> tuple[str, int]:
    if RST_GRID.match(lines[at]):
        end = at
        while end < len(lines) and lines[end].strip().startswith(("+", "|")):
            end += 1
        return grid_table(lines[at:end]), end
    return simple_table(lines, at)


def grid_table(lines: Lines) -> str:
    """Cells between the marks of the first rule; a text over several lines is one cell."""
    marks = [found.start() for found in re.finditer(r"\+", lines[0])]
    rows: list[list[str]] = []
    fresh = True
    for line in lines:
        if line.strip().startswith("+") and set(line.strip()) <= set("+-= "):
            fresh = True
            continue
        cells = [line[begin + 1 : end].strip().strip("|").strip() for begin, end in pairwise(marks)]
        if fresh:
            rows.append(cells)
            fresh = False
        else:
            rows[-1] = [f"{old} {new}".strip() for old, new in zip(rows[-1], cells, strict=True)]
    return table([[rst_inline(cell) for cell in row] for row in rows])


def simple_table(lines: Lines, at: int) -> tuple[str, int]:
    columns = [found.span() for found in re.finditer(r"=+", lines[at])]
    rows: list[list[str]] = []
    rules, end = 1, at + 1
    while end < len(lines) and lines[end].strip():
        line = lines[end]
        end += 1
        if RST_SIMPLE.match(line):
            rules += 1
            if rules == 3 or (rules == 2 and (end >= len(lines) or not lines[end].strip())):
                break
            continue
        ends = [start for start, _ in columns[1:]] + [max(len(line), columns[-1][1])]
        cells = [line[start:stop].strip() for (start, _), stop in zip(columns, ends, strict=True)]
        if not cells[0] and rows:
            rows[-1] = [f"{old} {new}".strip() for old, new in zip(rows[-1], cells, strict=True)]
        elif not set("".join(cells)) <= {"-"}:
            rows.append(cells)
    return table([[rst_inline(cell) for cell in row] for row in rows]), end


def rst_inline(text: str) -> str:
    text = RST_LITERAL.sub(r"`\1`", text)
    text = RST_LINK.sub(r"[\1](\2)", text)
    text = RST_ROLE.sub(r"`\1`", text)
    return RST_NAMED.sub(r"\1", text) if "`_" in text else text


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def taken_block(lines: Lines, at: int, indent: int) -> tuple[Lines, int]:
    """Lines from *at* on that are indented deeper than *indent*, or empty; and where they end."""
    end = at
    last = at
    while end < len(lines) and (not lines[end].strip() or indent_of(lines[end]) > indent):
        end += 1
        if lines[end - 1].strip():
            last = end
    found = lines[at:last]
    margin = min((indent_of(line) for line in found if line.strip()), default=0)
    return [line[margin:] for line in found], last
