"""Charts and drawings that look like tables: numbers along an axis, boxes joined by lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .blocks import Cell

TICK = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?%?|[0-9]{1,3}(?:,[0-9]{3}){1,4}")
FEWEST, MANY = 3, 4
"""Ticks. With fewer than many, the axis must end at nought."""
LOOSE = 0.4
"""Of the cells beside an axis. A table has more of them filled."""


def has_axis(table: Sequence[Sequence[Cell]]) -> bool:
    """Numbers that go down in equal steps at an edge: to nought, at both edges, or with little beside them."""
    ticks = [falling([part for row in table if row for part in row[edge].text.split()]) for edge in (0, -1)]
    ticks += [numbers for row in table for cell in row if cell.rows > 1 and (numbers := falling(cell.text.split()))]
    if any(len(numbers) >= FEWEST and numbers[-1] == 0 for numbers in ticks):
        return True
    left, right = (len(numbers) >= MANY for numbers in ticks[:2])
    return (left and right) or ((left or right) and is_bare(table))


def falling(texts: Sequence[str]) -> list[float]:
    """The longest run of numbers of which each is less than the one before by the same step, if it is most of all."""
    numbers = [float(text.replace(",", "").rstrip("%")) for text in texts if TICK.fullmatch(text)]
    best: list[float] = []
    run: list[float] = []
    for number in numbers:
        goes_on = len(run) < 2 or round(run[-2] - run[-1], 6) == round(run[-1] - number, 6)
        if run and run[-1] > number and goes_on:
            run.append(number)
        else:
            run = [run[-1], number] if run and run[-1] > number else [number]
        best = run if len(run) > len(best) else best
    return best if len(best) > 1 and 2 * len(best) > len(texts) else []


def is_bare(table: Sequence[Sequence[Cell]]) -> bool:
    """Hardly anything stands beside the first and the last column."""
    beside = [bool(cell.text) for row in table for cell in row[1:-1]]
    return sum(beside) <= LOOSE * len(beside)
