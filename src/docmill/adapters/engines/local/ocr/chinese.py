"""How a page writes Chinese: recognisers are unsteady about blanks and the width of marks, printers are not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

IDEOGRAPH = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
SEAM = re.compile(f"(?<=[{IDEOGRAPH}])( ?)(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])( ?)(?=[{IDEOGRAPH}])")
SYMBOL = re.compile(
    f'(?<=[{IDEOGRAPH}])(?=-{{1,2}}[A-Za-z]|/[A-Za-z]|"[A-Za-z0-9])'
    f'|(?<=[A-Za-z{IDEOGRAPH}]>)(?=[{IDEOGRAPH}])|(?<=[A-Za-z0-9]")(?=[{IDEOGRAPH}])'
)
"""Between Chinese and an option, a path, a quotation or the end of a placeholder."""
OPENED = re.compile(
    f"(?<=[{IDEOGRAPH}])\\(([^()（）\\n]*)[)）]"
    f"|\\(([^()（）\\n{IDEOGRAPH}]*[{IDEOGRAPH}][^()（）\\n]*)[)）]"
    "|（([^()（）\\n]*)\\)"
    "|\\(([^()（）\\n]*)）"
)
WIDE = dict(zip(",;:!?.", "，；：！？。", strict=True))
WIDE_MARK = re.compile(f"[{IDEOGRAPH}）][，；：！？。]")
NARROW_MARK = re.compile(
    f"(?<=[{IDEOGRAPH}）])(?:([,;:!?])(?![\\d/\\\\])|(\\.)(?=[{IDEOGRAPH}\\s]|$))(?: (?=[{IDEOGRAPH}]))?"
    f"|(?<=[A-Za-z0-9])([,;!?])(?=[{IDEOGRAPH}])",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Habits:
    """What holds over a whole page, however many parts it is written in."""

    blanks: bool | None = None
    """Between Chinese and Latin letters; None where the two never meet."""
    wide: bool = False
    """Commas, colons and the like are as wide as a character."""

    @classmethod
    def of(cls, lines: Iterable[str]) -> Habits:
        text = "\n".join(lines)
        seams = [(found[1] or "") + (found[2] or "") for found in SEAM.finditer(text)]
        # Noise hides blanks and never invents them: a fifth of them is enough to believe in all.
        blanks = sum(map(len, seams)) * 5 >= len(seams) if seams else None
        wide, narrow = len(WIDE_MARK.findall(text)), len(NARROW_MARK.findall(text))
        return cls(blanks, wide > narrow)

    def applied(self, text: str) -> str:
        if self.blanks is not None:
            text = SYMBOL.sub(" ", SEAM.sub(" ", text)) if self.blanks else SEAM.sub("", text)
        if self.wide:
            text = NARROW_MARK.sub(lambda found: WIDE[found[1] or found[2] or found[3]], text)
        return bracketed(text)

    def cells(self, rows: Sequence[Sequence[str]]) -> list[list[str]]:
        return [[self.applied(cell) for cell in row] for row in rows]


def bracketed(text: str) -> str:
    """Brackets after Chinese or around it are wide ones, and two belong together; recognisers mix them up."""
    return OPENED.sub(lambda found: f"（{next(said for said in found.groups() if said is not None)}）", text)
