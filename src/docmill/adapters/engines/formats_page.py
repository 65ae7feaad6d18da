"""`python -m docmill.adapters.engines.formats_page`: writes docs/reference/formats.md from the table of formats."""

from __future__ import annotations

import sys
from pathlib import Path

from .sniff import FORMATS, Format

HEAD = """# Formats

The bytes decide which format a file has, not its name; a wrong ending is corrected. Among kinds of plain text
(reStructuredText, Org, AsciiDoc, YAML, TOML) the name decides. This page is written from the table in
`docmill.adapters.engines.sniff` by `python -m docmill.adapters.engines.formats_page`.

## What is read
| format | endings |
|---|---|
"""
NOTES = """
HEIC needs `docmill[heic]` (the package pi-heif, whose wheel is under the LGPL), Hangul documents need
`docmill[hwp]`. Without them the code is `document_needs_program`.

- **Archives, mailboxes, attachments**: every member is a document of its own, read by its reader, whose pages
  follow the manifest or the mail. At most 1,000 members, 3 levels, 1 GB unpacked and 120 s for each member. Equal
  members are read once. A member that fails has its code in the manifest. Links and devices in archives are not
  followed.
- **Second reader**: office documents, books and XML are also read by a simple reader that knows words only. If the
  result lacks more than 5 % of these words, they are added at the end (`text_unplaced`) or named (`text_lost`);
  with less than half of them, the plain text is the result.
- **Comments and changes** are notes: in Word at their place, in workbooks, slides and OpenDocument below the page.
- **Tables** with merged cells are a grid in Markdown, each text once in its first cell; the table's asset has the
  spans.
- **XML** is read without DTD, without files and without the network. Entities that stand for a word are replaced;
  others are refused with `document_bomb`.
- **Pages, Numbers, Keynote** are read from the PDF preview that the file may hold, or from the XML of files before
  2013.

## What is refused
| type | endings | code | what helps |
|---|---|---|---|
"""


def render() -> str:
    read = [f"| {one.name} | {endings(one)} |" for one in FORMATS if one.reader]
    refused = [refusal(one) for one in FORMATS if not one.reader]
    return HEAD + "\n".join(read) + "\n" + NOTES + "\n".join(refused) + "\n"


def endings(one: Format) -> str:
    return " ".join(f"`{ending}`" for ending in one.endings) or "–"


def refusal(one: Format) -> str:
    code = "document_needs_program" if one.program else "document_unsupported"
    helps = f"{one.program}: {one.advice}" if one.program else one.advice
    return f"| {one.name} | {endings(one)} | `{code}` | {helps} |"


if __name__ == "__main__":
    page = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference/formats.md")
    page.write_text(render(), encoding="utf-8")
