"""What is a heading, and how deep it lies: by size, weight, numbering and bookmarks, over the whole document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .blocks import Block
from .content import PageContent
from .inline import Plain
from .paragraphs import Paragraph

CAPTION = re.compile(
    r"(?:table|tab\.|figure|fig\.|chart|diagram|abbildung|abb\.|tabelle|图|表|source|quelle)\s*(?:\d|[a-z]\b|:)",
    re.IGNORECASE,
)
MENTION = re.compile(r"[^\W\d_]{1,12}\.?\s?\d{1,4}(?:\.\d{1,4}){0,3}[a-z]?\s[^\W\d_]")
DIGITS = re.compile(r"\d+")
NUMBERED = re.compile(r"\d{1,2}(?:\.\d{1,3})*\.?\s")
ENUMERATED = re.compile(r"^\(?[a-z]{1,3}[.)]\s")
REAL_WORD = re.compile(r"[^\W\d_]{3,}|[\u0590-\u08ff\u3040-\u9fff\uac00-\ud7af]")
MARKS = re.compile(r"[*_`\\]")
AUTHORS = re.compile(r"\w[∗†‡§]+(?:,|\s|$)")
ABSTRACT = re.compile(r"\W*(?:abstract|summary|zusammenfassung|kurzfassung|摘\s*要)\W*", re.IGNORECASE)
ENTRY = re.compile(r"(?:  |[.…]{2} ?|[.…] [.…] ?)(?:\d{1,4}|[ivxlc]{1,6})$", re.IGNORECASE)
MIN_ENTRIES = 5
RUN_IN = re.compile(r"[a-z]{2}\.\s+[A-Z]")
"""A heading that shares its line with the paragraph that follows."""
MAX_WORDS = 24
MAX_LETTERS = 200
LARGE = 1.12
"""Times the size of the text."""
SAME_SIZE = 0.04
MAX_LEVEL = 6


@dataclass(slots=True)
class Profile:
    """What is usual in a document: the size of its text."""

    body: float = 10.0
    is_typed: bool = False
    """Most of it is in a font of fixed pitch, which then means nothing."""


def profile_of(pages: Iterable[PageContent]) -> Profile:
    sizes: Counter[float] = Counter()
    typed: Counter[float] = Counter()
    for page in pages:
        for word in page.words:
            (typed if word.mono else sizes)[round(word.size * 2) / 2] += len(word.text)
    is_typed = typed.total() > 6 * sizes.total()
    usual = (typed if is_typed else sizes).most_common(1)
    return Profile(usual[0][0] or 10.0 if usual else 10.0, is_typed)


def is_styled_heading(part: Paragraph, body: float, plain: Plain) -> bool:
    """Larger than the text, or all bold where the text is not."""
    lines = part.lines
    text = part.text
    if len(lines) > 4 or len(text) > MAX_LETTERS:
        return False
    if part.first.size > LARGE * body:
        return text[-1] not in ",;"
    if part.first.size < 0.9 * body:
        return False
    if all(line.bold for line in lines) and not plain.bold:
        # "Steps:" above its steps is one; a label with a colon is long, or stands beside its value.
        return len(text) < 120 and (text[-1] not in ".,;:" or (text[-1] == ":" and len(text.split()) <= 8))
    return False


def is_caption(text: str) -> bool:
    """A label with its number begins a caption, but also a sentence that mentions the figure ("Figure 1 shows ..."):
    there a verb in small letters follows the number, and the sentence ends with a full stop."""
    is_mention = (found := MENTION.match(text)) is not None and found[0][-1].islower() and text.endswith(".")
    return CAPTION.match(text) is not None and not is_mention


def is_heading(text: str, *, is_large: bool = False) -> bool:
    """Large or bold letters alone do not make one: sentences, captions, formulas and lists of names are none."""
    plain = MARKS.sub("", text).strip()
    words = plain.split()
    if not REAL_WORD.search(plain) or len(words) > MAX_WORDS or CAPTION.match(plain) or plain.count(",") > 3:
        return False
    if AUTHORS.search(plain) or (RUN_IN.search(plain) and plain[-1].islower()):
        return False
    if ENUMERATED.match(plain) and len(words) > 6:
        return False
    if NUMBERED.match(plain):
        return plain[-1] not in ",;" and (plain[-1] not in ".:" or len(words) <= 12)
    if plain[0].islower() and plain[-1] in ".,;":
        return False  # the rest of a sentence
    if not is_large and len(words) > 9 and plain[-1].islower():
        return False
    return not (len(words) > 12 and plain[-1] in ".,;")


def ladder_of(pages: Iterable[PageContent], profile: Profile) -> list[float]:
    """The sizes in which headings are set, the largest first, for a document of which not all pages are known."""
    sizes = {round(word.size, 1) for page in pages for word in page.words if word.size > LARGE * profile.body}
    return rungs(sizes)


def rungs(sizes: Iterable[float]) -> list[float]:
    """Sizes that are nearly the same count once."""
    found: list[float] = []
    for size in sorted(sizes, reverse=True):
        if not found or size < found[-1] * (1 - SAME_SIZE):
            found.append(size)
    return found


def set_levels(
    pages: Sequence[Sequence[Block]], profile: Profile, bookmarks: dict[str, int], ladder: list[float] | None = None
) -> None:
    """Levels by rank of size over all pages; bold ones of the text's size come last. Bookmarks know better."""
    found = [block for page in pages for block in page if block.kind == "heading"]
    styled = [block for block in found if block.size]
    ranks = rungs(block.size for block in styled if block.size > LARGE * profile.body) if ladder is None else ladder
    for block in styled:
        rank = next((number for number, size in enumerate(ranks) if block.size >= size * (1 - SAME_SIZE)), len(ranks))
        block.level = min(MAX_LEVEL, rank + 1)
    set_numbered_levels(styled)
    set_title_apart(styled)
    for block in found if bookmarks else ():
        if level := bookmarks.get(letters(block.text)):
            block.level = level


