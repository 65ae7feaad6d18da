"""Write the reference pages of all codes: `python -m docmill.core.catalogue [--check] [FOLDER]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from docmill.core.catalogue import LANGUAGES, Entry, entries

# language -> file name, title, introduction, column heads, yes, no
PAGES: dict[str, tuple[str, str, str, tuple[str, ...], str, str]] = {
    "en": (
        "codes.md",
        "Codes",
        (
            "Every error of docmill carries one of these codes, the same in CLI, API, log and console. "
            "`docmill explain CODE` prints a row of this page."
        ),
        ("Code", "HTTP", "Retry helps", "Meaning", "Next step"),
        "yes",
        "no",
    ),
    "de": (
        "codes.de.md",
        "Codes",
        (
            "Jeder Fehler von docmill trägt einen dieser Codes, gleich in CLI, API, Protokoll und Konsole. "
            "`docmill explain CODE --lang de` gibt eine Zeile dieser Seite aus."
        ),
        ("Code", "HTTP", "Wiederholen hilft", "Bedeutung", "Nächster Schritt"),
        "ja",
        "nein",
    ),
    "zh": (
        "codes.zh.md",
        "代码",
        (
            "docmill 的每个错误都带有以下代码之一，在命令行、API、日志和控制台中一致。"
            "`docmill explain CODE --lang zh` 输出本页的一行。"
        ),
        ("代码", "HTTP", "重试有用", "含义", "下一步"),
        "是",
        "否",
    ),
}
NOTICE = "<!-- Written by `python -m docmill.core.catalogue`. Edit the catalogue, not this page. -->"


def page(lang: str) -> str:
    return "\n".join(_lines(lang)) + "\n"


def _lines(lang: str) -> Iterator[str]:
    _, title, introduction, heads, yes, no = PAGES[lang]
    links = " · ".join(f"[{other}]({PAGES[other][0]})" for other in LANGUAGES if other != lang)
    yield from (NOTICE, "", f"# {title}", "", introduction, "", links)
    for area, group in groupby(entries(), key=lambda e: e.area):
        yield from ("", f"## {area}", "", _row(heads), _row(("---",) * len(heads)))
        yield from (_row(_cells(one, lang, yes, no)) for one in group)


def _cells(one: Entry, lang: str, yes: str, no: str) -> tuple[str, ...]:
    anchor = f'<a id="{one.code}"></a>`{one.code}`'
    return (anchor, str(one.status or "–"), yes if one.retryable else no, *one.text[lang])


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m docmill.core.catalogue", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("docs/reference"))
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page differs")
    options = parser.parse_args(argv)
    stale = [path for path, text in _wanted(options.folder) if not _holds(path, text)]
    if not options.check:
        for path, text in _wanted(options.folder):
            path.write_text(text, "utf-8")
        return 0
    for path in stale:
        sys.stderr.write(f"{path} differs from the catalogue. Run python -m docmill.core.catalogue.\n")
    return 1 if stale else 0


def _wanted(folder: Path) -> Iterator[tuple[Path, str]]:
    return ((folder / PAGES[lang][0], page(lang)) for lang in LANGUAGES)


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text("utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
