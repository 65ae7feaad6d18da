"""Words as Markdown: bold, italic, code, scripts and links, and nothing else that could be taken for a mark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from .content import Word
from .lines import CJK

ENDS_CJK = re.compile(rf"{CJK.pattern}$")
STARTS_CJK = re.compile(rf"^{CJK.pattern}")
SPECIAL = re.compile(r"[\\`*_<\[~$]")
ESCAPED = re.compile(
    r"""[`*\\](?=\S)|(?<=\S)[`*]      # a mark that touches a letter
    |(?<!\w)_(?=\S)|(?<=\S)_(?!\w)    # inside a word an underscore is none
    |<(?=[a-zA-Z/!?])
    |\[(?=[^\[\]]{0,200}\]\()
    |~(?=~)
    """,
    re.VERBOSE,
)
STARTS_BLOCK = re.compile(r"^(?:(#{1,6}|[-+>])(?=\s)|(\d{1,9})([.)])(?=\s)|(~~~|```))")
RAISED = str.maketrans("0123456789+-=()n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿ")
LOWERED = str.maketrans("0123456789+-=()", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎")
SCRIPTED = re.compile(r"[-+=()0-9n]+")
EDGE_MARKS = re.compile(r"^(\W*)(.*?)(\W*)$", re.DOTALL)
LONG_WORD = re.compile(r"[^\W\d_]{3}|[\u3040-\u9fff\uac00-\ud7af]")
NOTE_MARK = re.compile(r"\(?(\d{1,3}|[*†‡§¶])\)?")


@dataclass(frozen=True, slots=True)
class Plain:
    """Styles that say nothing here: bold in a heading, italics where everything is in italics."""

    bold: bool = False
    italic: bool = False
    mono: bool = False


NOTHING = Plain()


@dataclass(slots=True)
class Run:
    """Words of one style; `glued` to what stands before."""

    words: list[Word]
    text: str
    glued: bool


def render_lines(lines: Iterable[Sequence[Word]], plain: Plain = NOTHING, notes: frozenset[str] = frozenset()) -> str:
    """The lines of one paragraph. *notes* are the numbers of the page's footnotes, to which references lead."""
    runs: list[Run] = []
    last: Word | None = None
    for line in lines:
        for number, word in enumerate(line):
            glued = word.glued if number else last is not None and joins(last, word)
            before = hyphenated(last, word) if last is not None and not number else ""
            if before and runs:
                runs[-1].text += before
            if runs and style_of(runs[-1].words[-1], plain, notes) == style_of(word, plain, notes):
                runs[-1].text += ("" if glued else " ") + word.text
                runs[-1].words.append(word)
            else:
                runs.append(Run([word], word.text, glued and last is not None))
            last = word
    return unambiguous(write_runs(runs, plain, notes))


def render(words: Sequence[Word], plain: Plain = NOTHING, notes: frozenset[str] = frozenset()) -> str:
    return render_lines([words], plain, notes)


def joins(last: Word, word: Word) -> bool:
    """Whether no blank stands between the last word of a line and the first of the next."""
    if last.hyphen:
        return True
    one, other = last.text, word.text
    if ENDS_CJK.search(one) and STARTS_CJK.match(other):
        return True
    if one[-1] in "-\u2010" and one[-2:-1].isalnum():
        return True
    return one[-1] == "/" and one != "/" and other[0].isalnum()


def hyphenated(last: Word, word: Word) -> str:
    """The hyphen at a line's end goes, unless a name or a number follows."""
    return "-" if last.hyphen and not word.text[0].islower() and word.text[0].isalnum() else ""


def style_of(word: Word, plain: Plain, notes: frozenset[str]) -> tuple[bool, bool, bool, int, str, bool]:
    mono = word.mono and not plain.mono
    return (
        word.bold and not plain.bold,
        word.italic and not plain.italic and not mono,
        mono,
        word.script,
        word.uri,
        is_reference(word, notes),
    )


def is_reference(word: Word, notes: frozenset[str]) -> bool:
    found = NOTE_MARK.fullmatch(word.text) if word.script == 1 and notes else None
    return found is not None and found[1] in notes


def write_runs(runs: list[Run], plain: Plain, notes: frozenset[str]) -> str:
    text = ""
    for uri, linked in groupby(enumerate(runs), key=lambda pair: pair[1].words[0].uri):
        part = ""
        group = list(linked)
        for number, run in group:
            follows = runs[number + 1] if number + 1 < len(runs) else None
            written = write_run(run, plain, notes, follows)
            part += ("" if run.glued or not part else " ") + written
        if uri and re.search(r"\w", part):
            part = f"[{part}]({address(uri)})"
        text += ("" if group[0][1].glued or not text else " ") + part
    return text


def address(uri: str) -> str:
    if uri.lower().startswith("file:"):
        uri = uri.rstrip("/").rpartition("/")[2] or "#"  # a path on the author's machine leads nowhere here
    return uri.replace("(", "%28").replace(")", "%29").replace("\\", "%5C")


def write_run(run: Run, plain: Plain, notes: frozenset[str], follows: Run | None) -> str:
    bold, italic, mono, script, _, is_note = style_of(run.words[0], plain, notes)
    text = run.text
    if is_note and (found := NOTE_MARK.fullmatch(text)):
        return f"[^{found[1]}]"
    if mono:
        return code(text)
    if script and SCRIPTED.fullmatch(text):
        return text.translate(RAISED if script > 0 else LOWERED)
    if italic and not LONG_WORD.search(text):
        italic = False  # a variable
    if not (bold or italic) or not re.search(r"\w", text):
        return escape(text)
    # A mark beside a letter must not touch a comma on its inner side, or it is none.
    head, body, tail = EDGE_MARKS.fullmatch(text).groups()  # type: ignore[union-attr]
    if not run.glued or not re.search(r"\W", head):
        head, body = "", head + body
    if follows is None or not follows.glued or not tail:
        body, tail = body + tail, ""
    mark = "***" if bold and italic else "**" if bold else "*"
    return f"{escape(head)}{mark}{escape(body)}{mark}{escape(tail)}"


def code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    blank = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def escape(text: str) -> str:
    return ESCAPED.sub(lambda found: "\\" + found[0], text) if SPECIAL.search(text) else text


def unambiguous(text: str) -> str:
    """A paragraph that begins like another kind of block."""
    found = STARTS_BLOCK.match(text)
    if found is None or found[2]:  # "1. " is a list item for those who read it, too
        return text
    return "\\" + text
