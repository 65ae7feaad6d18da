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
    try:
        encoded = raw.encode()
    except UnicodeEncodeError:
        encoded = raw.encode("utf-8", "ignore")
    else:
        if len(encoded) <= limit and b"\0" not in encoded:
            return raw
    return encoded.replace(b"\0", b"")[:limit].decode("utf-8", "ignore")
