"""An external worker's pages and images become the files of a parse: `mineru.md`, `parsed.json` and `assets/`.

One page at a time, because all of them together may be larger than memory.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from posixpath import basename
from typing import BinaryIO, Final
from urllib.parse import quote, unquote

import msgspec

from docmill.core.archive import Unpacked, page_of_image
from docmill.core.links import replace_targets
from docmill.core.parsed import Figure, Page, Parsed
from docmill.core.reports import PageText
from docmill.work.stages.parse import MARKDOWN, PARSED

PAGE_MARK_BYTES: Final = 64
"""What the whole text may have between two pages, such as `--- Seite 12 ---`."""

_ASSET: Final = re.compile(r"\(assets/([^()\s]+)")


@dataclass(frozen=True, slots=True)
class Picture:
    """An image of an archive, in `assets/` under its safe name."""

    image: Unpacked
    page: int | None
    """The page that its name tells, counted from 1."""
    is_page: bool
    """Whether it shows the whole page, to judge by its name."""

    @property
    def name(self) -> str:
        return self.image.safe_name


@dataclass(frozen=True, slots=True)
class WrittenParse:
    pages: int
    figures: int
    assets: tuple[str, ...]


def list_pictures(archives: Iterable[Sequence[Unpacked]]) -> tuple[list[Picture], dict[str, str]]:
    """The images of all archives, and the safe name of each by its name there. What an earlier archive has already,
    for the same page, is left out."""
    pictures: dict[str, Picture] = {}
    names: dict[str, str] = {}
    earlier: dict[tuple[str, int | None], str] = {}
    for images in archives:
        found = [(image, *page_of_image(image.name_in_zip)) for image in images]
        for image, kind, page in found:
            name = earlier.get((image.sha256, page), image.safe_name)
            pictures.setdefault(name, Picture(image, page, kind != "image"))
            names.setdefault(image.name_in_zip, name)
        for image, _, page in found:
            earlier.setdefault((image.sha256, page), names[image.name_in_zip])
    return list(pictures.values()), names


def write_parse(
    text: Path | None,
    pages: Sequence[PageText],
    pictures: Sequence[Picture],
    names: Mapping[str, str],
    *,
    folder: Path,
    engine: str,
) -> WrittenParse:
    """Write the parse. An image stands on the page that links to it, else on the one in its name, else on the last."""
    text_bytes = text.stat().st_size if text else 0
    numbers = {page.number for page in pages}
    spans: list[Span] = [(page.number - 1, page.path, page.start, page.size) for page in pages]
    has_pages = text_bytes <= sum(2 * page.size + PAGE_MARK_BYTES for page in pages)
    if not pages or not has_pages:
        # Pages that lack most of the text are worth less than the whole of it.
        spans = [(0, text, 0, text_bytes)]
    _Writer(pictures, names, numbers, by_page=has_pages).write(spans, folder, engine)
    return WrittenParse(len(spans), len(pictures), tuple(picture.name for picture in pictures))


Span = tuple[int, Path | None, int, int]
"""A page's index, and the file, offset and size of its text."""


class _Writer:
    def __init__(
        self, pictures: Sequence[Picture], names: Mapping[str, str], numbers: set[int], *, by_page: bool
    ) -> None:
        self._relink = Relinking(names)
        self._pictures = pictures
        self._names = frozenset(picture.name for picture in pictures)
        self._index_of = {
            picture.name: picture.page - 1 for picture in pictures if picture.page and picture.page in numbers
        }
        self._by_page: defaultdict[int, list[str]] = defaultdict(list)
        """The images that a page must show because of their names."""
        for name, index in self._index_of.items() if by_page else ():
            self._by_page[index].append(name)
        self._linked_on: dict[str, int] = {}
        """The page that links to an image first."""

    def write(self, spans: Sequence[Span], folder: Path, engine: str) -> None:
        with (folder / MARKDOWN).open("wb") as markdown, (folder / PARSED).open("wb") as parsed:
            parsed.write(b'{"pages":[')
            is_first = True
            for number, page in enumerate(self._pages(spans)):
                parsed.write((b"," if number else b"") + msgspec.json.encode(page))
                if stripped := page.markdown.strip():
                    markdown.write((b"" if is_first else b"\n\n") + stripped.encode())
                    is_first = False
            markdown.write(b"\n")
            self._end(parsed, engine, last=spans[-1][0])

    def _pages(self, spans: Sequence[Span]) -> Iterator[Page]:
        shown: set[str] = set()
        for number, (index, path, start, size) in enumerate(spans, 1):
            text = self._relink(_read(path, start, size))
            here = {name for name in _ASSET.findall(text) if name in self._names}
            for name in here:
                self._linked_on.setdefault(name, index)
            wanted = [name for name in self._by_page.pop(index, ()) if name not in here]
            shown |= {*here, *wanted}
            if number == len(spans):
                # An image that no text links to and whose page is unknown would be lost: it is shown at the end.
                wanted += [picture.name for picture in self._pictures if picture.name not in shown]
            yield Page(index, _with_images(text, wanted))

    def _end(self, parsed: BinaryIO, engine: str, last: int) -> None:
        whole = Parsed(engine, "text/markdown", (), self._figures(last), facts=self._facts())
        others = {one.name: getattr(whole, one.name) for one in fields(whole) if one.name != "pages"}
        parsed.write(b"]," + msgspec.json.encode(others)[1:])

    def _figures(self, last: int) -> tuple[Figure, ...]:
        return tuple(
            Figure(
                picture.name,
                "image",
                picture.image.media_type,
                picture.image.sha256,
                picture.image.size,
                page_index=self._index_of.get(picture.name, self._linked_on.get(picture.name, last)),
            )
            for picture in self._pictures
        )

    def _facts(self) -> dict[str, list[str | None]]:
        """The image of each page that has one, for the twin: a rendering of the page before any other."""
        images: dict[int, str] = {}
        for picture in sorted(self._pictures, key=lambda picture: not picture.is_page):
            if (index := self._index_of.get(picture.name)) is not None:
                images.setdefault(index, picture.name)
        return {"page_images": [images.get(index) for index in range(max(images) + 1)]} if images else {}


def _read(path: Path | None, start: int, size: int) -> str:
    if path is None:
        return ""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size).decode().replace("\0", "")


def _with_images(text: str, names: Sequence[str]) -> str:
    if not names:
        return text
    links = "\n\n".join(f"![](assets/{name})" for name in names)
    return f"{text.rstrip()}\n\n{links}\n"


class Relinking:
    """Links to files of an archive lead to where they are kept, whatever folder the worker had them in."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._by_base: dict[str, str] = {}
        for name, safe in names.items():
            self._by_base.setdefault(basename(name.replace("\\", "/")), safe)

    def __call__(self, markdown: str) -> str:
        return replace_targets(markdown, self._resolve) if self._names else markdown

    def _resolve(self, target: str) -> str | None:
        target = unquote(target)
        safe = self._names.get(target) or self._names.get(target.removeprefix("./"))
        if safe is None and "://" not in target:
            safe = self._by_base.get(basename(target))
        return quote(f"assets/{safe}") if safe else None
