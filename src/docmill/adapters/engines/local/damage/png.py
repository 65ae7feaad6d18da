"""PNGs that were hurt. Each chunk has a checksum, but Pillow does not look at that of the picture's data."""

from __future__ import annotations

from zlib import crc32

SIGNATURE, END = 8, b"IEND"


def is_garbled(data: bytes) -> bool:
    """Whether a chunk that is needed to show the picture is not what was written."""
    at = SIGNATURE
    while at + 12 <= len(data):
        name, end = data[at + 4 : at + 8], at + 8 + int.from_bytes(data[at : at + 4])
        is_needed = name[:1].isupper()
        if is_needed and crc32(memoryview(data)[at + 4 : end]) != int.from_bytes(data[end : end + 4]):
            return True
        if name == END:
            break
        at = end + 4
    return False
