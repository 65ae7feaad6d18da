"""Every message of the console is translated, and what is compiled is what is written."""

import re
import sys
from gettext import GNUTranslations
from io import BytesIO
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import messages

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
