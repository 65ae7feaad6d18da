"""Base64 payloads, read in pieces so that no second copy of a large one ever exists."""

from collections.abc import Iterator
from hashlib import sha256

import pybase64

_CHUNK = 1 << 18  # a multiple of 4, so that every piece but the last decodes on its own


class Broken(ValueError):
    """The text is not base64 in the standard alphabet with its padding."""


def pieces(encoded: str | memoryview) -> Iterator[bytes]:
    """The decoded bytes of *encoded*, piece by piece."""
    for start in range(0, len(encoded), _CHUNK):
        piece = encoded[start : start + _CHUNK]
        try:
            decoded = pybase64.b64decode(piece, validate=True)
        except ValueError:
            raise Broken("it has a character outside the alphabet, or its padding is wrong") from None
        if start + len(piece) < len(encoded) and len(decoded) != _CHUNK // 4 * 3:
            raise Broken("padding stands before its end")
        yield decoded


def decoded_size(encoded: str | memoryview) -> int:
    """How many bytes *encoded* stands for; raises `Broken` if it is not base64."""
    return sum(map(len, pieces(encoded)))


def decoded_digest(encoded: str | memoryview) -> tuple[int, str]:
    """Size and SHA-256 of the bytes *encoded* stands for."""
    size, digest = 0, sha256()
    for piece in pieces(encoded):
        size += len(piece)
        digest.update(piece)
    return size, digest.hexdigest()
