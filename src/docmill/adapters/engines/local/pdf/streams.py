"""Streams that cannot be decoded. PDFium shows what it can of a corrupt one and says nothing; we say so."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from ..damage import is_corrupt_jpeg
from .survey import Source

MAX_FILE_BYTES = 16 << 20
MAX_INFLATED_BYTES = 2 << 20
"""Of one document: enough for the text of some hundred pages, and a few milliseconds."""
MAX_JPEG_BYTES = 16 << 20
DICTIONARY_BYTES = 400
STREAM = re.compile(rb"stream\r?\n")
IMAGE = re.compile(rb"/Subtype\s*/Image")
FILTER = re.compile(rb"/Filter\s*\[?\s*/(Flate|DCT)Decode\s*[\]/>\r\n]")
"""The only filter of a stream, or its first."""
FONT = re.compile(rb"/Length1|/Subtype\s*/(?:OpenType|CIDFontType0C|Type1C)\b")


def count_corrupt(source: Source, *, images: bool) -> int:
    """How many streams of text, or also of pictures, do not come out as they went in."""
    if isinstance(source, Path) and source.stat().st_size > MAX_FILE_BYTES:
        return 0
    data = source.read_bytes() if isinstance(source, Path) else source
    if b"/Encrypt" in data:
        return 0
    found, left, left_jpeg = 0, MAX_INFLATED_BYTES, MAX_JPEG_BYTES if images else 0
    for stream in STREAM.finditer(data):
        if data.endswith(b"end", 0, stream.start()):
            continue
        head = data[max(0, stream.start() - DICTIONARY_BYTES) : stream.start()].rpartition(b" obj")[2]
        named, is_image = FILTER.search(head), IMAGE.search(head) is not None
        # A font program is larger than all text together, and its letters are read without it.
        if named is None or FONT.search(head) or (is_image and not images):
            continue
        end = data.find(b"endstream", stream.end())
        packed = data[stream.end() : end if end >= 0 else len(data)]
        if named[1] == b"Flate" and left > 0:
            is_whole, size = inflate(packed, left)
            found, left = found + (not is_whole), left - size
        elif named[1] == b"DCT" and left_jpeg > 0:
            found, left_jpeg = found + is_corrupt_jpeg(packed), left_jpeg - len(packed)
    return found


def inflate(data: bytes, limit: int) -> tuple[bool, int]:
    """Whether the data comes out, as far as we look, and how much of it did."""
    unpacker = zlib.decompressobj()
    try:
        size = len(unpacker.decompress(data, limit))
    except zlib.error:
        return False, len(data)
    return unpacker.eof or size >= limit, size
