"""AsciiDoc as Markdown, line by line."""

from __future__ import annotations

import re

from ..markdown import table
from .records import block

Lines = list[str]

MAX_DEPTH = 12
"""Blocks in blocks; what is deeper stays as it is."""

ADOC_HEADING = re.compile(r"(={1,6}) +(\S.*?)(?: +=+)?\s*$")
ADOC_ATTRIBUTE = re.compile(r":[\w-]{1,60}!?:(?: .*)?$")
ADOC_BLOCK = re.compile(r"\[([^\]\n]{0,300})\]\s*$")
ADOC_FENCES = {
    "----": "code",
    "....": "code",
    "====": "plain",
    "****": "plain",
    "____": "quote",
    "++++": "code",
    "--": "plain",
}
ADOC_LIST = re.compile(r"\s*(\*{1,5}|\.{1,5}|-) +(\S.*)$")
ADOC_LINK = re.compile(r"(?:link:)?((?:https?://|mailto:)[^\s\[\]<>]{1,1000})\[([^\]\n]{0,500})\]")
ADOC_IMAGE = re.compile(r"image::?([^\s\[\]]{1,500})\[([^\]\n,]{0,300})[^\]\n]{0,300}\]")
ADOC_XREF = re.compile(r"<<([^<>,\n]{1,200})(?:, *([^<>\n]{1,300}))?>>")
ADOC_NOTE = re.compile(r"(NOTE|TIP|IMPORTANT|WARNING|CAUTION): +(.*)$")


def asciidoc(text: str, depth: int = 0) -> str:
    if depth > MAX_DEPTH:
        return text
    lines, out, at = text.split("\n"), [], 0
    language = ""
    while at < len(lines):
        line = lines[at].rstrip()
        at += 1
        if not line:
            out.append("")
        elif line.startswith("////"):
            while at < len(lines) and not lines[at].startswith("////"):
                at += 1
            at += 1
        elif line.startswith("//") or ADOC_ATTRIBUTE.match(line):
            continue
        elif found := ADOC_HEADING.match(line):
            out += ["", f"{'#' * len(found[1])} {adoc_inline(found[2])}", ""]
        elif found := ADOC_BLOCK.match(line):
            parts = [part.strip() for part in found[1].split(",")]
            language = parts[1] if parts[0] in ("source", "listing") and len(parts) > 1 else ""
        elif line in ("|===", ",===", "!==="):
            rows, at = adoc_table(lines, at, line)
            out += ["", table(rows), ""]
        elif line in ADOC_FENCES or (len(line) > 4 and line[:4] in ADOC_FENCES and set(line) == {line[0]}):
            body = []
            while at < len(lines) and lines[at].rstrip() != line:
                body.append(lines[at])
                at += 1
            at += 1
            out += ["", adoc_block(ADOC_FENCES.get(line) or ADOC_FENCES[line[:4]], body, language, depth), ""]
            language = ""
        elif found := ADOC_LIST.match(line):
            depth = len(found[1]) - 1 if found[1] != "-" else 0
            out.append(f"{'    ' * depth}{'1.' if found[1][0] == '.' else '-'} {adoc_inline(found[2])}")
        elif found := ADOC_NOTE.match(line):
            out += ["", f"> **{found[1].capitalize()}:** {adoc_inline(found[2])}", ""]
        elif line == "+":
            continue
        elif re.match(r"\.[^\s.]", line):
            out += ["", f"**{adoc_inline(line[1:])}**", ""]
        else:
            out.append(adoc_inline(line.removesuffix(" +") + "  " if line.endswith(" +") else line))
    return "\n".join(out)


def adoc_block(kind: str, body: Lines, language: str, depth: int) -> str:
    if kind == "code":
        return block("\n".join(body), language if re.fullmatch(r"[\w+-]{1,30}", language) else "")
    inner = asciidoc("\n".join(body), depth + 1).strip()
    return "\n".join(f"> {line}".rstrip() for line in inner.split("\n")) if kind == "quote" else inner


def adoc_table(lines: Lines, at: int, end: str) -> tuple[list[list[str]], int]:
    """Cells begin with a bar. The first line with cells tells how many there are in a row."""
    mark = end[0]
    cells: list[str] = []
    width = 0
    while at < len(lines) and lines[at].strip() != end:
        line = lines[at]
        at += 1
        found = [adoc_inline(cell.strip()) for cell in line.split(mark)]
        if mark == ",":
            cells += found
            width = width or len(found)
        elif len(found) > 1:
            if cells and found[0]:
                cells[-1] = f"{cells[-1]} {found[0]}".strip()
            cells += found[1:]
            width = width or len(found) - 1
        elif line.strip() and cells:
            cells[-1] = f"{cells[-1]} {found[0]}".strip()
    width = max(width, 1)
    return [cells[begin : begin + width] for begin in range(0, len(cells), width)], at + 1


def adoc_inline(text: str) -> str:
    text = ADOC_LINK.sub(lambda found: f"[{found[2].rstrip('^') or found[1]}]({found[1]})", text)
    text = ADOC_IMAGE.sub(lambda found: f"*{found[2] or found[1]}*", text)
    return ADOC_XREF.sub(lambda found: found[2] or found[1], text)