def set_numbered_levels(found: Sequence[Block]) -> None:
    """1.2 lies under 1, whatever their sizes say."""
    depths: dict[int, int] = {}
    for block in found:
        if (number := NUMBERED.match(block.text)) is None:
            continue
        depth = len(number[0].strip().rstrip(".").split("."))
        if depth not in depths:
            above = max((level for other, level in depths.items() if other < depth), default=0)
            depths[depth] = max(block.level, above + 1)
        block.level = min(MAX_LEVEL, depths[depth])


def set_title_apart(found: Sequence[Block]) -> None:
    """A title in the size of the sections under it is still above them, unless it is one of a row of numbers."""
    if not found or found[0].level != 1 or NUMBERED.match(found[0].text):
        return
    beside = [block.text for block in found[1:] if block.level == 1]
    is_series = DIGITS.sub("#", found[0].text) in {DIGITS.sub("#", text) for text in beside}
    if beside and not is_series and not any(map(NUMBERED.match, beside)):
        for block in found[1:]:
            block.level = min(MAX_LEVEL, block.level + 1)


def without_names(blocks: list[Block]) -> list[Block]:
    """Between a paper's authors and its abstract stand where they work and how to reach them, not headings."""
    first = next((number for number, block in enumerate(blocks) if AUTHORS.search(block.text)), len(blocks))
    last = next((number for number, block in enumerate(blocks) if ABSTRACT.fullmatch(block.text)), 0)
    for block in blocks[first:last]:
        if block.kind == "heading":
            block.kind = "text"
    return blocks


def without_entries(blocks: list[Block]) -> list[Block]:
    """In a table of contents only its title is a heading; the titles of parts are entries."""
    entries = sum(ENTRY.search(line.rstrip()) is not None for block in blocks for line in block.text.split("\n"))
    if entries >= MIN_ENTRIES and 2 * entries > sum(block.text.count("\n") + 1 for block in blocks):
        first = next((block for block in blocks if block.kind == "heading"), None)
        for block in blocks:
            if block.kind == "heading" and block is not first:
                block.kind = "text"
    return blocks


def letters(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter.isalnum())
