"""Text as the contracts keep it: normalised where it names something, cut where it only describes."""

import unicodedata
from itertools import groupby

_MANY = 64
INVISIBLE = frozenset({"Cf", "Cc", "Cs"})


def clean(raw: str) -> str:
    """NFKC, no invisible characters, no blanks at the ends; cleaning twice changes nothing.

    One pass is not enough: taking an invisible character out can let its neighbours compose.
    """
    if raw.isascii() and raw.isprintable():
        return raw.strip()
    value = _ordered(raw) if len(raw) > _MANY else raw
    while (tidied := _tidy(value)) != value:
        value = tidied
    return value


def _ordered(raw: str) -> str:
    """*raw*, with its combining marks in their canonical order if it has many.

    Normalising puts them in order, too, but takes quadratic time for that.
    """
    apart = raw.translate({ord(char): unicodedata.normalize("NFKD", char) for char in set(raw)})
    if sum(map(bool, map(unicodedata.combining, apart))) <= _MANY:
        return raw
    runs = groupby(apart, key=lambda char: unicodedata.combining(char) > 0)
    return "".join("".join(sorted(run, key=unicodedata.combining) if marks else run) for marks, run in runs)


def _tidy(value: str) -> str:
    composed = unicodedata.normalize("NFKC", value)
    if composed.isprintable():
        return composed.strip()
    return "".join(char for char in composed if unicodedata.category(char) not in INVISIBLE).strip()


def cut(raw: str, limit: int) -> str:
    """*raw* without NUL and lone surrogates, at most *limit* bytes of UTF-8, ending at a character's border."""
    if len(raw) <= limit and raw.isascii() and "\0" not in raw:
        return raw
    try:
        encoded = raw.encode()
    except UnicodeEncodeError:
        encoded = raw.encode("utf-8", "ignore")
    else:
        if len(encoded) <= limit and b"\0" not in encoded:
            return raw
    return encoded.replace(b"\0", b"")[:limit].decode("utf-8", "ignore")
