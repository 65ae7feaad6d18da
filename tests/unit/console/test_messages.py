"""Every message of the console is translated, and what is compiled is what is written."""

import re
import sys
from gettext import GNUTranslations
from io import BytesIO
from pathlib import Path

import pytest

from docmill.console.words import details, words
from docmill.core import catalogue
from docmill.core.errors import SENTENCES

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import messages

GAP = re.compile(r"\{(\w+)\}")
PLACE = re.compile(r"%\(\w+\)s|%%")


@pytest.mark.parametrize("language", messages.LANGUAGES)
def test_every_message_is_translated(language):
    assert [] == messages.missing(language)


@pytest.mark.parametrize("language", messages.LANGUAGES)
def test_what_is_compiled_is_what_is_written(language):
    compiled = messages.po(language).with_suffix(".mo").read_bytes()

    fresh = GNUTranslations(BytesIO(messages.compiled(messages.kept(language))))
    kept = GNUTranslations(BytesIO(compiled))

    assert [fresh._catalog[key] for key in fresh._catalog if key] == [
        kept._catalog[key] for key in fresh._catalog if key
    ]
    assert fresh._catalog.keys() == kept._catalog.keys()


@pytest.mark.parametrize("language", messages.LANGUAGES)
def test_translations_fill_the_same_gaps(language):
    for message in messages.kept(language):
        if message.id:
            ids = message.id if isinstance(message.id, tuple) else (message.id,)
            strings = message.string if isinstance(message.string, tuple) else (message.string,)
            for string in strings:
                assert sorted(set(PLACE.findall(ids[-1]))) == sorted(set(PLACE.findall(string))), message.id


def texts(language: str) -> list[str]:
    """Everything that the console says in a language: its messages, and the explanations of codes."""
    found = [str(one) for message in messages.kept(language) if message.id for one in messages._texts(message.string)]
    found += [part for entry in catalogue.entries() for part in entry.text[language]]
    return found + [one[language] for one in details().values()]


RETIRED = ("mend", "told", "hurt", "whoever", "nobody", "somebody", "anybody", "anew", "house", "by itself", "silent")


def test_english_messages_are_plain_product_language():
    said = [one for message in messages.collected() for one in messages._texts(message.id) if message.id]

    assert [] == [one for one in said if re.search(rf"\b({'|'.join(RETIRED)})\b", str(one), re.IGNORECASE)]


def test_german_says_callback_and_addresses_nobody_as_du():
    unwanted = re.compile(r"Rückruf|\b(du|dich|dir|dein\w*|euch|euer)\b|\b(Haus|Hauses)\b", re.IGNORECASE)

    assert [] == [one for one in texts("de") if unwanted.search(one)]


def test_chinese_has_one_word_for_worker_and_no_blanks_inside():
    other = re.compile(r"工作者|工作器|工作进程|执行器|影子|孪生")
    blank = re.compile(r"[\u4e00-\u9fff，。：；？！、（）“”] +[\u4e00-\u9fff，。：；？！、（）“”]")
    # A stage has a Chinese name, so that its gap stands inside Chinese text.
    gap = re.compile(r"%\(stage\)s | %\(stage\)s")

    assert [] == [one for one in texts("zh") if other.search(one) or blank.search(one) or gap.search(one)]


def test_every_message_with_facts_can_be_said_in_every_language():
    gaps = {code: set(GAP.findall(text)) for code, text in SENTENCES.items() if "{" in text}

    assert gaps.keys() == details().keys()
    for code, names in gaps.items():
        for language in messages.LANGUAGES:
            assert names == set(GAP.findall(details()[code][language])), (code, language)


@pytest.mark.parametrize(
    ("language", "code", "message", "detail"),
    [
        ("de", "parse_timeout", "Parsing took longer than 60 s and was stopped.", "länger als 60 s"),
        ("zh", "document_too_many_pages", "The document has 9 pages; the limit is 3.", "文档有 9 页，上限为 3 页。"),
        ("en", "parse_timeout", "Parsing took longer than 60 s and was stopped.", "longer than 60 s"),
        ("de", "parse_timeout", "A sentence of an older version.", "A sentence of an older version."),
        ("de", "made_up", "Whatever a worker said.", "Whatever a worker said."),
    ],
)
def test_the_facts_of_a_stored_message_are_said_in_the_visitors_language(language, code, message, detail):
    assert detail in words(language).detail(code, message)


def test_a_message_without_facts_is_not_said_twice():
    assert "" == words("de").detail("document_encrypted", SENTENCES["document_encrypted"])
