"""Org as Markdown, line by line."""

from __future__ import annotations

import re

from ..markdown import table
from .records import block

Lines = list[str]

MAX_DEPTH = 12
"""Blocks in blocks; what is deeper stays as it is."""

ORG_HEADING = re.compile(r"(\*{1,8}) +(?:(TODO|DONE) +)?(?:\[#\w\] +)?(.*?)(?: +:[\w@:]{1,200}:)?\s*$")
ORG_KEYWORD = re.compile(r"\s*#\+(\w{1,40}):\s*(.*)$", re.IGNORECASE)
ORG_BEGIN = re.compile(r"\s*#\+begin_(\w{1,40})(?: +(\S{1,40}))?.*$", re.IGNORECASE)
ORG_LINK = re.compile(r"\[\[([^\[\]\n]{1,1000})\](?:\[([^\[\]\n]{1,500})\])?\]")
ORG_MARK = re.compile(r"(?<![\w*/=~+])([*/=~+])(?=\S)([^\n*/=~+]{1,300})(?<=\S)\1(?![\w*/=~+])")
ORG_MARKS = {"*": "**", "/": "*", "=": "`", "~": "`", "+": "~~"}
ORG_DRAWER = re.compile(r"\s*:(\w{1,40}):\s*$")
ORG_ITEM = re.compile(r"^(\s*)(?:\+|(\d{1,9})\)) ")
ORG_RULE = re.compile(r"\s*\|[-+|]+\|?\s*$")


def org(text: str, depth: int = 0) -> str:
    if depth > MAX_DEPTH:
        return text
    lines, out, at = text.split("\n"), [], 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line or line.isspace():
            out.append("")
        elif found := ORG_HEADING.match(line):
            state = f"{found[2]} " if found[2] else ""
            out += ["", f"{'#' * min(len(found[1]), 6)} {state}{org_inline(found[3])}", ""]
        elif found := ORG_BEGIN.match(line):
            name = found[1].lower()
            body = []
            while at < len(lines) and not lines[at].strip().lower().startswith(f"#+end_{name}"):
                body.append(lines[at])
                at += 1
            at += 1
            out += ["", org_block(name, found[2] or "", body, depth), ""]
        elif found := ORG_KEYWORD.match(line):
            out += org_keyword(found[1].lower(), found[2])
        elif ORG_DRAWER.match(line):
            continue
        elif line.lstrip().startswith("|"):
            rows = []
            at -= 1
            while at < len(lines) and lines[at].lstrip().startswith("|"):
                if not ORG_RULE.match(lines[at]):
                    rows.append([org_inline(cell.strip()) for cell in lines[at].strip().strip("|").split("|")])
                at += 1
            out += ["", table(rows), ""]
        elif line.startswith("# "):
            continue
        else:
            out.append(org_inline(ORG_ITEM.sub(as_item, line)))
    return "\n".join(out)


def as_item(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2] + '.' if found[2] else '-'} "


def org_keyword(name: str, value: str) -> Lines:
    if name == "title":
        return [f"# {value}", ""]
    return [f"*{org_inline(value)}*", ""] if name in ("author", "date", "subtitle", "caption") and value else []


def org_block(name: str, language: str, body: Lines, depth: int) -> str:
    if name in ("src", "example", "export", "verse_code"):
        return block("\n".join(body), language if re.fullmatch(r"[\w+-]{1,30}", language) else "")
    if name in ("quote", "verse", "center"):
        return "\n".join(f"> {org_inline(line.strip())}".rstrip() for line in body)
    return org("\n".join(body), depth + 1) if name != "comment" else ""


def org_inline(text: str) -> str:
    text = ORG_LINK.sub(as_link, text)
    return ORG_MARK.sub(lambda found: f"{ORG_MARKS[found[1]]}{found[2]}{ORG_MARKS[found[1]]}", text)


def as_link(found: re.Match[str]) -> str:
    label = found[2] or found[1]
    return f"[{label}]({found[1]})" if ":" in found[1] else label
