"""The coded data of a JPEG, walked through block by block without decoding a pixel.

libjpeg murmurs only where data is missing or a code does not exist, and nearly all codes exist: a wrong bit turns sound
data into other data that looks as sound. But that ends before or behind its end, has more coefficients in a block than
there are, or adds up to a brightness that no picture has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .jpeg_scans import Coding, Scan

RESTART = re.compile(rb"\xff+[\xd0-\xd7]")
WINDOW = 1 << 17
"""Bytes that are looked up at once: each of their bits might begin a code."""
MARGIN = 1 << 12
"""Bytes, more than the longest unit has: ten blocks with 64 codes of 27 bits."""
COEFFICIENTS = 64
BLOCK_ENDS = 128
NO_CODE = 255
MOST_BITS_FIRST, MOST_BITS = 11, 10
"""Of a coefficient, where samples have eight bits."""
BRIGHTEST = 1024
"""Eight times a sample's distance from the middle is the first coefficient of a block."""
OVERSHOOT = 256
"""Some writers make white whiter by some steps, so that letters on it have no dirt around them."""
PADDING = b"\x00\xff"
MOST_JUNK = 16
"""Bytes of any value. Cameras leave up to ten behind an interval. Of 71 garbled pictures this hides three."""
LINE_END = b"\r\n"
Plan = Sequence[tuple[Callable[[int], None], bytes, bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Codes:
    """What the next 16 bits mean, for each value that they may have."""

    size: NDArray[np.uint8]
    """Bits of the code."""
    length: NDArray[np.uint8]
    """Bits of the code and of the coefficient after it."""
    step: NDArray[np.uint8]
    """Coefficients until the next code."""

    @classmethod
    @lru_cache(8)
    def of(cls, table: bytes, most_bits: int, step: Callable[[int], int]) -> Codes:
        size, length = np.ones(1 << 16, np.uint8), np.ones(1 << 16, np.uint8)
        steps = np.full(1 << 16, NO_CODE, np.uint8)
        at, symbols = 0, iter(table[16:])
        for bits, count in enumerate(table[:16], 1):
            for _, symbol in zip(range(count), symbols, strict=False):  # the other way round it takes one too many
                meant = slice(at, at + (1 << 16 - bits))
                at = meant.stop
                if symbol & 15 <= most_bits:
                    size[meant], length[meant], steps[meant] = bits, bits + (symbol & 15), step(symbol)
        return cls(size, length, steps)

    @classmethod
    @lru_cache(1)
    def none(cls) -> Codes:
        """The block ends at once."""
        nothing = np.zeros(1 << 16, np.uint8)
        return cls(nothing, nothing, np.full(1 << 16, BLOCK_ENDS, np.uint8))


def first_step(symbol: int) -> int:
    return NO_CODE if symbol >> 4 else 1


def other_step(symbol: int) -> int:
    if symbol & 15 or symbol == 0xF0:
        return (symbol >> 4) + 1
    return NO_CODE if symbol else BLOCK_ENDS


@dataclass(slots=True)
class Walk:
    """Through one component."""

    coding: Coding
    first: Codes
    others: Codes
    starts: list[int] = field(default_factory=list)
    """Of blocks, in bits from the window's beginning."""
    differences: list[NDArray[np.int64]] = field(default_factory=list)
    """Of first coefficients, each from the one before."""

    @classmethod
    def of(cls, coding: Coding) -> Walk:
        first = Codes.of(coding.first, MOST_BITS_FIRST, first_step)
        return cls(coding, first, Codes.of(coding.others, MOST_BITS, other_step) if coding.others else Codes.none())

    def keep(self, window: NDArray[np.uint8]) -> bool:
        """What the window says of first coefficients. False if one has no code."""
        at = np.array(self.starts, np.int64)
        self.starts.clear()
        ahead = sum(window[(at >> 3) + byte].astype(np.int64) << 32 - 8 * byte for byte in range(5))
        ahead = ahead << at % 8 & (1 << 40) - 1
        code = ahead >> 24
        size = self.first.size[code].astype(np.int64)
        bits = self.first.length[code] - size
        value = (ahead << size & (1 << 40) - 1) >> 40 - bits
        self.differences.append(np.where(value >> np.maximum(bits - 1, 0) > 0, value, value - (1 << bits) + 1))
        return not (self.first.step[code] == NO_CODE).any()

    def is_possible(self, interval: int) -> bool:
        """Whether all brightnesses exist. In each interval they begin anew from the middle."""
        found = np.concatenate(self.differences)
        blocks = interval * self.coding.blocks or len(found)
        found = np.pad(found, (0, -len(found) % blocks)).reshape(-1, blocks).cumsum(axis=1)
        most = (BRIGHTEST + OVERSHOOT) // max(1, self.coding.quantiser) + 1
        return bool((np.abs(found) <= most).all())


def is_garbled(scan: Scan) -> bool:
    """Whether sound data cannot read like this."""
    interval = scan.interval or scan.units
    count = -(-scan.units // interval)
    # Some scanners go on behind the last row that they promised: what is too much loses nothing.
    pieces = [piece.replace(b"\xff\x00", b"\xff") for piece in RESTART.split(scan.coded, count)[:count]]
    if len(pieces) < count:
        return True
    walks = [Walk.of(coding) for coding in scan.codings]
    units = [*[interval] * (count - 1), scan.units - interval * (count - 1)]
    padding = PADDING if scan.ends else PADDING + LINE_END
    return not (go(walks, pieces, units, padding) and all(walk.is_possible(scan.interval) for walk in walks))


def go(walks: Sequence[Walk], pieces: Sequence[bytes], units: Sequence[int], padding: bytes) -> bool:
    """Through all pieces, each with its number of units. False where no sound data goes on like this."""
    data = np.frombuffer(b"".join(pieces) + bytes(2 * MARGIN), np.uint8)
    base, window, plan = 0, data[: WINDOW + MARGIN], look_up(walks, data[: WINDOW + MARGIN])
    start = 0
    for piece, count in zip(pieces, units, strict=True):
        at, end = 8 * (start - base), 8 * (start + len(piece) - base)
        for _ in range(count):
            if at >= 8 * WINDOW:
                if not all(walk.keep(window) for walk in walks):
                    return False
                skipped = at >> 3
                base, at, end = base + skipped, at & 7, end - 8 * skipped
                window = data[base : base + WINDOW + MARGIN]
                plan = look_up(walks, window)
            at = past_unit(plan, at)
            if not 0 <= at <= end:
                return False
        if not is_padding(piece, at + 8 * (base - start), padding):
            return False
        start += len(piece)
    return all(walk.keep(window) for walk in walks)


def look_up(walks: Sequence[Walk], window: NDArray[np.uint8]) -> Plan:
    """What each bit of the window means if a code begins there: a walk then takes two lookups for each code."""
    wide = window.astype(np.uint32)
    ahead = wide[:-2] << 16 | wide[1:-1] << 8 | wide[2:]
    bits = (ahead[:, None] >> np.arange(8, 0, -1, dtype=np.uint32)).astype(np.uint16).ravel()
    known: dict[int, bytes] = {}

    def meaning(table: NDArray[np.uint8]) -> bytes:
        if id(table) not in known:
            known[id(table)] = table[bits].tobytes()
        return known[id(table)]

    return [
        (walk.starts.append, meaning(walk.first.length), meaning(walk.others.length), meaning(walk.others.step))
        for walk in walks
        for _ in range(walk.coding.blocks)
    ]


def past_unit(plan: Plan, at: int) -> int:
    """Where the next unit begins, or -1 if a block has too many coefficients or a code that does not exist."""
    for note, first, length, step in plan:
        note(at)
        at += first[at]
        place = 1
        while place < COEFFICIENTS:
            place += step[at]
            at += length[at]
        if place != COEFFICIENTS and not BLOCK_ENDS < place < BLOCK_ENDS + COEFFICIENTS:
            return -1
    return at


def is_padding(piece: bytes, at: int, padding: bytes) -> bool:
    """Whether nothing that matters follows: the last byte is filled up, and some writers add whole ones."""
    full = -(-at // 8)
    rest = piece[at // 8] & 0xFF >> at % 8 if full > at // 8 else 0
    return rest in (0, 0xFF >> at % 8) and len(piece[full:].strip(padding)) <= MOST_JUNK
