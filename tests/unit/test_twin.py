"""A twin's names hold for any source, and its links lead where its files are."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from docmill.core.parsed import Figure, Page, Parsed
from docmill.core.twin import (
    Layout,
    Manifest,
    Twin,
    drifted,
    is_twin_path,
    parse_manifest,
    plan_twin,
    relink,
    shortened,
    twin_folders,
    yaml_text,
)

AT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
LAYOUTS: list[Layout] = ["folder", "sidecar"]
NAMES = [
    "report.pdf",
    "a.b.c.pdf",
    "mit Leerzeichen & Ümläut.pdf",
    "报告.pdf",
    ".hidden",
    ".hidden.pdf",
    "README",
    "page_001.pdf",
    "..pdf",
    "...",
    "a.",
    'quote".pdf',
    "new\nline.pdf",
    "back\\slash.pdf",
    "[x](y).pdf",
    "x" * 251 + ".pdf",
    "报" * 84 + ".pdf",
    "a." + "e" * 250,
    "\udcff.pdf",
]
ANY_NAME = st.text(st.characters(exclude_categories=()), max_size=300) | st.sampled_from(
    [*NAMES, ".", "..", "", "a/b", "\ud800"]
)


def a_figure(name: str, digest: str = "") -> Figure:
    return Figure(name=name, kind="image", media_type="image/png", sha256=digest, size=1)


def parsed(*pages: str, figures: tuple[str, ...] = (), **facts: Any) -> Parsed:
    return Parsed(
        engine="local",
        media_type="application/pdf",
        pages=tuple(Page(index, text) for index, text in enumerate(pages)),
        figures=tuple(map(a_figure, figures)),
        language="en",
        facts=facts,
    )


def plan(name: str = "report.pdf", source: Parsed | None = None, layout: Layout = "folder", **changes: Any) -> Twin:
    settings: dict[str, Any] = {
        "source_sha256": "0" * 64,
        "generated_by": "docmill 0.1.0",
        "generated_at": AT,
        **changes,
    }
    return plan_twin(name, source or parsed("# One"), layout=layout, **settings)


def paths(twin: Twin) -> list[str]:
    return [file.path for file in twin.files]


def text_of(twin: Twin, path: str) -> str:
    return next(file.text or "" for file in twin.files if file.path == path)


def front_matter(twin: Twin) -> dict[str, Any]:
    _, head, _ = text_of(twin, twin.document).split("---\n", 2)
    facts: dict[str, Any] = yaml.safe_load(head)
    return facts


def images(markdown: str) -> list[str]:
    """Where the images of a Markdown text point, by a reader of Markdown."""
    tokens = [token for block in MarkdownIt().parse(markdown) for token in block.children or ()]
    return [str(token.attrs["src"]) for token in tokens if token.type == "image"]


def test_the_folder_layout_is_the_one_of_the_specification() -> None:
    source = parsed("# One", "# Two", figures=("fig.png",), page_images=["p0.png", "p1.png"])

    twin = plan("report.pdf", source)

    expected = ["report.md", "page_001.md", "page_002.md", "page_001.png", "page_002.png", "fig.png"]
    assert [f"_report.pdf/{name}" for name in expected] == paths(twin)
    assert ("_report.pdf", "_report.pdf/report.md") == (twin.folder_name, twin.document)
    assert "_report.pdf/.docmill.json" == twin.manifest_path


def test_the_sidecar_layout_is_the_one_of_the_specification() -> None:
    source = parsed("![](assets/fig.png)", "# Two", figures=("fig.png",))

    twin = plan("report.pdf", source, "sidecar", language="de")

    assert ["report.de.md", ".report/fig.png"] == paths(twin)
    assert "![](.report/fig.png)" in text_of(twin, "report.de.md")


def test_the_front_matter_tells_where_the_twin_comes_from() -> None:
    expected = {
        "type": "shadow-twin",
        "source_file": "report.pdf",
        "source_sha256": "0" * 64,
        "language": "en",
        "generated_by": "docmill 0.1.0",
        "generated_at": "2026-05-04T03:02:01Z",
    }

    twin = plan(generated_at=AT.astimezone(timezone(timedelta(hours=2))))

    assert expected == front_matter(twin)
    assert text_of(twin, twin.document).endswith("---\n\n# One\n")


def test_damaged_pages_are_named_as_people_count() -> None:
    source = Parsed("local", "application/pdf", (Page(0, "a"), Page(1, "", damage="broken"), Page(2, "", damage="x")))

    assert [2, 3] == front_matter(plan(source=source))["damaged_pages"]


@given(st.text())
@example("\x85\u2028\ufeff\x7f\x00\t")
@example('"\\\n: # - [')
@example("报告 ü 😀")
def test_any_text_survives_as_yaml(text: str) -> None:
    assert text == yaml.safe_load(f"key: {yaml_text(text)}\n")["key"]


@given(ANY_NAME, st.sampled_from(LAYOUTS))
def test_any_name_gives_a_twin_that_stays_beside_its_source(name: str, layout: Layout) -> None:
    source = parsed("a", "b", figures=("x.png", "../evil", "", ".", "x.png/../y"), page_images=["../p.png", None])
    first = plan(name, source, layout)

    for twin in filter(None, (first, first.otherwise)):
        everything = [*paths(twin), twin.manifest_path]
        assert all(map(is_twin_path, everything))
        assert all(
            len(part.encode("utf-8", "surrogateescape")) <= 255 for path in everything for part in path.split("/")
        )
        assert len(everything) == len({path.casefold() for path in everything})
        assert twin.folder_name[0] in "_."
        assert all(path.startswith(f"{twin.folder_name}/") for path in everything if path != twin.document)
        assert twin.folder_name in twin_folders(name, layout)
        text_of(twin, twin.document).encode()
        assert parse_manifest(twin.manifest.to_json()) == twin.manifest
    assert isinstance(front_matter(first)["source_file"], str)


FILE_NAME = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=90)


@given(FILE_NAME.filter(lambda name: name not in {".", ".."}), FILE_NAME.filter(lambda name: name not in {".", ".."}))
def test_distinct_sources_have_distinct_folders(one: str, other: str) -> None:
    assert (one == other) == (plan(one).folder_name == plan(other).folder_name)


@pytest.mark.parametrize("name", NAMES)
def test_the_source_s_name_survives_where_it_fits(name: str) -> None:
    twin = plan(name)

    assert len(name.encode("utf-8", "surrogateescape")) > 254 or twin.folder_name == f"_{name}"
    assert twin.document.endswith(".md")


def test_long_names_are_cut_and_stay_distinct() -> None:
    one, other = shortened("报" * 200 + "a", ".md"), shortened("报" * 200 + "b", ".md")

    assert one != other
    assert one.endswith(".md")
    assert max(len(one.encode()), len(other.encode())) <= 255


def test_two_sources_of_one_stem_do_not_collide() -> None:
    assert {"_a.pdf", "_a.docx"} == {plan("a.pdf").folder_name, plan("a.docx").folder_name}
    other = plan("a.docx", layout="sidecar").otherwise
    assert other is not None
    assert ("a.docx.en.md", ".a.docx") == (other.document, other.folder_name)


def test_a_source_named_like_a_page_keeps_its_document() -> None:
    twin = plan("page_001.pdf", parsed("a", "b"))

    assert ["_page_001.pdf/page_001.md", "_page_001.pdf/page_001-2.md", "_page_001.pdf/page_002.md"] == paths(twin)


def test_figures_never_take_a_name_that_is_taken() -> None:
    source = parsed("a", figures=("report.md", ".docmill.json", "A.png", "a.PNG", "docmill.json"))

    names = [path.rpartition("/")[2] for path in paths(plan(source=source))]

    assert ["report.md", "report-2.md", "docmill.json", "A.png", "a-2.PNG", "docmill-2.json"] == names


def test_many_pages_have_numbers_of_one_width() -> None:
    twin = plan(source=parsed(*["x"] * 1000))

    assert ("_report.pdf/page_0001.md", "_report.pdf/page_1000.md") == (paths(twin)[1], paths(twin)[-1])


def test_an_unknown_language_is_und() -> None:
    source = Parsed("local", "text/plain", (Page(0, "a"),), language="../x")

    assert "report.und.md" == plan("report.pdf", source, "sidecar").document


def test_a_page_image_that_is_also_a_figure_is_kept_once() -> None:
    source = parsed("![scan](assets/p.png)", figures=("p.png",), page_images=["p.png"])

    twin = plan(source=source)

    assert ["_report.pdf/report.md", "_report.pdf/page_001.png"] == paths(twin)
    assert ["page_001.png"] == images(text_of(twin, twin.document))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [name for name in NAMES if name.isprintable()])
def test_links_lead_to_the_files(layout: Layout, name: str) -> None:
    figures = ("fig 1 (a).png", "[b].png", "100%.png", "ü报.png", "plain.png")
    source = parsed("\n\n".join(f"![x](<assets/{figure}>)" for figure in figures), figures=figures)

    twin = plan(name, source, layout)

    base = twin.document.rpartition("/")[0]
    found = [f"{base}/{unquote(src)}".lstrip("/") for src in images(text_of(twin, twin.document))]
    assert paths(twin)[1:] == found


LINKS = {"a.png": "T1", "b (1).png": "T2", "c&d.png": "T3", "e[f].png": "T4", "g h.png": "T5"}


@pytest.mark.parametrize(
    ("expected", "markdown"),
    [
        ("![x](T1)", "![x](assets/a.png)"),
        ("[x](T1) and ![y](T1)", "[x](assets/a.png) and ![y](assets/a.png)"),
        ('![x](T1 "a title")', '![x](assets/a.png "a title")'),
        ("![x](<T1>)", "![x](<assets/a.png>)"),
        ("![x](T2)", "![x](assets/b (1).png)"),
        ("![x](T2)", "![x](assets/b%20(1).png)"),
        ("![x](T2)", "![x](assets/b%20%281%29.png)"),
        ("![x](<T2>)", "![x](<assets/b (1).png>)"),
        ("![x](T4)", "![x](assets/e[f].png)"),
        ("![x](T4)", "![x](assets/e%5Bf%5D.png)"),
        ("![x](T5)", "![x](assets/g h.png)"),
        ('<img src="T3">', '<img src="assets/c&amp;d.png">'),
        ("<td><img alt='' src='T1'/></td>", "<td><img alt='' src='assets/a.png'/></td>"),
        ("[1]: T1", "[1]: assets/a.png"),
        (
            "| ![](T1) | b |\n|---|---|\n| `x` | ![](T1) |",
            "| ![](assets/a.png) | b |\n|---|---|\n| `x` | ![](assets/a.png) |",
        ),
        ("> ![x](T1)", "> ![x](assets/a.png)"),
        ("- one\n\n      code ](assets/a.png)\n- ![](T1)", "- one\n\n      code ](assets/a.png)\n- ![](assets/a.png)"),
        ("a ` stray\n\n![x](T1) ` here", "a ` stray\n\n![x](assets/a.png) ` here"),
        ("# a ` b\n![x](T1) ` c", "# a ` b\n![x](assets/a.png) ` c"),
        ("\\`![x](T1)\\`", "\\`![x](assets/a.png)\\`"),
        ("[![x](T1)](T1)", "[![x](assets/a.png)](assets/a.png)"),
        ("```\nx\n```\n![x](T1)", "```\nx\n```\n![x](assets/a.png)"),
        ("line\r![x](T1)".replace("\r", "\n"), "line\r\n![x](assets/a.png)"),
    ],
)
def test_links_to_known_assets_are_rewritten(expected: str, markdown: str) -> None:
    assert expected == relink(markdown, LINKS)


@pytest.mark.parametrize(
    "markdown",
    [
        "![x](assets/unknown.png)",
        "![x](assets/a.png.bak)",
        "![x](assets/)",
        "![x](https://example.org/assets/a.png)",
        "![x](/assets/a.png)",
        "![x](../assets/a.png)",
        "text assets/a.png text",
        "`![x](assets/a.png)`",
        "`` ` ![x](assets/a.png) ``",
        "a `span\nover ![x](assets/a.png) lines`",
        "```\n![x](assets/a.png)\n```",
        "~~~md\n![x](assets/a.png)\n```\n![x](assets/a.png)\n~~~",
        "```\nunclosed ![x](assets/a.png)",
        "> ```\n> ![x](assets/a.png)\n> ```",
        "- item\n\n  ```\n  ![x](assets/a.png)\n  ```",
        "para\n\n    ![x](assets/a.png)",
        "\\](assets/a.png)",
        'data-src="assets/a.png" without a tag'.replace("data-src", "data"),
    ],
)
def test_code_and_other_links_stay_as_they_are(markdown: str) -> None:
    assert markdown == relink(markdown, LINKS)


@given(
    st.lists(
        st.sampled_from(
            ["`", "``", "\n", "    ", "```\n", "![x](assets/a.png)", "](", "assets/", "> ", "- ", "\\", "|"]
        ),
        max_size=25,
    )
)
def test_rewriting_changes_nothing_but_targets(parts: list[str]) -> None:
    markdown = "".join(parts)

    assert markdown == relink(markdown, {"a.png": "T"}).replace("](T)", "](assets/a.png)")


def test_hostile_ticks_do_not_take_quadratic_time() -> None:
    markdown = "![x](assets/a.png) " + "` `` " * 20_000 + "```" + " ````" * 20_000

    assert "](T1)" in relink(markdown, LINKS)


def test_drift_is_what_we_did_not_write() -> None:
    manifest = plan().manifest_for({"f/a": "1", "f/b": "2", "f/c": "3"})
    german = plan().manifest_for({"f/b": "20"})

    assert () == drifted(manifest, {"f/a": "1", "f/b": "2"})
    assert ("f/b", "f/new") == drifted(manifest, {"f/a": "1", "f/b": "20", "f/new": "9"})
    assert ("f/new",) == drifted([manifest, german], {"f/a": "1", "f/b": "20", "f/new": "9"})


def test_a_manifest_can_be_read_back() -> None:
    manifest = plan(fingerprint="abc").manifest_for({"_report.pdf/report.md": "1" * 64})

    assert manifest == parse_manifest(manifest.to_json())
    assert manifest.is_current("0" * 64, "abc")
    assert not manifest.is_current("0" * 64, "abd")
    assert not manifest.is_current("1" * 64, "abc")


def broken(**changes: Any) -> str:
    return json.dumps({**json.loads(plan().manifest.to_json()), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        b"\xff",
        broken(version=2),
        broken(layout="other"),
        broken(files=[]),
        broken(files={"../x": "1"}),
        broken(files={"a/b/c": "1"}),
        broken(files={"a": 1}),
        broken(document="/etc/passwd"),
        broken(source_file=7),
        broken(more="x"),
        "[" * 100_000,
    ],
)
def test_what_is_no_manifest_is_none(text: str | bytes) -> None:
    assert parse_manifest(text) is None


def test_the_date_alone_does_not_change_the_content() -> None:
    def content(twin: Twin) -> str:
        manifest: Manifest = twin.manifest
        return manifest.content

    assert content(plan()) == content(plan(generated_at=AT + timedelta(days=1)))
    assert content(plan()) != content(plan(source=parsed("# Two")))
    assert content(plan()) != content(plan(generated_by="docmill 9"))
