"""Pictures that are stored as plain pixels, taken from the file.

PDFium would pass each pixel through its colour profile and scale it, which takes several times as long. Whatever is not
plain is left to it.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST_FILE = 64 << 20
MOST_PIXELS = 25_000_000
HEAD = 700
OPAQUE = (255, 255)
COLOURS = re.compile(rb"/ColorSpace\s*(?:/Device(?:RGB|Gray)\b|\[\s*/ICCBased\s)")
GREY = re.compile(rb"/ColorSpace\s*/DeviceGray\b")
FLATE = re.compile(rb"/Filter\s*(?:/FlateDecode\b|\[\s*/FlateDecode\s*\])")
MASK = re.compile(rb"/SMask\s+(\d+)\s+(\d+)\s+R\b")
PARAMETERS = re.compile(rb"/DecodeParms\s*(?:\[\s*)?<<([^<>]*)>>(?:\s*\])?")
ODD = re.compile(rb"/(?:Decode|Mask|ImageMask|Matte|DecodeParms|Crypt)\b")
CHANNELS = {1: ("L", 0), 3: ("RGB", 2)}
"""Bytes of a pixel: Pillow's and PNG's names for them."""


@contextlib.contextmanager
def opened(source: Path) -> Iterator[Pixels | None]:
    """The file to take pictures from; nothing if it is too large to search."""
    if not 0 < source.stat().st_size <= LARGEST_FILE:
        yield None
        return
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield Pixels(data)


class Pixels:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data

    def picture(self, packed: bytes) -> Image | None:
        """The picture whose stream holds these bytes, on white where it is transparent; nothing if it is not plain."""
        at = self._data.find(packed) if len(packed) > 64 else -1
        head = self._head(at) if at >= 0 else b""
        if not COLOURS.search(head):
            return None
        mask = MASK.search(head)
        image = unpacked(MASK.sub(b"", head), packed)
        if image is None or mask is None:
            return image
        alpha = self._alpha(int(mask[1]), int(mask[2]))
        if alpha is None or alpha.size != image.size:
            return None
        return image if alpha.getextrema() == OPAQUE else on_white(image, alpha)

    def _head(self, at: int) -> bytes:
        """The dictionary before a stream's bytes."""
        before = self._data[max(0, at - HEAD) : at]
        head, word, _ = before.rpartition(b"stream")
        return head.rpartition(b" obj")[2] if word else b""

    def _alpha(self, number: int, generation: int) -> Image | None:
        at = self._data.rfind(b"\n%d %d obj" % (number, generation))
        start = self._data.find(b"stream", at) if at >= 0 else -1
        end = self._data.find(b"endstream", start + 6) if 0 <= start < at + HEAD else -1
        if end < 0:
            return None
        head = self._data[at:start].rpartition(b" obj")[2]
        first = start + (8 if self._data[start + 6 : start + 8] == b"\r\n" else 7)
        return unpacked(head, self._data[first:end]) if GREY.search(head) else None


def number(head: bytes, name: bytes) -> int:
    found = re.search(rb"/%s\s+(\d{1,7})\b" % name, head)
    return int(found[1]) if found else 0


def unpacked(head: bytes, packed: bytes) -> Image | None:
    """Eight bits a channel, grey or red, green and blue, with or without the filters of PNG."""
    from PIL import Image

    parameters = PARAMETERS.search(head)
    rest = PARAMETERS.sub(b"", head)
    width, height = number(rest, b"Width"), number(rest, b"Height")
    if not FLATE.search(rest) or ODD.search(rest) or number(rest, b"BitsPerComponent") != 8:
        return None
    if not 0 < width * height <= MOST_PIXELS:
        return None
    if parameters and number(parameters[1], b"Predictor") >= 10:
        return from_png(width, height, number(parameters[1], b"Colors") or 1, packed)
    if parameters and number(parameters[1], b"Predictor") > 1:
        return None
    unpacker = zlib.decompressobj()
    try:
        pixels = unpacker.decompress(packed, 4 * width * height + 1)
    except zlib.error:
        return None
    channels, odd = divmod(len(pixels), width * height)
    if odd or channels not in CHANNELS:
        return None
    return Image.frombytes(CHANNELS[channels][0], (width, height), pixels)


def from_png(width: int, height: int, channels: int, packed: bytes) -> Image | None:
    """PDF has the filters from PNG: with a head and an end the stream is one."""
    from PIL import Image

    if channels not in CHANNELS:
        return None
    head = struct.pack(">IIBBBBB", width, height, 8, CHANNELS[channels][1], 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", packed), (b"IEND", b""))
    parts = [struct.pack(">I", len(body)) + kind + body + b"\0\0\0\0" for kind, body in chunks]
    parts = [part[:-4] + struct.pack(">I", zlib.crc32(part[4:-4])) for part in parts]
    try:
        image = Image.open(io.BytesIO(b"\x89PNG\r\n\x1a\n" + b"".join(parts)))
        image.load()
    except (OSError, SyntaxError, ValueError):
        return None
    return image


def on_white(image: Image, alpha: Image) -> Image:
    from PIL import Image

    ground = Image.new(image.mode, image.size, "white")
    ground.paste(image, mask=alpha)
    return ground
