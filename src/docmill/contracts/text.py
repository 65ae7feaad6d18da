"""Text as the contracts keep it: normalised where it names something, cut where it only describes."""

import unicodedata

INVISIBLE = frozenset({"Cf", "Cc", "Cs"})


def clean(raw: str) -> str:
    """NFKC, no invisible characters, no blanks at the ends; cleaning twice changes nothing.

    One pass is not enough: taking an invisible character out can let its neighbours compose.
    """
    if raw.isascii() and raw.isprintable():
        return raw.strip()
    value = raw
    while (tidied := _tidy(value)) != value:
        value = tidied
    return value


def _tidy(value: str) -> str:
    composed = unicodedata.normalize("NFKC", value)
    if composed.isprintable():
        return composed.strip()
    return "".join(char for char in composed if unicodedata.category(char) not in INVISIBLE).strip()


def cut(raw: str, limit: int) -> str:
    """*raw* without NUL and lone surrogates, at most *limit* bytes of UTF-8, ending at a character's border."""
    if "\0" in raw:
        raw = raw.replace("\0", "")
    if raw.isascii():
        return raw[:limit]
    return raw.encode("utf-8", "ignore")[:limit].decode("utf-8", "ignore")
