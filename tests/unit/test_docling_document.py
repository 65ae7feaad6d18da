"""Markdown of any kind becomes a document that docling's own library accepts."""

from __future__ import annotations

from docling_core.types.doc import DoclingDocument
from hypothesis import given, settings
from hypothesis import strategies as st

from docmill.core.docling import Picture, docling_document, items_of, plain_text
from docmill.core.parsed import Figure, Page, Parsed

MIXED = """# Title

Text with **bold** and `code`.

## Part

- one
  - inner

    more of inner
- two

3. third

| a | b |
|---|---|
| 1 | 2 |

<table><tr><th rowspan="2">x</th><td>y</td></tr><tr><td>z</td></tr></table>

![figure](assets/a%20b.png)

```python
print()
```
"""


def document(*pages: str, pictures: dict[str, Picture] | None = None) -> DoclingDocument:
    made = tuple(Page(index, text) for index, text in enumerate(pages))
    figure = Figure("a b.png", "image", "image/png", "0" * 64, 1, 0, (0.1, 0.2, 0.3, 0.4))
    parsed = Parsed("local", "application/pdf", made, (figure,))
    raw = docling_document("name", parsed, made, items_of(made), pictures or {})
    return DoclingDocument.model_validate(raw)


def test_blocks_keep_their_kinds_places_and_order() -> None:
    found = document("first page", MIXED)

    assert ["text", "title", "text", "section_header"] == [text.label for text in found.texts][:4]
    assert [2, 2] == [len(table.data.grid) for table in found.tables]
    assert ("x", "x") == (found.tables[1].data.grid[0][0].text, found.tables[1].data.grid[1][0].text)
    [place] = found.pictures[0].prov
    assert (2, (0.1, 0.2)) == (place.page_no, (place.bbox.l, place.bbox.t))
    assert [1, 2] == sorted(found.pages)
    markdown = found.export_to_markdown()
    assert markdown.index("# Title") < markdown.index("## Part") < markdown.index("- one") < markdown.index("| ")
    assert "    - inner" in markdown


def test_an_image_is_embedded_when_its_bytes_are_there() -> None:
    uri = "data:image/png;base64,iVBORw0KGgo="
    found = document(MIXED, pictures={"a b.png": Picture(uri, "image/png", 3, 4)})

    image = found.pictures[0].image
    assert image is not None
    assert (uri, 3.0, 4.0) == (str(image.uri), image.size.width, image.size.height)


def test_plain_text_has_all_words_and_no_marks() -> None:
    text = plain_text(items_of([Page(0, MIXED)]))

    assert all(word in text for word in ("Title", "bold", "inner", "more of inner", "third", "1\t2", "print()"))
    assert not any(mark in text for mark in ("**", "##", "|", "<t"))


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab \n#-*1.|>`<t/d![](:é", max_size=120))
def test_any_markdown_gives_a_valid_document(text: str) -> None:
    found = document(text, "<table><td rowspan=9 colspan=3>q<tr>")

    assert found.tables[-1].data.num_cols == 3
