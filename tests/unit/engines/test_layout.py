"""PDF layout: words with their style, lines, columns, paragraphs, lists, code, notes, formulas, direction."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from reportlab.pdfgen.canvas import Canvas

from docmill.adapters.engines.local.pdf import content, headings, layout, lines
from docmill.adapters.engines.local.pdf.blocks import Block, markdown
from docmill.adapters.engines.local.pdf.content import PageContent, Word

Draw = Callable[[Canvas], None]
PROSE = "The harbour grew in this year and more ships came than ever before, which nobody had thought possible at all"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., str]:
    """The Markdown of a page that *draw* draws."""

    def run(draw: Draw, size: tuple[float, float] = (595, 842)) -> str:
        page = content_of(tmp_path, draw, size)
        blocks = layout.read_page(page, headings.profile_of([page]))
        headings.set_levels([blocks], headings.profile_of([page]), {})
        return markdown(blocks)

    return run


def content_of(folder: Path, draw: Draw, size: tuple[float, float] = (595, 842)) -> PageContent:
    path = folder / "page.pdf"
    canvas = Canvas(str(path), pagesize=size)
    canvas.setFont("Times-Roman", 10)
    draw(canvas)
    canvas.save()
    with pdfium.PdfDocument(path) as document:
        return content.read_content(document[0], tagged=False)


def wrapped(canvas: Canvas, text: str, x: float, y: float, width: float = 60, step: float = 12) -> float:
    """Lines of at most *width* letters, and the height under the last."""
    line = ""
    for word in text.split():
        if len(line) + len(word) > width:
            canvas.drawString(x, y, line)
            y, line = y - step, ""
        line = f"{line} {word}".strip()
    canvas.drawString(x, y, line)
    return y - step


def test_a_word_knows_its_style_and_its_place(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        for number, font in enumerate(("Times-Roman", "Times-Bold", "Times-Italic", "Courier")):
            canvas.setFont(font, 10)
            canvas.drawString(100, 700 - 20 * number, "Harbour")
        canvas.setFont("Times-Roman", 1)
        canvas.scale(14, 14)
        canvas.drawString(10, 10, "Scaled")

    words = content_of(tmp_path, draw).words

    assert [(False, False, False), (True, False, False), (False, True, False), (False, False, True)] == [
        (word.bold, word.italic, word.mono) for word in words[:4]
    ]
    assert (100, 142) == (round(words[0].x0), round(words[0].base))
    assert 14 == pytest.approx(words[4].size)


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_the_direction_of_words_is_that_of_the_displayed_page(tmp_path: Path, angle: int) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setPageRotation(angle)
        canvas.drawString(100, 500, "Harbour")

    (word,) = content_of(tmp_path, draw).words

    assert -angle // 90 % 4 == word.turn
    x, y = {0: (100, 342), 90: (500, 100), 180: (495, 500), 270: (95, 742)}[angle]
    assert word.x0 - 12 <= x <= word.x1 + 12
    assert word.y0 - 12 <= y <= word.y1 + 12


def test_text_outside_the_page_is_not_read(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.drawString(100, 700, "inside")
        canvas.drawString(100, 1700, "outside")

    assert ["inside"] == [word.text for word in content_of(tmp_path, draw).words]


def test_paragraphs_end_where_a_reader_sees_it(read: Callable[..., str]) -> None:
    def draw(canvas: Canvas) -> None:
        below = wrapped(canvas, f"{PROSE}.", 72, 700)
        below = wrapped(canvas, f"Ships {PROSE}.", 72, below - 8)
        canvas.drawString(86, below - 4, "An indented line begins the third one, and it is as long as the others are,")
        canvas.drawString(72, below - 16, "while the next goes back to the edge.")

    found = read(draw).split("\n\n")

    assert 3 == len(found)
    assert [f"{PROSE}.", f"Ships {PROSE}."] == found[:2]
    assert found[2].startswith("An indented")


def test_columns_are_read_one_after_the_other_and_what_goes_across_parts_them(read: Callable[..., str]) -> None:
    def draw(canvas: Canvas) -> None:
        wrapped(canvas, f"Across {PROSE}, and that is why both columns stand below this text.", 72, 760, 95)
        wrapped(canvas, f"Left {PROSE}. " * 3, 72, 700, 42)
        wrapped(canvas, f"Right {PROSE}. " * 3, 310, 700, 42)

    text = read(draw)

    assert text.index("Across") < text.index("Left") < text.rindex("Left") < text.index("Right")
    assert "below this text." in text.split("\n\n")[0]


def test_lists_code_marks_and_links(read: Callable[..., str]) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setFont("Times-Bold", 18)
        canvas.drawString(72, 760, "Ports")
        canvas.setFont("Times-Roman", 10)
        canvas.drawString(72, 730, "All of the")
        canvas.setFont("Times-Bold", 10)
        canvas.drawString(72 + canvas.stringWidth("All of the ", "Times-Roman", 10), 730, "old ports")
        canvas.setFont("Times-Roman", 10)
        canvas.drawString(72 + 100, 730, "are listed at the end of this page, as far as they are known.")
        canvas.linkURL("https://example.org/ports", (172, 727, 195, 740))
        for number, port in enumerate(("Kiel in the north", "Emden in the west")):
            canvas.circle(80, 703 - 14 * number, 1.5, fill=1)
            canvas.drawString(90, 700 - 14 * number, port)
        canvas.setFont("Courier", 9)
        canvas.drawString(72, 640, "def ships():")
        canvas.drawString(72 + 4 * 5.4, 629, "return 35")

    text = read(draw)

    assert text.startswith("# Ports\n\nAll of the **old ports**")
    assert "](https://example.org/ports)" in text
    assert "- Kiel in the north\n- Emden in the west" in text
    assert "```\ndef ships():\n    return 35\n```" in text


def test_a_note_is_linked_to_its_number(read: Callable[..., str]) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.drawString(72, 700, "Ships were counted by hand")
        end = 72 + canvas.stringWidth("Ships were counted by hand", "Times-Roman", 10)
        canvas.setFont("Times-Roman", 6)
        canvas.drawString(end, 704, "1")
        canvas.setFont("Times-Roman", 10)
        wrapped(canvas, f"in all ports of the coast. {PROSE}.", 72, 688)
        canvas.setFont("Times-Roman", 5)
        canvas.drawString(72, 103, "1")
        canvas.setFont("Times-Roman", 8)
        canvas.drawString(76, 100, "Twice a day, except on holidays.")

    text = read(draw)

    assert "by hand[^1] in all" in text
    assert text.endswith("[^1]: Twice a day, except on holidays.")


def test_a_formula_stays_together(read: Callable[..., str]) -> None:
    def draw(canvas: Canvas) -> None:
        below = wrapped(canvas, f"{PROSE}.", 72, 700)
        canvas.setFont("Times-Italic", 10)
        canvas.drawString(200, below - 10, "x = a + b")
        canvas.setFont("Times-Roman", 10)
        wrapped(canvas, f"{PROSE}.", 72, below - 36)

    assert "\n\n$$ x = a + b $$\n\n" in read(draw)


def test_lines_that_were_ended_on_purpose_stay_lines(read: Callable[..., str]) -> None:
    def draw(canvas: Canvas) -> None:
        for number, line in enumerate(("Harbour Office", "Quay Street 4", "24103 Kiel")):
            canvas.drawString(72, 780 - 12 * number, line)
        wrapped(canvas, f"{PROSE}. " * 3, 72, 700)

    assert read(draw).startswith("Harbour Office  \nQuay Street 4  \n24103 Kiel\n\n")


def test_a_turned_page_is_read_like_an_upright_one(read: Callable[..., str]) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.translate(500, 100)
        canvas.rotate(90)
        canvas.setFont("Times-Roman", 10)
        below = wrapped(canvas, f"{PROSE}.", 0, 300)
        wrapped(canvas, f"Ships {PROSE}.", 0, below - 20)

    assert f"{PROSE}.\n\nShips {PROSE}." == read(draw)


def word(text: str, x0: float, x1: float) -> Word:
    return Word(text, x0, 90, x1, 100, base=98, size=10)


def test_right_to_left_lines_come_out_in_logical_order() -> None:
    """From the right, but a name in Latin letters from the left, and the full stop after it at its end."""
    one, two = "\u05e9\u05dc\u05d5\u05dd", "\u05e2\u05d5\u05dc\u05dd"
    words = [word(".Port", 10, 40), word("Kiel", 43, 60), word(two, 65, 90), word(one, 95, 120)]

    (line,) = lines.find_lines(words)

    assert f"{one} {two} Port Kiel." == line.text


def test_levels_hold_over_the_document() -> None:
    def heading(text: str, size: float) -> Block:
        return Block("heading", text, size=size)

    first = [heading("Report", 20), heading("1 Ports", 14), heading("1.1 Kiel", 14), heading("1.2 Emden", 12)]
    second = [heading("2 Ships", 14), heading("2.1 Cranes", 10)]

    headings.set_levels([first, second], headings.Profile(10.0), {"2ships": 4})

    assert [1, 2, 3, 3] == [block.level for block in first]
    assert [4, 3] == [block.level for block in second], "a bookmark knows better"


def test_a_map_takes_time_in_proportion_to_its_words() -> None:
    rolled = random.Random(7)

    def a_map(count: int) -> PageContent:
        page = PageContent(2000, 2000)
        for number in range(count):
            x, y = rolled.uniform(0, 1950), rolled.uniform(10, 1990)
            page.words.append(Word(f"w{number}", x, y - 4, x + 18, y + 1, base=y, size=6))
        return page

    def spent(count: int) -> float:
        page = a_map(count)
        began = time.process_time()
        layout.read_page(page, headings.profile_of([page]))
        return time.process_time() - began

    spent(1000)
    assert spent(18_000) < 12 * max(0.05, spent(4_500)), "four times the words"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Figure 1: Nitrate load, mean of twelve stations.", True),
        ("Table 2. Results by year", True),
        ("Fig. 3 Overview of the plant", True),
        ("Tabelle 4", True),
        ("Table 5 summary of results", True),
        ("Figure 1 shows the mean nitrate load of all stations since 2021.", False),
        ("Tabelle 2.1 enthält die Werte des Jahres.", False),
        ("The table shows 3 values.", False),
    ],
)
def test_a_sentence_that_mentions_a_figure_is_no_caption(text: str, expected: bool) -> None:
    assert expected == headings.is_caption(text)
