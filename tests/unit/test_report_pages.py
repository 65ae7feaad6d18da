"""A worker's pages and images become the files of a parse, one page at a time."""

from __future__ import annotations

import tracemalloc
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from docmill.core.archive import Unpacked
from docmill.core.parsed import Parsed
from docmill.core.reports import PageText
from docmill.work.report_pages import Relinking, list_pictures, write_parse
from support.measuring import measure

MB = 1024**2


def image(name: str, index: int = 0, content: str = "") -> Unpacked:
    digest = sha256((content or name).encode()).hexdigest()
    return Unpacked(name, f"{index:05}-{digest[:12]}.png", "image/png", digest, 1)


def paged(folder: Path, *texts: str, first: int = 1) -> list[PageText]:
    pages, path = [], folder / "texts"
    with path.open("wb") as file:
        for number, text in enumerate(texts, first):
            pages.append(PageText(number, path, file.tell(), file.write(text.encode())))
    return pages


def written(
    folder: Path, pages: list[PageText], *archives: list[Unpacked], whole: str | None = None
) -> tuple[Parsed, str]:
    """What was written, read back; the Markdown is byte by byte what the parse itself makes of its pages."""
    text = None
    if whole is not None:
        text = folder / "whole"
        text.write_text(whole)
    pictures, names = list_pictures(archives)
    result = write_parse(text, pages, pictures, names, folder=folder, engine="ocr")
    parsed = msgspec.json.decode((folder / "parsed.json").read_bytes(), type=Parsed)
    markdown = (folder / "mineru.md").read_text()
    assert parsed.markdown == markdown
    assert (len(parsed.pages), len(parsed.figures)) == (result.pages, result.figures)
    assert [figure.name for figure in parsed.figures] == list(result.assets)
    return parsed, markdown


def test_pages_are_joined_as_ever(tmp_path: Path) -> None:
    parsed, markdown = written(tmp_path, paged(tmp_path, " a\n", "", "\n", "ü\n\n", first=3), whole="a ü")

    assert [(2, " a\n"), (3, ""), (4, "\n"), (5, "ü\n\n")] == [(page.index, page.markdown) for page in parsed.pages]
    assert "a\n\nü\n" == markdown
    assert "\n" == written(tmp_path, [])[1]


def test_an_image_stands_where_it_is_linked_or_named_or_last(tmp_path: Path) -> None:
    images = [image(name, n) for n, name in enumerate(("page_2.png", "x/linked.png", "stray.png", "image_9.png"))]
    page_2, linked, stray, other = (one.safe_name for one in images)

    parsed, _ = written(tmp_path, paged(tmp_path, "![l](pics/linked.png)", "two", "three"), images)

    assert [f"![l](assets/{linked})", f"two\n\n![](assets/{page_2})\n"] == [page.markdown for page in parsed.pages[:2]]
    assert f"three\n\n![](assets/{stray})\n\n![](assets/{other})\n" == parsed.pages[2].markdown
    assert {page_2: 1, linked: 0, stray: 2, other: 2} == {one.name: one.page_index for one in parsed.figures}
    assert [None, page_2] == parsed.facts["page_images"]


def test_a_rendering_of_the_page_is_its_image_before_any_other(tmp_path: Path) -> None:
    images = [image("image_1.png", 0), image("preview_1.png", 1)]

    parsed, markdown = written(tmp_path, paged(tmp_path, "one"), images)

    assert [images[1].safe_name] == parsed.facts["page_images"]
    assert 2 == markdown.count("![](assets/")


def test_pages_that_lack_most_of_the_text_give_way_to_the_whole(tmp_path: Path) -> None:
    images = [image("image_2.png")]

    parsed, markdown = written(tmp_path, paged(tmp_path, "a", "b"), images, whole="long text " * 100)

    assert 1 == len(parsed.pages)
    assert markdown.startswith("long text")
    assert f"![](assets/{images[0].safe_name})" in markdown
    assert [1] == [figure.page_index for figure in parsed.figures]


def test_the_same_image_in_two_archives_is_kept_once(tmp_path: Path) -> None:
    """Also where two archives would give different pictures one name; equal pages of one archive stay apart."""
    first = [image("page_1.png", 0, "blank"), image("page_2.png", 1, "blank"), image("a.png", 2, "logo")]
    second = [image("page_2.png", 0, "blank"), image("b/a.png", 9, "logo"), image("image_3.png", 1, "blank")]

    parsed, _ = written(tmp_path, paged(tmp_path, "1", "![](b/a.png)", "3"), first, second)

    assert [one.safe_name for one in first] == [figure.name for figure in parsed.figures]
    assert f"![](assets/{first[2].safe_name})" in parsed.pages[1].markdown


def test_memory_holds_one_page_not_all(tmp_path: Path) -> None:
    pages = paged(tmp_path, *(f"{n} " + "x" * MB for n in range(1, 41)))
    whole = tmp_path / "whole"
    whole.write_bytes(b"x" * 40 * MB)

    tracemalloc.start()
    try:
        write_parse(whole, pages, [], {}, folder=tmp_path, engine="ocr")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert 40 * MB < (tmp_path / "mineru.md").stat().st_size
    assert peak < 12 * MB


def test_links_are_found_in_linear_time() -> None:
    relink = Relinking({"a.png": "b.png"})

    for hostile in ("[", "](", "![a](b", '](a "', "](a  "):
        small, large = (min(measure(partial(relink, hostile * n)) for _ in range(3)) for n in (20_000, 80_000))
        assert large < 12 * small + 0.05, hostile
