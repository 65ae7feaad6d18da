"""JSON Pointers (RFC 6901): `/invoices/0/a~1b` names one value inside another."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from docmill.core.errors import Invalid, NotFound

MAX_LENGTH: Final = 4096
SHOWN: Final = 200

_POINTER = re.compile("(?:/(?:[^/~\0\ud800-\udfff]|~[01])*)*")
_INDEX = re.compile("0|[1-9][0-9]{0,17}")

Pointer = tuple[str, ...]


def parse(text: str) -> Pointer:
    """The names and indices on the way; the empty text is the whole value. Else Invalid `pointer_invalid`."""
    if len(text) > MAX_LENGTH or not _POINTER.fullmatch(text):
        raise Invalid("pointer_invalid", pointer=shown(text))
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:])


def render(tokens: Iterable[str]) -> str:
    return "".join(f"/{token.replace('~', '~0').replace('/', '~1')}" for token in tokens)


def resolve(value: Any, tokens: Pointer) -> Any:
    """The value at the pointer. Missing: NotFound `pointer_not_found`."""
    for token in tokens:
        match value:
            case dict() if token in value:
                value = value[token]
            case list() if (index := index_of(token)) is not None and index < len(value):
                value = value[index]
            case _:
                raise NotFound("pointer_not_found", pointer=shown(render(tokens)))
    return value


def index_of(token: str) -> int | None:
    """The array index that a token spells. `-`, the place after the last element, never has a value."""
    return int(token) if _INDEX.fullmatch(token) else None


def shown(text: str) -> str:
    """A pointer as a message may carry it: not endless, and encodable."""
    tidy = text.encode("utf-8", "replace").decode()
    return tidy if len(tidy) <= SHOWN else f"{tidy[:SHOWN]}…"
