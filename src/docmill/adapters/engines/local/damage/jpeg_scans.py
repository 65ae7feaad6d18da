"""What a JPEG says of itself before its coded data: of how many blocks it is, and by which tables they are coded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SEGMENT = re.compile(rb"\xff+([\xc0-\xfe])(..)", re.DOTALL)
CODED_END = re.compile(rb"\xff+[\x01-\xcf\xd8-\xfe]")
"""In coded data a zero follows each 255, and only marks that begin an interval may stand between."""
SEQUENTIAL, PROGRESSIVE = frozenset({0xC0, 0xC1}), 0xC2
OTHER_FRAMES = frozenset({*range(0xC3, 0xD0)} - {0xC4, 0xC8, 0xCC})
END, TABLES, QUANTISERS, INTERVAL, SCAN = 0xD9, 0xC4, 0xDB, 0xDD, 0xDA
BLOCK = 8
"""Pixels."""
MOST_BLOCKS = 10
"""In a unit."""
MOST_SCANS = 4
"""That stand alone: one for each component at most."""


@dataclass(frozen=True, slots=True)
class Component:
    across: int
    down: int
    """Blocks in a unit of several components."""
    quantisers: int


@dataclass(frozen=True, slots=True)
class Coding:
    """Of one component in one scan."""

    blocks: int
    """In each unit."""
    first: bytes
    """The Huffman table of first coefficients: sixteen counts and the symbols."""
    others: bytes
    """Empty where a scan has first coefficients only."""
    quantiser: int
    """Of the first coefficient, as it stands in this scan."""


@dataclass(frozen=True, slots=True)
class Scan:
    codings: tuple[Coding, ...]
    units: int
    interval: int
    """Units after which everything begins anew, or 0."""
    coded: bytes
    ends: bool
    """Whether a mark follows the coded data."""


@dataclass(frozen=True, slots=True)
class Scans:
    """Those whose data means something by itself: all of a sequential picture, the beginning of a progressive one."""

    found: tuple[Scan, ...]
    are_all: bool


@dataclass(slots=True)
class Head:
    size: tuple[int, int] = (0, 0)
    components: dict[int, Component] = field(default_factory=dict)
    tables: dict[int, bytes] = field(default_factory=dict)
    quantisers: dict[int, int] = field(default_factory=dict)
    interval: int = 0
    is_progressive: bool = False

    def read_frame(self, said: bytes) -> None:
        self.size = int.from_bytes(said[3:5]), int.from_bytes(said[1:3])
        if said[0] != 8 or not all(self.size):
            raise ValueError("not 8 bits for a sample, or a height that is told later")
        for number, sampling, quantisers in zip(said[6::3], said[7::3], said[8::3], strict=False):
            self.components[number] = Component(sampling >> 4, sampling & 15, quantisers)
            if not sampling >> 4 or not sampling & 15:
                raise ValueError("a component without blocks")

    def read_tables(self, said: bytes) -> None:
        while len(said) > 16:
            end = 17 + sum(said[1:17])
            self.tables[said[0]] = said[1:end]
            said = said[end:]

    def read_quantisers(self, said: bytes) -> None:
        while len(said) > 2:
            width = 2 if said[0] >> 4 else 1
            self.quantisers[said[0] & 15] = int.from_bytes(said[1 : 1 + width])
            said = said[1 + 64 * width :]

    def scan(self, said: bytes, coded: bytes, *, ends: bool) -> Scan:
        told, shift = said[1 : 1 + 2 * said[0]], said[-1] & 15
        chosen = [(self.components[number], tables) for number, tables in zip(told[::2], told[1::2], strict=False)]
        is_alone = len(chosen) == 1
        codings = tuple(
            Coding(
                1 if is_alone else one.across * one.down,
                self.tables[tables >> 4],
                b"" if self.is_progressive else self.tables[0x10 | tables & 15],
                self.quantisers[one.quantisers] << shift,
            )
            for one, tables in chosen
        )
        if not 0 < sum(one.blocks for one in codings) <= MOST_BLOCKS:
            raise ValueError("more blocks in a unit than there may be")
        return Scan(codings, self.units(chosen[0][0] if is_alone else None), self.interval, coded, ends)

    def stands_alone(self, said: bytes) -> bool:
        """Other scans of a progressive picture count on what those before have said of each block."""
        lowest, refined = said[-3], said[-1] >> 4
        return not self.is_progressive or (lowest == 0 and refined == 0)

    def units(self, alone: Component | None) -> int:
        """A component that is alone in its scan has blocks only where the picture is."""
        width, height = self.size
        across = max(one.across for one in self.components.values())
        down = max(one.down for one in self.components.values())
        if alone is None:
            return -(-width // (BLOCK * across)) * -(-height // (BLOCK * down))
        wide, high = -(-width * alone.across // across), -(-height * alone.down // down)
        return -(-wide // BLOCK) * -(-high // BLOCK)


def scans(data: bytes) -> Scans:
    """Of a JPEG with Huffman's codes, which nearly all are, and eight bits for a sample; none of others.

    Raises LookupError or ValueError where it makes no sense.
    """
    head, at = Head(), 2
    found: list[Scan] = []
    while segment := SEGMENT.search(data, at):
        mark, said = segment[1][0], data[segment.end() : segment.end() - 2 + int.from_bytes(segment[2])]
        at = segment.end() + len(said)
        if mark in OTHER_FRAMES:
            return Scans((), are_all=False)
        if mark == END:
            break
        if mark in SEQUENTIAL or mark == PROGRESSIVE:
            head.is_progressive = mark == PROGRESSIVE
            head.read_frame(said)
        elif mark == TABLES:
            head.read_tables(said)
        elif mark == QUANTISERS:
            head.read_quantisers(said)
        elif mark == INTERVAL:
            head.interval = int.from_bytes(said[:2])
        elif mark == SCAN:
            end = CODED_END.search(data, at)
            stop = end.start() if end else len(data)
            if len(found) < MOST_SCANS and head.stands_alone(said):
                found.append(head.scan(said, data[at:stop], ends=end is not None))
            at = stop
    return Scans(tuple(found), are_all=not head.is_progressive)
