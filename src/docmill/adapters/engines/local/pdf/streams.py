"""Streams that do not come out as they went in. PDFium shows what it can of a hurt one and says nothing; we say so.

Compressed ones carry a checksum, JPEGs lack data, a filter that nobody knows was once another one, and a stream whose
dictionary does not begin as one is found by nobody.
"""

from __future__ import annotations

import base64
import mmap
import re
import zlib
from functools import lru_cache
from pathlib import Path

from ..damage import jpeg
from .survey import Source

LARGEST_FILE = 16 << 20
MOST_BYTES = 2 << 20
"""Inflated, of one document: enough for the text of some hundred pages, and a few milliseconds."""
HEAD = 400
STREAM = re.compile(rb"stream\r?\n")
"""Also the end of one: to look behind at every byte takes thirty times as long as to look at what was found."""
IMAGE = re.compile(rb"/Subtype\s*/Image")
SIDES = re.compile(rb"/(Width|Height)\s+(\d{1,6})\b(?!\s+\d+\s+R)")
FILTER = re.compile(rb"/Filter\s*(\[[^\]]*|/[^\s()<>\[\]{}/%]*)")
NAME = re.compile(rb"/([^\s()<>\[\]{}/%]*)")
ESCAPED = re.compile(rb"#([0-9A-Fa-f]{2})")
LETTERS, FLATE, JPEG = b"ASCII85Decode", b"FlateDecode", b"DCTDecode"
SHORT = {
    b"AHx": b"ASCIIHexDecode",
    b"A85": LETTERS,
    b"LZW": b"LZWDecode",
    b"Fl": FLATE,
    b"RL": b"RunLengthDecode",
    b"CCF": b"CCITTFaxDecode",
    b"DCT": JPEG,
}
KNOWN = frozenset({*SHORT.values(), b"JBIG2Decode", b"JPXDecode", b"Crypt"})
FONT = re.compile(rb"/Length1|/Subtype\s*/(?:OpenType|CIDFontType0C|Type1C)\b")
DICTIONARY = re.compile(rb"(?:\s|%[^\r\n]*+[\r\n])*+<<")
"""After what may stand before it: blanks and comments."""
OBJECTS = re.compile(rb"/ObjStm\b")
HIDING = (b"/Type3", b"/OCG")
LONGEST_LETTERS = 200_000
"""Bytes of a stream written as letters, which take long to turn back."""
MOST_JPEG = 16 << 20
"""Bytes of JPEGs, of one document, and sixteen times as many pixels: some thirty scans, in a tenth of the time
that it took to read them."""
PIXELS_A_BYTE = 16


def hurt(source: Source, *, images: bool) -> int:
    """How many streams of text, or also of pictures, do not come out as they went in."""
    if isinstance(source, Path) and source.stat().st_size > LARGEST_FILE:
        return 0
    data = source.read_bytes() if isinstance(source, Path) else source
    if b"/Encrypt" in data:
        return 0
    found, left, left_jpeg = 0, MOST_BYTES, MOST_JPEG if images else 0
    for stream in STREAM.finditer(data):
        if data.endswith(b"end", 0, stream.start()):
            continue
        _, begun, head = data[max(0, stream.start() - HEAD) : stream.start()].rpartition(b" obj")
        # A font program is larger than all text together, and its letters are seen by nobody who reads words.
        named, is_image = FILTER.search(head), IMAGE.search(head) is not None
        if FONT.search(head) or (is_image and not images):
            continue
        if named is None:
            found += is_image and lacks_pixels(head, len(packed(data, stream.end())))
            continue
        if left <= 0 and left_jpeg <= 0:
            break
        coded = filters(named[1])
        if not KNOWN.issuperset(coded) or (begun and not DICTIONARY.match(head)):
            found += 1
            continue
        letters = coded[:1] == (LETTERS,)
        inner = coded[letters : letters + 1]
        if inner == (FLATE,) and left > 0:
            whole, size = inflates(packed(data, stream.end()), left, letters=letters)
            found, left = found + (not whole), left - size
        elif inner == (JPEG,) and left_jpeg > 0:
            whole, size = decodes(packed(data, stream.end()), letters=letters)
            found, left_jpeg = found + (not whole), left_jpeg - size
    return found


def lacks_pixels(head: bytes, size: int) -> bool:
    """Whether a picture without a filter, which it may have lost, has fewer bytes than one colour takes."""
    sides = {name: int(number) for name, number in SIDES.findall(head)}
    return size < sides.get(b"Width", 0) * sides.get(b"Height", 0) // 8


def packed(data: bytes, start: int) -> bytes:
    end = data.find(b"endstream", start)
    return data[start : end if end >= 0 else len(data)]


@lru_cache(64)
def filters(written: bytes) -> tuple[bytes, ...]:
    """The names in a name or a list, without those that stand elsewhere: /Fl#61teDecode and /Fl are /FlateDecode."""
    names = (ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), name) for name in NAME.findall(written))
    return tuple(SHORT.get(name, name) for name in names)


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
    if letters and len(data) > LONGEST_LETTERS:
        return True, 0
    unpacker = zlib.decompressobj()
    try:
        size = len(unpacker.decompress(from_letters(data) if letters else data, limit))
    except (zlib.error, ValueError):
        return False, len(data)
    return unpacker.eof or size >= limit, size


def decodes(data: bytes, *, letters: bool) -> tuple[bool, int]:
    """Whether a JPEG has all of its data, as far as we look, and what it took to see that, in bytes."""
    if letters and len(data) > LONGEST_LETTERS:
        return True, 0
    try:
        lacks, pixels = jpeg.lacks_data(from_letters(data) if letters else data)
    except ValueError:
        return False, len(data)
    return not lacks, max(len(data), pixels // PIXELS_A_BYTE)


def from_letters(data: bytes) -> bytes:
    return base64.a85decode(data.partition(b"~>")[0])
