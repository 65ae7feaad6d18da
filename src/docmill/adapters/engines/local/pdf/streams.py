"""Compressed streams carry a checksum. PDFium shows what it can of a hurt one and says nothing; we say so."""

from __future__ import annotations

import base64
import mmap
import re
import zlib
from pathlib import Path

from .survey import Source

LARGEST_FILE = 16 << 20
MOST_BYTES = 2 << 20
"""Inflated, of one document: enough for the text of some hundred pages, and a few milliseconds."""
HEAD = 400
STREAM = re.compile(rb"stream\r?\n")
"""Also the end of one: to look behind at every byte takes thirty times as long as to look at what was found."""
IMAGE = re.compile(rb"/Subtype\s*/Image")
CODED = re.compile(rb"/Filter\s*(?:/FlateDecode\b|\[\s*(/ASCII85Decode\s*)?/FlateDecode\s*\])")
FONT = re.compile(rb"/Length1|/Subtype\s*/(?:OpenType|CIDFontType0C|Type1C)\b")
OBJECTS = re.compile(rb"/ObjStm\b")
HIDING = (b"/Type3", b"/OCG")
LONGEST_LETTERS = 200_000
"""Bytes of a stream written as letters, which take long to turn back."""


def hurt(source: Source, *, images: bool) -> int:
    """How many streams of text, or also of pictures, do not come out as they went in."""
    if isinstance(source, Path) and source.stat().st_size > LARGEST_FILE:
        return 0
    data = source.read_bytes() if isinstance(source, Path) else source
    if b"/Encrypt" in data:
        return 0
    found, left = 0, MOST_BYTES
    for stream in STREAM.finditer(data):
        if data.endswith(b"end", 0, stream.start()):
            continue
        head = data[max(0, stream.start() - HEAD) : stream.start()].rpartition(b" obj")[2]
        # A font program is larger than all text together, and its letters are seen by nobody who reads words.
        coded = CODED.search(head)
        if coded is None or FONT.search(head) or (IMAGE.search(head) and not images):
            continue
        if left <= 0:
            break
        end = data.find(b"endstream", stream.end())
        packed = data[stream.end() : end if end >= 0 else len(data)]
        if coded[1] and len(packed) > LONGEST_LETTERS:
            continue
        whole, size = inflates(packed, left, letters=bool(coded[1]))
        found, left = found + (not whole), left - size
    return found


def may_hide_letters(source: Source) -> bool:
    """Whether liteparse may leave letters out: those of a drawn font (Type 3) may have no height, and what lies in one
    layer may have words of another over it."""
    if isinstance(source, bytes):
        return names_hidden(source)
    if not 0 < source.stat().st_size <= LARGEST_FILE:
        return True
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return names_hidden(data)


def names_hidden(data: bytes | mmap.mmap) -> bool:
    """In the open, or among the objects that are packed into streams; true if they cannot be unpacked."""
    if any(data.find(name) >= 0 for name in HIDING):
        return True
    left = MOST_BYTES
    for found in OBJECTS.finditer(data):
        start = STREAM.search(data, found.end(), found.end() + HEAD)
        end = data.find(b"endstream", found.end())
        if start is None or end < 0 or left <= 0:
            return True
        try:
            objects = zlib.decompressobj().decompress(data[start.end() : end], left)
        except zlib.error:
            return True
        left -= len(objects)
        if any(name in objects for name in HIDING):
            return True
    return False


def inflates(data: bytes, limit: int, *, letters: bool) -> tuple[bool, int]:
    """Whether the checksum holds, as far as we look, and how much came out."""
    unpacker = zlib.decompressobj()
    try:
        packed = base64.a85decode(data.partition(b"~>")[0]) if letters else data
        size = len(unpacker.decompress(packed, limit))
    except (zlib.error, ValueError):
        return False, len(data)
    return unpacker.eof or size >= limit, size
