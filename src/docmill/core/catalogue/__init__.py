"""Every stable code once, with its meaning and the next step in three languages. One TOML file per area."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType

LANGUAGES = ("en", "de", "zh")


@dataclass(frozen=True, slots=True)
class Entry:
    """What one code means. `text` maps a language to (sentence, next step)."""

    code: str
    area: str
    status: int | None
    retryable: bool
    text: Mapping[str, tuple[str, str]]


def entry(code: str) -> Entry | None:
    return _catalogue().get(code)


def entries() -> tuple[Entry, ...]:
    """All entries, sorted by area and code."""
    return tuple(_catalogue().values())


def suggest(code: str) -> list[str]:
    """Codes that look like *code*, the nearest first."""
    return get_close_matches(code.strip().lower().replace("-", "_"), _catalogue(), n=3, cutoff=0.6)


def best_language(accept: str) -> str:
    """The first of our languages in the order of an `Accept-Language` header; else English."""
    ranked = []
    for place, part in enumerate(accept[:500].split(",")):
        tag, _, parameter = part.strip().partition(";")
        try:
            quality = float(parameter.strip().removeprefix("q=") or 1)
        except ValueError:
            quality = 0.0
        ranked.append((-quality, place, tag.partition("-")[0].lower()))
    return next((tag for _, _, tag in sorted(ranked) if tag in LANGUAGES), "en")


@cache
def _catalogue() -> Mapping[str, Entry]:
    sheets = (item for item in files(__name__).iterdir() if item.name.endswith(".toml"))
    areas = ((sheet.name.removesuffix(".toml"), sheet.read_text("utf-8")) for sheet in sheets)
    return by_code(one for area, toml in areas for one in read(area, toml))


def by_code(found: Iterable[Entry]) -> Mapping[str, Entry]:
    result: dict[str, Entry] = {}
    for one in sorted(found, key=lambda e: (e.area, e.code)):
        if one.code in result:
            raise ValueError(f"{one.code} stands in the areas {result[one.code].area} and {one.area}")
        result[one.code] = one
    return MappingProxyType(result)


def read(area: str, toml: str) -> list[Entry]:
    """Entries of one sheet. `status` and `retryable` at its top hold for entries that say nothing else."""
    import tomllib  # here, so that importing this module stays cheap

    sheet = tomllib.loads(toml)
    status, retryable = sheet.get("status"), sheet.get("retryable", False)
    return [
        Entry(
            code=code,
            area=area,
            status=row.get("status", status),
            retryable=row.get("retryable", retryable),
            text=MappingProxyType({lang: _pair(row[lang]) for lang in LANGUAGES}),
        )
        for code, row in sheet.items()
        if isinstance(row, dict)
    ]


def _pair(texts: list[str]) -> tuple[str, str]:
    sentence, next_step = texts
    return sentence, next_step
