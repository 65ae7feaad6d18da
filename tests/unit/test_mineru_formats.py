"""MinerU's formats: what docmill writes, and that its own reader of MinerU's results takes it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docmill.adapters.links.signed import SignedLinks
from docmill.core.errors import Forbidden
from docmill.core.mineru import (
    Outputs,
    ParseRequest,
    are_page_ranges,
    cloud_code,
    content_list,
    select_ranges,
    unique_stems,
)
from docmill.core.parsed import Block, Page
from support.measuring import measure

MIXED = """# Title

Text with **bold** words.

### Deep

- one
  - inner
- two

3. third

| a | b |
|---|---|
| 1 | 2 < 3 |

Table 1: Sums.

![alt](assets/p001_img01.png)

$$
E = mc^2
$$

```python
print()
```
"""


def entries(markdown: str, *blocks: Block) -> list[dict[str, object]]:
    page = Page(4, markdown, blocks=blocks)
    return content_list([page], {"p001_img01.png": "images/p001_img01.png"}, {"p001_img01.png": (0.1, 0.2, 0.3, 0.4)})


def test_blocks_become_entries_of_their_kinds() -> None:
    found = entries(MIXED)

    kinds = ["text", "text", "text", "list", "list", "table", "text", "image", "equation", "code"]
    assert kinds == [entry["type"] for entry in found]
    assert {0} == {entry["page_idx"] for entry in found}
    title, text, deep, bullets, numbers, table, _, image, equation, code = found
    assert (1, 3) == (title["text_level"], deep["text_level"])
    assert {"type": "text", "text": "Text with bold words.", "page_idx": 0} == text
    assert ["one", "inner", "two"] == bullets["list_items"]
    assert ["3. third"] == numbers["list_items"]
    assert "<table><tr><td>a</td><td>b</td></tr><tr><td>1</td><td>2 &lt; 3</td></tr></table>" == table["table_body"]
    assert ("images/p001_img01.png", [100, 200, 300, 400]) == (image["img_path"], image["bbox"])
    assert ("latex", "print()") == (equation["text_format"], code["code_body"])


def test_entries_have_the_box_of_their_blocks_and_captions_their_table() -> None:
    blocks = [
        Block("heading", 0, 1, (0.1, 0.1, 0.5, 0.2)),
        Block("item", 6, 8, (0.1, 0.3, 0.5, 0.35)),
        Block("item", 8, 9, (0.2, 0.35, 0.6, 0.4)),
        Block("table", 12, 15, None),
        Block("caption", 16, 17, (0.0, 0.8, 1.0, 0.9)),
    ]
    found = entries(MIXED, *blocks)

    assert [100, 100, 500, 200] == found[0]["bbox"]
    assert "bbox" not in found[1]
    assert [100, 300, 600, 400] == found[3]["bbox"]
    [table] = [entry for entry in found if entry["type"] == "table"]
    assert ["Table 1: Sums."] == table["table_caption"]
    assert not any(entry.get("text") == "Table 1: Sums." for entry in found)


def test_a_long_page_takes_time_in_proportion() -> None:
    def seconds(count: int) -> float:
        lines = "\n\n".join(f"Line {number}" for number in range(count))
        blocks = tuple(Block("text", 2 * number, 2 * number + 1, (0, 0, 1, 1)) for number in range(count))
        pages = [Page(0, lines, blocks=blocks)]
        return measure(lambda: content_list(pages, {}, {}))

    few = min(seconds(500) for _ in range(3))
    assert seconds(5_000) < 40 * few


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="#*-_|`~<>[]()!$1. \n\tax", max_size=200))
def test_any_markdown_has_a_content_list(markdown: str) -> None:
    for entry in entries(markdown):
        assert entry["type"] in ("text", "list", "table", "image", "equation", "code")


@given(
    st.lists(st.integers(1, 10**18), min_size=1, max_size=100),
    st.builds(Outputs, *[st.booleans()] * 7),
    st.integers(0, 99_999),
    st.sampled_from(["auto", "txt", "ocr"]),
    st.sampled_from(["pipeline", "vlm-http-client", "hybrid-engine"]),
)
def test_an_id_says_all_of_a_request(ids: list[int], outputs: Outputs, page: int, method: str, backend: str) -> None:
    asked = ParseRequest(tuple(ids), outputs, page, 99_999, method, backend)

    assert asked == ParseRequest.of_id(asked.to_id())


@pytest.mark.parametrize(
    "text", ["", "1", "1.m", "1.m.0-1.auto.evil", "1.m.0-1.auto.pipeline/..", "x.m.0-1.auto.vlm-a"]
)
def test_what_nobody_gave_out_is_no_id(text: str) -> None:
    assert ParseRequest.of_id(text) is None


def test_names_are_safe_and_each_comes_once() -> None:
    names = ["a.pdf", "a.docx", "a_2.pdf", "..", "../../x.pdf", ".hidden", "", "a.pdf"]

    stems = unique_stems(names)

    assert ["a", "a_2", "a_2_2"] == stems[:3]
    assert len(set(stems)) == len(names)
    assert not any("/" in stem or "\\" in stem or stem.startswith(".") or not stem for stem in stems)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [1, 2, 3, 4, 5, 6]),
        ("2,4-6", [2, 4, 5, 6]),
        ("2--2", [2, 3, 4, 5]),
        ("-1", [6]),
        ("5-99", [5, 6]),
        ("99", []),
        (" 1 , 3 ", [1, 3]),
        ("4-2", []),
        ("1-999999999", [1, 2, 3, 4, 5, 6]),
    ],
)
def test_page_ranges_of_the_cloud(text: str, expected: list[int]) -> None:
    pages = [Page(index, "") for index in range(6)]

    assert not text or are_page_ranges(text)
    assert expected == [page.index + 1 for page in select_ranges(pages, text)]


@pytest.mark.parametrize("text", ["a", "1-2-3", "1,,2", ",", "--", "1" * 10, ",".join(["1"] * 1001)])
def test_what_is_no_page_range(text: str) -> None:
    assert not are_page_ranges(text)


def test_errors_have_the_cloud_s_codes() -> None:
    assert -60003 == cloud_code("document_broken")
    assert -60010 == cloud_code("parse_crashed")
    assert "A0202" == cloud_code("unauthenticated", 401)
    assert -10002 == cloud_code("request_invalid", 422)
    assert -10001 == cloud_code("internal_error", 500)


def test_a_link_of_a_batch_expires() -> None:
    links = SignedLinks(b"secret", "", path="")
    fresh, old = (links.upload("acme", "batch/0/alice", seconds=seconds) for seconds in (60, -60))

    assert ("acme", "batch/0/alice") == links.read(fresh.removeprefix("/"), method="PUT")
    with pytest.raises(Forbidden):
        links.read(old.removeprefix("/"), method="PUT")
