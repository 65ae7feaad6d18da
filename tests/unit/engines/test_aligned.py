"""Tables without a full set of lines: columns by their gaps, rows by their distance, whatever lines there are."""

from __future__ import annotations

from docmill.adapters.engines.local.pdf import aligned, regions, ruled, sections, tables
from docmill.adapters.engines.local.pdf.blocks import Cell
from docmill.adapters.engines.local.pdf.charts import has_axis
from docmill.adapters.engines.local.pdf.content import Word
from docmill.adapters.engines.local.pdf.ruled import Line

HEIGHT, LETTER = 10.0, 5.0
PAGE = (0.0, 0.0, 600.0, 800.0)


def words(*cells: tuple[float, float, str]) -> list[Word]:
    """Texts by their left edge and the middle of their line, five points to the letter."""
    found = []
    for x, y, text in cells:
        for word in text.split():
            found.append(Word(word, x, y - HEIGHT / 2, x + LETTER * len(word), y + HEIGHT / 2))
            x += LETTER * (len(word) + 0.6)
    return found


def rows(*lines: tuple[float, tuple[tuple[float, str], ...]]) -> list[Word]:
    return [word for y, cells in lines for x, text in cells for word in words((x, y, text))]


def texts(grid: aligned.Grid | None) -> list[list[str]]:
    assert grid is not None
    return [[cell.text for cell in row] for row in grid.rows]


def table(found: list[Word], box=(50, 90, 400, 300), level=(), upright=(), *, frame=False) -> aligned.Grid | None:
    return aligned.build(box, found, level, upright, [], frame=frame)


PORTS = rows(
    (100, ((60, "Port"), (200, "Ships"), (300, "Tons"))),
    (118, ((60, "Hamburg"), (200, "120"), (300, "4500"))),
    (136, ((60, "Kiel"), (200, "35"), (300, "800"))),
    (154, ((60, "Lübeck"), (200, "41"), (300, "950"))),
)


def test_words_under_one_another_make_columns():
    assert [
        ["Port", "Ships", "Tons"],
        ["Hamburg", "120", "4500"],
        ["Kiel", "35", "800"],
        ["Lübeck", "41", "950"],
    ] == texts(table(PORTS))


def test_a_title_over_two_columns_spans_them_and_moves_no_border():
    title = words((215, 84, "Traffic of the whole year"))

    grid = table([*title, *PORTS], (50, 75, 400, 300))

    assert grid is not None
    assert [("", 1), ("Traffic of the whole year", 2)] == [(cell.text, cell.columns) for cell in grid.rows[0]]
    assert 3 == grid.width


def test_a_cell_that_fills_its_column_keeps_its_neighbour_apart():
    wide = words((60, 172, "Bremerhaven on the riverbank"), (200, 172, "7"), (300, 172, "12"))

    assert ["Bremerhaven on the riverbank", "7", "12"] == texts(table([*PORTS, *wide]))[-1]


def test_a_line_close_under_a_row_goes_on_with_its_cells():
    wrapped = words((60, 180, "Frankfurt"), (200, 180, "9"), (300, 180, "20"), (60, 191, "(Oder)"))

    assert ["Frankfurt (Oder)", "9", "20"] == texts(table([*PORTS, *wrapped]))[-1]


def test_running_text_in_two_columns_is_no_table():
    prose = rows(
        *((100 + 12 * n, ((60, "the cranes of this quay"), (230, "are old and slow by now"))) for n in range(8))
    )

    assert table(prose) is None


def test_titles_with_page_numbers_and_the_numbers_of_a_chart_are_no_tables():
    contents = rows(*((100 + 18 * n, ((60, f"Chapter {n}"), (300, str(7 * n + 1)))) for n in range(5)))
    chart = rows(*((100 + 18 * n, ((60, str(n)), (200, str(n * 3)), (300, str(n * 5)))) for n in range(5)))

    assert table(contents) is None
    assert table(chart) is None


