"""A document's page: text and its place on the page know each other."""

import re

import msgspec
import pytest

from docmill.console import markdown
from docmill.console.pages.documents import excerpt, placed_blocks
from docmill.core.parsed import Block
from docmill.work.objects import objects
from docmill.work.stages.parse import load
from support import documents
from support.model_peer import ModelPeer

HEADING = {"en": "Heading", "de": "Überschrift", "zh": "标题"}
KINDS = ["Heading", "Paragraph", "Caption"]
BOX = re.compile(r'<a href="#block-(\d+)" data-block="(\d+)" aria-label="([^"]*)"><rect [^>]*class="block"/></a>')


@pytest.fixture
async def rich(visitor, tmp_path):
    """A visitor, and a task whose document has text, a picture and a table on its first page."""
    task = await visitor.complete(await visitor.submit("rich.pdf", documents.pdf_rich(tmp_path / "a.pdf").read_bytes()))
    return visitor, task


async def test_every_block_and_its_box_know_each_other(rich):
    visitor, task = rich
    page = await visitor.see(f"/documents/{task.document_id}")
    boxes, text = BOX.findall(page), page[page.index('id="reading"') :]

    assert 3 == len(boxes), page
    for kind, (href, number, label) in zip(KINDS, boxes, strict=True):
        assert href == number
        element = re.search(rf'<(\w+) data-block="{number}" id="block-{number}">([^<]*)', text)
        assert element, text
        assert f"{kind}: {element[2][:30]}" == label[: len(kind) + 32]
    assert 2 == page.count('href="#read-'), "the picture and the table are there once, as assets"
    assert "style=" not in page
    for language, word in HEADING.items():
        assert f'aria-label="{word}: Ships and Ports"' in await visitor.see(
            f"/documents/{task.document_id}", **{"Accept-Language": language}
        )


async def test_a_document_from_before_shows_its_assets_only(rich):
    visitor, task = rich
    key = task.artifacts.parsed_key
    old = msgspec.to_builtins(await load(visitor.ports, task.tenant, key))
    for page in old["pages"]:
        del page["blocks"]
    await objects(visitor.ports, task.tenant).put_bytes(key, msgspec.json.encode(old))

    page = await visitor.see(f"/documents/{task.document_id}")

    assert "Ships and Ports" in page
    assert 2 == page.count('href="#read-')
    assert "data-block" not in page


async def test_the_page_of_a_task_names_all_that_it_left(open_console):
    with ModelPeer() as model:
        model.answers = [{"number": "7"}]
        async with open_console(llm=msgspec.json.decode(model.settings())) as visitor:
            schema = {"type": "object", "properties": {"number": {"type": "string"}}}
            rule = await visitor.http.post("/api/v1/etl/rules", json={"name": "n", "json_schema": schema})
            answer = await visitor.http.post(
                "/api/v1/etl/upload_and_submit",
                data={"project_id": "1", "rule_id": str(rule.json()["id"])},
                files={"file": ("a.txt", b"Invoice number 7")},
            )
            task = await visitor.complete(answer.json()["items"][0]["task_id"])

            page = await visitor.see(f"/tasks/{task.id}")

    names = re.findall(rf"/tasks/{task.id}/artifacts/([a-z.]+)", page)
    assert ["source", "markdown.md", "parsed.json", "output.json", "extraction.json"] == names


def test_what_an_asset_shows_already_is_no_block_of_its_own():
    text, table, nowhere = (
        Block("text", 0, 1, (0.1, 0.1, 0.9, 0.2)),
        Block("table", 2, 5, (0.1, 0.3, 0.9, 0.5)),
        Block("text", 6, 7),
    )

    assert {1: text} == placed_blocks((text, table, nowhere), [(0.101, 0.299, 0.9, 0.5)])
    assert {1: text, 2: table} == placed_blocks((text, table, nowhere), [])


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["## The *red* `harbour`"], "The red harbour"),
        (["- [a link](https://example.org/x)"], "a link"),
        (["| a | b |", "| --- | --- |"], "a b --- ---"),
        (["x" * 200], "x" * 80 + "…"),
        ([], ""),
    ],
)
def test_a_box_is_called_by_the_words_with_which_it_begins(lines, said):
    assert said == excerpt(lines)


@pytest.mark.parametrize(("text", "is_plain"), [("# Title\n", False), ("![" * 30_000, True), ("word " * 200_000, True)])
def test_a_page_that_takes_too_long_to_format_is_shown_as_text(text, is_plain, monkeypatch):
    monkeypatch.setattr(markdown, "MAX_RENDER_S", 0.3)

    html, found = markdown.rendered_or_plain(text, {}, ())

    assert is_plain == found
    assert html.startswith("<pre>") == is_plain
    assert "<script" not in markdown.rendered_or_plain("<script>" * 100_000, {}, ())[0]
