"""Keys as paths. Distinct keys have distinct paths, and every path can be read back as its key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, unquote

from docmill.core.keys import check_key

LONGEST_NAME: Final = 200


class Place:
    """Where a key lies: names of folders below the root, and a file name."""

    __slots__ = ("folders", "name")

    def __init__(self, names: tuple[str, ...]) -> None:
        *folders, self.name = names
        self.folders = tuple(folders)


def place_of(key: str) -> Place:
    return Place(names_of(check_key(key)))


def names_of(key: str) -> tuple[str, ...]:
    return tuple(name for segment in key.split("/") for name in _parts(segment))


def _parts(segment: str) -> Iterator[str]:
    """One name, or several if the segment is too long for one; all but the last then end in '~'."""
    escaped = quote(segment, safe="@+=, ()").replace("~", "%7E")
    if escaped.startswith("."):
        escaped = "%2E" + escaped[1:]
    while len(escaped) > LONGEST_NAME:
        yield escaped[:LONGEST_NAME] + "~"
        escaped = escaped[LONGEST_NAME:]
    yield escaped


def key_of(names: tuple[str, ...]) -> str:
    """The key whose path these names are."""
    return unquote(re.sub(r"~(/|$)", "", "/".join(names)))