def test_the_axis_of_a_chart_gives_it_away():
    axis = [(100 + 18 * n, ((60, str(40 - 10 * n)), (200, f"Bar {n}"), (300, f"Mark {n}"))) for n in range(5)]

    assert table(rows(*axis)) is None
    assert 4 == len(texts(table(rows(*axis[:4]))))


def cells(*lines: str) -> list[list[Cell]]:
    return [[Cell(text.strip()) for text in line.split("|")] for line in lines]


def test_an_axis_at_either_side_or_with_nothing_beside_it_gives_a_chart_away():
    assert has_axis(cells("54,000 | | 0.50", "53,000 | Income | 0.48", "52,000 | | 0.46", "51,000 | Gini | 0.44"))
    assert has_axis(cells("16,000 | Events | x", "14,000 | | ", "12,000 | | ", "10,000 | | "))
    assert has_axis([[Cell("Percent", 1, 2)], [Cell("100 80 60 40 20 0", 3), Cell("41")], [Cell("28")], [Cell("3")]])


def test_years_that_count_down_and_steps_in_one_cell_of_words_are_no_axis():
    years = cells("2012 | 120 | 4", "2011 | 35 | 8", "2010 | 41 | 7", "2009 | 44 | 1")

    assert not has_axis(years)
    assert not has_axis([[Cell("one of 4 or 3 or 2 or 1 of them", 2), Cell("5")], [Cell("6")]])
    assert not has_axis([])


def test_colour_behind_a_paragraph_makes_no_table():
    level = [Line(94 + 12 * n, 50, 400) for n in range(6)]
    upright = [Line(x, 94, 154) for x in (50, 200, 400)]
    across = rows(
        *((100 + 12 * n, ((60, "the cranes of this quay are old and slow by now"),)) for n in range(4)),
        (148, ((60, "Kiel"), (210, "35"))),
    )
    for_each = [Line(50, 94, 154), Line(200, 142, 154), Line(400, 94, 154)]

    assert ruled.build(level, for_each, across) is None
    assert ruled.build(level, upright, rows(*((100 + 12 * n, ((60, "Kiel"), (210, "35"))) for n in range(5))))


def test_underlined_words_are_no_rules_of_a_table():
    prose = rows(*((100 + 14 * n, ((60, "underlined words of a link"),)) for n in range(4)))
    end = max(word.x1 for word in prose)

    under, over = ([Line(100 + side + 14 * n, 60, end) for n in range(4)] for side in (5.5, -5.5))

    assert [] == regions.stacks(under, prose)
    assert [] == regions.stacks(over, prose)
    assert 1 == len(regions.stacks([Line(line.at, 60, 400) for line in under], PORTS))


def test_a_paragraph_above_a_drawn_table_does_not_make_it_doubtful():
    grid, box = (50.0, 90.0, 400.0, 160.0), (50.0, 60.0, 400.0, 160.0)

    assert not tables.reaches_beyond(box, grid, words((60, 70, "The harbour grew in this year")))
    assert tables.reaches_beyond(box, grid, words((60, 70, "Emden"), (200, 70, "12")))
    assert not tables.reaches_beyond(grid, grid, PORTS)


def test_paragraphs_around_a_table_are_not_put_into_its_cells():
    prose = words((60, 82, "The harbour grew in this year and more ships came than ever did before"))

    grid = table([*prose, *PORTS], (50, 70, 400, 300))

    assert ["Port", "Ships", "Tons"] == texts(grid)[0]
    assert grid is not None
    assert ["The harbour grew in this year and more ships came than ever did before"] == grid.above


def test_numbers_that_stand_close_together_are_cells_and_thousands_are_one():
    close = [(100 + 18 * n, ((60, f"Row {n}a"), (200, f"1{n}.50"), (229, f"2{n}.75"))) for n in range(4)]
    thousands = [(100 + 18 * n, ((60, f"Row {n}a"), (200, f"1{n} 500"), (300, f"2{n}"))) for n in range(4)]

    assert ["Row 1a", "11.50", "21.75"] == texts(table(rows(*close)))[1]
    assert ["Row 1a", "11 500", "21"] == texts(table(rows(*thousands)))[1]


