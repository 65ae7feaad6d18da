"""Templates become pages: one Jinja environment per language."""

from __future__ import annotations

import time
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from docmill.console import telling
from docmill.console.visit import THEMES, Visit
from docmill.console.words import HTML_LANG, LANGUAGES, Words, words
from docmill.core.face import iso
from docmill.core.machine import wire_status

NAVIGATION = ("inbox", "tasks", "rules", "deliveries", "workers", "settings", "reference")
ADDRESSES = {"inbox": "/"}


class Renderer:
    def __init__(self, version: str, marks: dict[str, str]) -> None:
        self._version = version
        self._marks = marks

    def render(self, visit: Visit, template: str, **values: Any) -> str:
        environment = _environment(visit.words.language)
        values.setdefault("page", "")
        return environment.get_template(template).render(
            visit=visit,
            themes=THEMES,
            languages=LANGUAGES,
            html_lang=HTML_LANG[visit.words.language],
            now_ms=round(time.time() * 1000),
            version=self._version,
            static=self._static,
            **values,
        )

    def _static(self, name: str) -> str:
        return f"/static/{name}?v={self._marks[name]}"


@cache
def _environment(language: str) -> Environment:
    said = words(language)
    environment = Environment(
        loader=PackageLoader("docmill.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    environment.install_gettext_translations(said.translations, newstyle=True)  # type: ignore[attr-defined]
    environment.globals |= {
        "navigation": [(name, ADDRESSES.get(name, f"/{name}")) for name in NAVIGATION],
        "wire_status": wire_status,
        "explain": said.explain,
        "detail_of": said.detail,
        "status_word": partial(telling.status_word, said),
        "status_sentence": partial(telling.status_sentence, said),
        "event_sentence": partial(telling.event_sentence, said),
        "block_word": partial(telling.block_word, said),
        "stage_word": partial(telling.stage_word, said),
        "state_word": partial(telling.state_word, said),
    }
    environment.filters |= {
        "time": time_tag,
        "size": partial(size, said),
        "duration": partial(duration, said),
        "number": said.number,
        "iso": iso,
    }
    return environment


def time_tag(ms: int | None) -> str:
    """A moment, in UTC; a script says it in the reader's own words."""
    if not ms:
        return Markup('<span class="faint">–</span>')
    stamp = iso(ms)
    return Markup('<time datetime="{}">{} UTC</time>').format(stamp, stamp[:16].replace("T", " "))


def size(said: Words, count: int | None) -> str:
    if count is None:
        return "–"
    number = float(count)
    for unit in ("B", "KB", "MB"):
        if number < 1000:
            return f"{said.number(number, 0 if unit == 'B' or number >= 100 else 1)} {unit}"
        number /= 1000
    return f"{said.number(number, 0 if number >= 100 else 1)} GB"


def duration(said: Words, ms: int | None) -> str:
    if ms is None:
        return "–"
    if ms < 1000:
        return f"{ms} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{said.number(seconds, 1)} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{said.number(minutes)} min" + (f" {rest} s" if rest else "")
