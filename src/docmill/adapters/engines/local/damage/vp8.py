"""The frame of a lossy WebP (RFC 6386), taken apart into the parts that are coded each by itself."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = 10
"""Bytes: a tag with the length of the first part, a start code, width and height."""
SIZE = 3
"""Bytes of a length."""


@dataclass(frozen=True, slots=True)
class Frame:
    head: bytes
    parts: tuple[bytes, ...]
    """How each block is predicted, and then what is added to that: one part, or two, four or eight in turns."""

    @property
    def size(self) -> tuple[int, int]:
        return int.from_bytes(self.head[6:8], "little") & 0x3FFF, int.from_bytes(self.head[8:10], "little") & 0x3FFF

    @classmethod
    def parse(cls, data: bytes) -> Frame:
        first = HEAD + (int.from_bytes(data[:SIZE], "little") >> 5)
        parts = [data[HEAD:first]]
        others = count(parts[0]) - 1
        at = first + SIZE * others
        for number in range(others):
            size = data[first + SIZE * number : first + SIZE * (number + 1)]
            end = at + int.from_bytes(size, "little")
            parts.append(data[at:end])
            at = end
        return cls(data[:HEAD], (*parts, data[at:]))

    def having(self, index: int, part: bytes) -> Frame:
        return Frame(self.head, (*self.parts[:index], part, *self.parts[index + 1 :]))

    def packed(self) -> bytes:
        first, *others = self.parts
        tag = int.from_bytes(self.head[:SIZE], "little") & 0x1F | len(first) << 5
        sizes = (len(part).to_bytes(SIZE, "little") for part in others[:-1])
        return b"".join([tag.to_bytes(SIZE, "little"), self.head[SIZE:], first, *sizes, *others])


class Bits:
    """Bits of even odds. What comes after the end is zero."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.value = int.from_bytes(data[:2].ljust(2, b"\0"))
        self.at = 2
        self.range = 255
        self.shifted = 0

    def bit(self) -> int:
        split = 1 + ((self.range - 1) >> 1)
        found = self.value >= split << 8
        if found:
            self.range -= split
            self.value -= split << 8
        else:
            self.range = split
        while self.range < 128:
            self.shift()
        return int(found)

    def shift(self) -> None:
        self.range <<= 1
        self.value <<= 1
        self.shifted += 1
        if self.shifted == 8:
            self.shifted = 0
            self.value |= self.data[self.at] if self.at < len(self.data) else 0
            self.at += 1

    def number(self, size: int) -> int:
        found = 0
        for _ in range(size):
            found = found << 1 | self.bit()
        return found

    def skip_optional(self, count: int, size: int) -> None:
        for _ in range(count):
            if self.bit():
                self.number(size)


def count(first: bytes) -> int:
    """Of the parts after the first, which says so behind what it says of segments and filters."""
    bits = Bits(first)
    bits.number(2)  # colours, clamping
    if bits.bit():
        has_map, has_data = bits.bit(), bits.bit()
        if has_data:
            bits.bit()
            bits.skip_optional(4, 8)
            bits.skip_optional(4, 7)
        if has_map:
            bits.skip_optional(3, 8)
    bits.number(1 + 6 + 3)  # kind, strength and sharpness of the filter
    if bits.bit() and bits.bit():
        bits.skip_optional(8, 7)
    return 1 << bits.number(2)