def test_lines_without_an_outer_frame_still_make_the_cells():
    floors = [Line(y, 50, 400) for y in (109, 127, 145)]
    walls = [Line(190, 90, 163), Line(290, 90, 163)]
    two = words((200, 100, "Ships"), (300, 100, "Tons"), (60, 118, "Kiel"), (60, 136, "Hamburg"), (60, 154, "Bremen"))
    two += words((200, 118, "35"), (300, 136, "80"))

    grid = table(two, (50, 90, 400, 163), floors, walls, frame=True)

    assert [["", "Ships", "Tons"], ["Kiel", "35", ""], ["Hamburg", "", "80"], ["Bremen", "", ""]] == texts(grid)


def test_rules_of_one_width_mark_a_table_and_running_text_parts_two():
    level = [Line(y, 50, 400) for y in (90, 109, 163, 290, 309, 363)]
    prose = words((60, 220, "Between the two tables stands a paragraph that goes over all of the width"))

    assert [(50, 90, 400, 163), (50, 290, 400, 363)] == regions.stacks(level, [*PORTS, *prose])
    assert [(50, 90, 400, 363)] == regions.stacks(level, PORTS)


def test_a_head_and_a_column_that_were_left_out_are_found_again():
    part = (190.0, 112.0, 330.0, 160.0)

    x0, y0, x1, y1 = regions.grown(part, PORTS, [], PAGE)

    assert x0 <= 60
    assert y0 <= 96
    assert (330, 160) == (x1, y1)


def test_no_words_and_one_line_are_no_table():
    assert table([]) is None
    assert table(words((60, 100, "Port"), (200, 100, "Ships"))) is None


def test_a_title_in_the_middle_of_its_columns_spans_all_of_them():
    numbers = ((200, "1.50"), (260, "2.50"), (320, "3.50"), (380, "4.50"))
    body = rows((118, ((60, "Kiel"), *numbers)), (136, ((60, "Ulm"), *numbers)))

    grid = table([*words((271, 100, "Ships a year")), *body], (50, 90, 450, 150))

    assert grid is not None
    assert [("", 1), ("Ships a year", 4)] == [(cell.text, cell.columns) for cell in grid.rows[0]]


def test_a_title_between_rows_parts_no_table():
    other = rows(
        *((y, ((60, name), (200, "12"), (300, "340"))) for y, name in ((190, "Ulm"), (208, "Köln"), (226, "Bonn")))
    )
    pieces = [
        aligned.build(box, [*PORTS, *other], [], [], [], frame=False)
        for box in ((50, 90, 400, 162), (50, 182, 400, 240))
    ]
    found = [piece for piece in pieces if piece is not None]
    title = words((60, 172, "On rivers"))
    prose = words((60, 172, "On rivers ships came and went more often than they ever did before"))

    (whole,) = sections.put_together(found, [*PORTS, *title, *other], [], [])

    assert [["On rivers", "", ""], ["Ulm", "12", "340"]] == texts(whole)[4:6]
    assert found == sections.put_together(found, [*PORTS, *prose, *other], [], [])
    assert found == sections.put_together(found, [*PORTS, *other], [], [])


def test_a_title_and_notes_in_the_frame_of_a_table_are_no_rows():
    prose = "Ships that came into each of the ports in that year"
    lines = [
        (100, ((60, prose),)),
        *((118 + 18 * n, ((60, "Kiel"), (210, "35"))) for n in range(3)),
        (172, ((60, prose),)),
    ]
    level = [Line(91 + 18 * n, 50, 400) for n in range(6)]
    upright = [Line(50, 91, 181), Line(200, 109, 163), Line(400, 91, 181)]

    grid = ruled.build(level, upright, rows(*lines))

    assert grid is not None
    assert [["Kiel", "35"]] * 3 == texts(grid)
    assert ([prose], [prose]) == (grid.above, grid.below)
