"""What pages say, in the visitor's language: gettext of the standard library over `messages/`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from gettext import GNUTranslations, NullTranslations
from importlib.resources import files
from string import Formatter

from docmill.core import catalogue
from docmill.core.errors import SENTENCES

LANGUAGES = {"en": "English", "de": "Deutsch", "zh": "中文"}
HTML_LANG = {"en": "en", "de": "de", "zh": "zh-Hans"}
GERMAN_MARKS = str.maketrans(",.", ".,")


@dataclass(frozen=True, slots=True)
class Words:
    language: str
    translations: NullTranslations

    def __call__(self, message: str, /, **gaps: object) -> str:
        said = self.translations.gettext(message)
        return said % gaps if gaps else said

    def count(self, one: str, many: str, n: int, **gaps: object) -> str:
        return self.translations.ngettext(one, many, n) % {"n": n, **gaps}

    def number(self, value: float, digits: int = 0) -> str:
        """A number as the language writes it: 2,500.5 or 2.500,5."""
        text = f"{value:,.{digits}f}"
        return text.translate(GERMAN_MARKS) if self.language == "de" else text

    def explain(self, code: str) -> tuple[str, str] | None:
        """The sentence and the next step of a stable code."""
        entry = catalogue.entry(code)
        return entry.text[self.language] if entry else None

    def detail(self, code: str, message: str) -> str:
        """What the message of an error says beyond the sentence of its code, in this language. Empty: nothing.

        Messages are stored in English. The facts are read out of them again and put into the translated sentence.
        """
        sentence = SENTENCES.get(code)
        if sentence is None:
            return message
        if "{" not in sentence:
            return ""
        found = _facts(sentence).fullmatch(message)
        translated = details().get(code, {}).get(self.language)
        return translated.format(**found.groupdict()) if found and translated else message


@cache
def details() -> dict[str, dict[str, str]]:
    """Messages with gaps for facts, by code and language."""
    import tomllib  # here, so that importing this module stays cheap

    return tomllib.loads((files("docmill.console") / "messages" / "details.toml").read_text("utf-8"))


@cache
def _facts(sentence: str) -> re.Pattern[str]:
    """Reads the facts out of a message that was made from this sentence."""
    parts = []
    for text, name, _, _ in Formatter().parse(sentence):
        parts.append(re.escape(text))
        if name:
            parts.append(f"(?P={name})" if f"(?P<{name}>" in "".join(parts) else f"(?P<{name}>.*?)")
    return re.compile("".join(parts), re.DOTALL)


@cache
def words(language: str) -> Words:
    if language == "en":
        return Words("en", NullTranslations())
    with (files("docmill.console") / "messages" / language / "LC_MESSAGES" / "console.mo").open("rb") as file:
        return Words(language, GNUTranslations(file))


def noop(message: str) -> str:
    """Marks a message for the catalogue that is looked up later."""
    return message
