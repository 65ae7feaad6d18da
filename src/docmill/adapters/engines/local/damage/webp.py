"""WebPs that were hurt. They hold no checksum, and libwebp is content as soon as the picture is full.

But their data ends where the picture does, and a bit that is wrong garbles all that follows it: the picture is full too
late, which libwebp tells, or too early. Of a sound one the last bytes cannot be spared.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping

from PIL import Image

from ..guards import UNDECODABLE
from .vp8 import Frame

MOST_PIXELS = 50_000_000
"""Of one picture: it is decoded again for each of its parts, of which there are mostly two. One made for it can want
eight times for each of ten; the limit of time holds for that, too."""
LOSSY, LOSSLESS, ALPHA, ANIMATED, EXTENDED = b"VP8 ", b"VP8L", b"ALPH", b"ANMF", b"VP8X"
FRAME_HEAD = 16
"""Bytes before the chunks of a picture in an animation."""
SPARE = 4
"""Bytes. Without one, two, three or four of them at the end a sound part cannot be decoded; seldom with each of these
numbers, since what is read instead may happen to fit. Writers push the last bits out with up to 17 more."""
Chunks = Mapping[bytes, bytes]


def is_garbled(data: bytes) -> bool:
    """Whether data is left over where the picture is full. An animation counts as its first picture."""
    return any(map(is_spared, endings(first_picture(data))))


def is_spared(shortened: Iterable[Chunks]) -> bool:
    """Whether the picture is as full without the end. A sound one fails mostly at once, without all four bytes."""
    return all(decodes(packed(chunks)) for chunks in shortened)


def first_picture(data: bytes) -> Chunks:
    inside = first_chunks(data[12 : 8 + int.from_bytes(data[4:8], "little")])
    return first_chunks(inside[ANIMATED][FRAME_HEAD:]) if ANIMATED in inside else inside


def first_chunks(data: bytes) -> Chunks:
    found: dict[bytes, bytes] = {}
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        found.setdefault(data[at : at + 4], data[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
    return found


def endings(picture: Chunks) -> Iterator[Iterable[Chunks]]:
    """For each part of the picture all ways to shorten it."""
    if LOSSY in picture:
        yield from lossy_endings(picture[LOSSY], picture.get(ALPHA, b""))
    elif len(picture.get(LOSSLESS, b"")) > SPARE and is_small(lossless_size(picture[LOSSLESS])):
        yield ({LOSSLESS: less} for less in shortened(picture[LOSSLESS]))


def lossy_endings(data: bytes, alpha: bytes) -> Iterator[Iterable[Chunks]]:
    frame = Frame.parse(data)
    if not is_small(frame.size):
        return
    for index, part in enumerate(frame.parts):
        if len(part) > SPARE:
            yield (frame_of(frame, index, less) for less in shortened(part))
    if len(alpha) > SPARE:
        yield ({EXTENDED: canvas(frame.size), ALPHA: less, LOSSY: data} for less in shortened(alpha))


def frame_of(frame: Frame, index: int, part: bytes) -> Chunks:
    return {LOSSY: frame.having(index, part).packed()}


def lossless_size(data: bytes) -> tuple[int, int]:
    sides = int.from_bytes(data[1:5], "little")
    return (sides & 0x3FFF) + 1, (sides >> 14 & 0x3FFF) + 1


def is_small(size: tuple[int, int]) -> bool:
    return 0 < size[0] * size[1] <= MOST_PIXELS


def shortened(part: bytes) -> Iterator[bytes]:
    """Zeros at the end may be padding, or data like other bytes: a part is sound if either makes sense."""
    for kept in dict.fromkeys([part.rstrip(b"\0"), part]):
        for spared in range(SPARE, 0, -1):
            yield kept[:-spared]


def canvas(size: tuple[int, int]) -> bytes:
    has_alpha = 0x10
    return has_alpha.to_bytes(4, "little") + b"".join((side - 1).to_bytes(3, "little") for side in size)


def packed(chunks: Chunks) -> bytes:
    inside = b"".join(
        name + len(data).to_bytes(4, "little") + data + bytes(len(data) % 2) for name, data in chunks.items()
    )
    return b"RIFF" + (4 + len(inside)).to_bytes(4, "little") + b"WEBP" + inside


def decodes(data: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except UNDECODABLE:
        return False
    return True
