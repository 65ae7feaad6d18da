"""GIFs that were hurt. They hold no checksum, and Pillow takes any data for a picture, however much of it there is.

But each code stands for as many pixels as those before it have made it: after a wrong bit their sum is seldom that of
the picture, or a code comes that does not exist yet.
"""

from __future__ import annotations

from collections.abc import Iterator

EXTENSION, PICTURE = 0x21, 0x2C
HEAD, DESCRIPTION = 13, 10
"""Bytes of the file's beginning, and of a picture's."""
MOST_CODED = 4 << 20
"""Bytes, of one file: some seconds."""
MOST_CODES, WIDEST = 4096, 12
"""A code has twelve bits at most; then no more are made until all are forgotten."""


def is_garbled(data: bytes) -> bool:
    """Whether the data of a picture makes more or fewer pixels than it has."""
    left = MOST_CODED
    for pixels, bits, coded in pictures(data):
        left -= len(coded)
        if left < 0:
            return False
        if count_pixels(bits, coded) != pixels:
            return True
    return False


def pictures(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Of each picture how many pixels it has, the bits of a pixel, and its data. A cut file ends where it ends."""
    at = HEAD + size_of_colours(data[10:11])
    while data[at : at + 1] in (bytes([EXTENSION]), bytes([PICTURE])):
        if data[at] == EXTENSION:
            at, _ = blocks(data, at + 2)
            continue
        width, height = (int.from_bytes(data[at + 5 + side : at + 7 + side], "little") for side in (0, 2))
        at += DESCRIPTION + size_of_colours(data[at + 9 : at + 10])
        bits = int.from_bytes(data[at : at + 1])
        at, coded = blocks(data, at + 1)
        yield width * height, bits, coded


def size_of_colours(flags: bytes) -> int:
    """Bytes of the table of colours that the flags tell of."""
    return 3 << (flags[0] & 7) + 1 if flags and flags[0] & 0x80 else 0


def blocks(data: bytes, at: int) -> tuple[int, bytes]:
    """What stands behind blocks that each tell their length, and what is in them."""
    found = []
    while at < len(data) and data[at]:
        found.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return at + 1, b"".join(found)


def count_pixels(bits: int, coded: bytes) -> int | None:
    """How many pixels the data makes; None if that cannot be."""
    if not 1 <= bits < WIDEST:
        return None
    forget = 1 << bits
    pixels, width, before = 0, bits + 1, 0
    sizes = [1] * forget + [0, 0]
    value, known = 0, 0
    for byte in coded:
        value |= byte << known
        known += 8
        while known >= width:
            code = value & (1 << width) - 1
            value >>= width
            known -= width
            if code == forget:
                width, before = bits + 1, 0
                del sizes[forget + 2 :]
                continue
            if code == forget + 1:
                return pixels
            if code > len(sizes) or (code == len(sizes) and not before):
                return None
            size = sizes[code] if code < len(sizes) else before + 1
            if before and len(sizes) < MOST_CODES:
                sizes.append(before + 1)
                width += len(sizes) == 1 << width and width < WIDEST
            pixels += size
            before = size
    return pixels
