"""Every stable code once, with its meaning and the next step in three languages. One TOML file per area."""

from __future__ import annotations

from collections.abc import Mapping
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
    return _by_code().get(code)


def entries() -> tuple[Entry, ...]:
    """All entries, sorted by area and code."""
    return tuple(_by_code().values())


def suggest(code: str) -> list[str]:
    """Codes that look like *code*, the nearest first."""
    return get_close_matches(code.strip().lower().replace("-", "_"), _by_code(), n=3, cutoff=0.6)


@cache
def _by_code() -> Mapping[str, Entry]:
    found: dict[str, Entry] = {}
    for one in sorted(_read_all(), key=lambda e: (e.area, e.code)):
        if one.code in found:
            raise ValueError(f"{one.code} stands in the areas {found[one.code].area} and {one.area}")
        found[one.code] = one
    return MappingProxyType(found)


def _read_all() -> list[Entry]:
    sheets = (item for item in files(__name__).iterdir() if item.name.endswith(".toml"))
    return [one for sheet in sheets for one in read(sheet.name.removesuffix(".toml"), sheet.read_text("utf-8"))]


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
