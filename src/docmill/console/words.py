"""What pages say, in the visitor's language: gettext of the standard library over `messages/`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from gettext import GNUTranslations, NullTranslations
from importlib.resources import files

from docmill.core import catalogue

LANGUAGES = {"en": "English", "de": "Deutsch", "zh": "中文"}
HTML_LANG = {"en": "en", "de": "de", "zh": "zh-Hans"}


@dataclass(frozen=True, slots=True)
class Words:
    language: str
    translations: NullTranslations

    def __call__(self, message: str, /, **gaps: object) -> str:
        said = self.translations.gettext(message)
        return said % gaps if gaps else said

    def count(self, one: str, many: str, n: int, **gaps: object) -> str:
        return self.translations.ngettext(one, many, n) % {"n": n, **gaps}

    def explain(self, code: str) -> tuple[str, str] | None:
        """The sentence and the next step of a stable code."""
        entry = catalogue.entry(code)
        return entry.text[self.language] if entry else None


@cache
def words(language: str) -> Words:
    if language == "en":
        return Words("en", NullTranslations())
    with (files("docmill.console") / "messages" / language / "LC_MESSAGES" / "console.mo").open("rb") as file:
        return Words(language, GNUTranslations(file))


def noop(message: str) -> str:
    """Marks a message for the catalogue that is looked up later."""
    return message
