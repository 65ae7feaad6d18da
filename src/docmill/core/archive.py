"""ZIP archives of strangers: judged as a whole before a single byte of them is written.

    inspect         every entry inflated once to nothing: counts, actual sizes, checksums, overlaps
    unpack_images   the images among them, under names of ours
    text_entry      the one Markdown file of a result
    page_of_image   the page that an image's name tells
    unpack_result   the texts whose names end as told, and the images: what a provider gives

The reader is our own, because the standard library's (before 3.11.8) accepts entries that share bytes, and because it
makes an object of every entry before anybody can count them. Headers are never believed: what counts is what comes out.
Names in the archive are data. They never become paths.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import BinaryIO, Final, Literal

from docmill.core.errors import BadRequest

CHUNK: Final = 1 << 18
HEAD: Final = 64
RATIO_FLOOR: Final = 32 << 20
"""Below this, a ratio says nothing: a blank page as BMP shrinks a thousandfold."""

EXTENSIONS: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "image/gif": ".gif",
    "image/tiff": ".tif",
    "image/bmp": ".bmp",
}
"""The images that are taken. SVG is not: it is a program."""

_PAGE_NAME: Final = re.compile(r"(image|page|preview)_0*([1-9][0-9]{0,6})", re.ASCII | re.IGNORECASE)

Kind = Literal["file", "folder", "other"]
Source = Path | BinaryIO


@dataclass(frozen=True, slots=True)
class Limits:
    entries: int = 10_000
    entry_bytes: int = 256 << 20
    total_bytes: int = 1 << 30
    ratio: int = 200
    """Inflated bytes of all entries against the archive's own."""
    seconds: float = 60.0
    text_bytes: int = 64 << 20


DEFAULT: Final = Limits()


@dataclass(frozen=True, slots=True)
class Entry:
    index: int
    name: str
    """As the archive spells it: data, never a path."""
    kind: Kind
    """`other`: links, devices and the like."""
    size: int
    """What really came out; 0 for what is no file."""
    media_type: str
    """Of an image by its first bytes, `application/zip` for an archive in the archive, else empty."""
    method: int
    crc: int
    start: int
    """Where its packed bytes begin."""
    packed: int


@dataclass(frozen=True, slots=True)
class Unpacked:
    name_in_zip: str
    safe_name: str
    """The file's name in the folder: our own, made of its number and hash."""
    media_type: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class TextEntry:
    name_in_zip: str
    """Links in the text are relative to this."""
    text: str


def inspect(file: Source, limits: Limits = DEFAULT) -> tuple[Entry, ...]:
    """All entries, each inflated once. BadRequest if the archive is broken, a bomb, or slow."""
    with _opened(file) as stream:
        return tuple(_Inspection(stream, limits).entries())


def unpack_images(path_of_zip: Source, folder: Path, limits: Limits = DEFAULT) -> tuple[Unpacked, ...]:
    """Write the images into the folder, which exists. Nothing is written unless the whole archive is sound."""
    with _opened(path_of_zip) as stream:
        inspection = _Inspection(stream, limits)
        images = [entry for entry in inspection.entries() if entry.media_type in EXTENSIONS]
        return tuple(_unpack(inspection, entry, folder) for entry in images)


def text_entry(file: Source, limits: Limits = DEFAULT) -> TextEntry | None:
    """The Markdown file, if there is one: `document.md` before `full.md` before any other, the least deep first."""
    with _opened(file) as stream:
        inspection = _Inspection(stream, limits)
        found = [entry for entry in inspection.entries() if entry.kind == "file" and _is_markdown(entry.name)]
        if not found:
            return None
        return _text(inspection, min(found, key=_preference), limits)


def unpack_result(
    file: Source, folder: Path, endings: Sequence[str], limits: Limits = DEFAULT
) -> tuple[dict[str, TextEntry], tuple[Unpacked, ...]]:
    """The least deep text for each ending, and the images, which go into the folder. Judged as a whole before."""
    with _opened(file) as stream:
        inspection = _Inspection(stream, limits)
        entries = tuple(inspection.entries())
        texts = {}
        for ending in endings:
            found = [entry for entry in entries if entry.kind == "file" and entry.name.lower().endswith(ending)]
            if found:
                chosen = min(found, key=lambda entry: (entry.name.count("/"), entry.index))
                texts[ending] = _text(inspection, chosen, limits)
        images = [entry for entry in entries if entry.media_type in EXTENSIONS]
        return texts, tuple(_unpack(inspection, entry, folder) for entry in images)


def _text(inspection: _Inspection, chosen: Entry, limits: Limits) -> TextEntry:
    if chosen.size > limits.text_bytes:
        raise _bomb(f"'{_shown(chosen.name)}' has {chosen.size} bytes, more than {limits.text_bytes}")
    data = b"".join(inspection.inflate(chosen))
    try:
        return TextEntry(chosen.name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _invalid(f"'{_shown(chosen.name)}' is not UTF-8") from error


def page_of_image(name: str) -> tuple[str, int | None]:
    """What an entry's name says of an image: its kind (`image`, `page`, `preview`) and its page, counted from 1."""
    stem, _, extension = _base(name).rpartition(".")
    found = _PAGE_NAME.fullmatch(stem or extension)
    return (found[1].lower(), int(found[2])) if found else ("image", None)


def image_type(head: bytes) -> str:
    """The media type of an image by its first bytes; empty for everything else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return "image/tiff"
    if head.startswith(b"BM") and len(head) >= 18 and head[6:10] == bytes(4) and head[14] in (12, 40, 52, 56, 108, 124):
        return "image/bmp"
    return ""


# --- judging


class _Inspection:
    """One look at one archive, with the clock running."""

    def __init__(self, stream: BinaryIO, limits: Limits) -> None:
        self._stream = stream
        self._limits = limits
        self._deadline = monotonic() + limits.seconds
        self._length = stream.seek(0, os.SEEK_END)

    def entries(self) -> Iterator[Entry]:
        directory = _directory(self._stream, self._length)
        if directory.count > self._limits.entries:
            raise _bomb(f"it has {directory.count} entries, more than {self._limits.entries}")
        records = list(self._records(directory))
        places = [self._place(record) for record in records]
        self._check_overlap(records, places, directory.start)
        total = 0
        for record, start in zip(records, places, strict=True):
            entry = self._judged(record, start, total)
            total += entry.size
            yield entry

    def _records(self, directory: _Directory) -> Iterator[_Record]:
        """The central directory, record by record. Its own count of them is not believed."""
        self._stream.seek(directory.start)
        rest = directory.size
        for index in range(self._limits.entries + 1):
            if not rest:
                return
            if index == self._limits.entries:
                raise _bomb(f"it has more than {self._limits.entries} entries")
            record, length = _record(self._stream, index, rest, directory.shift)
            rest -= length
            self._check_time()
            yield record

    def _place(self, record: _Record) -> int:
        """Where the entry's bytes begin, by its local header, which must be of the same entry."""
        self._stream.seek(record.offset)
        head = _exactly(self._stream, 30)
        signature, flags, method, name_length, extra_length = struct.unpack("<4s2x2H16x2H", head)
        name = _exactly(self._stream, name_length)
        if signature != b"PK\x03\x04" or (method, name) != (record.method, record.raw_name):
            raise _invalid(f"entry {record.index} has another header than the directory says")
        _check_method(record.index, flags, method)
        self._check_time()
        return record.offset + 30 + int(name_length) + int(extra_length)

    def _check_overlap(self, records: list[_Record], places: list[int], directory: int) -> None:
        spans = sorted((record.offset, start + record.packed) for record, start in zip(records, places, strict=True))
        for (_, end), (begin, _) in pairwise((*spans, (directory, directory))):
            if begin < end:
                raise _bomb("its entries share bytes")

    def _judged(self, record: _Record, start: int, total: int) -> Entry:
        if record.kind != "file":
            return Entry(record.index, record.name, record.kind, 0, "", record.method, record.crc, start, 0)
        entry = Entry(
            record.index, record.name, "file", record.size, "", record.method, record.crc, start, record.packed
        )
        head, size = b"", 0
        for piece in self.inflate(entry):
            head = head if len(head) >= HEAD else (head + piece)[:HEAD]
            size += len(piece)
            if total + size > max(RATIO_FLOOR, self._limits.ratio * self._length):
                raise _bomb(f"it unpacks to more than {self._limits.ratio} times its own size")
            if total + size > self._limits.total_bytes:
                raise _bomb(f"it unpacks to more than {self._limits.total_bytes} bytes")
        media_type = "application/zip" if head.startswith((b"PK\x03\x04", b"PK\x05\x06")) else image_type(head)
        return Entry(
            record.index, record.name, "file", size, media_type, record.method, record.crc, start, record.packed
        )

    def inflate(self, entry: Entry) -> Iterator[bytes]:
        """The entry's bytes in pieces. In the end size and checksum are what the archive promised, or it is refused."""
        size = crc = 0
        for piece in self._pieces(entry):
            size += len(piece)
            crc = zlib.crc32(piece, crc)
            if size > self._limits.entry_bytes:
                raise _bomb(f"entry {entry.index} unpacks to more than {self._limits.entry_bytes} bytes")
            if size > entry.size:
                raise _bomb(f"entry {entry.index} unpacks to more than it says")
            yield piece
        if (size, crc) != (entry.size, entry.crc):
            raise _invalid(f"entry {entry.index} is damaged")

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        packed = self._packed(entry)
        if entry.method == 0:
            yield from packed
            return
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            for data in packed:
                while data and not inflater.eof:
                    self._check_time()
                    if piece := inflater.decompress(data, CHUNK):
                        yield piece
                    data = inflater.unconsumed_tail
                if data:
                    break
            while not inflater.eof and (piece := inflater.decompress(b"", CHUNK)):
                yield piece
        except zlib.error as error:
            raise _invalid(f"entry {entry.index} cannot be inflated") from error
        if not inflater.eof or inflater.unused_data or next(packed, b""):
            raise _invalid(f"entry {entry.index} has another length than it says")

    def _packed(self, entry: Entry) -> Iterator[bytes]:
        done = 0
        while done < entry.packed:
            self._check_time()
            self._stream.seek(entry.start + done)
            data = _exactly(self._stream, min(CHUNK, entry.packed - done))
            done += len(data)
            yield data

    def _check_time(self) -> None:
        if monotonic() > self._deadline:
            raise _bomb(f"looking at it took longer than {self._limits.seconds:g} s")


# --- the format


@dataclass(frozen=True, slots=True)
class _Directory:
    start: int
    size: int
    count: int
    shift: int
    """Bytes that somebody put before the archive: offsets do not count them."""


@dataclass(frozen=True, slots=True)
class _Record:
    index: int
    raw_name: bytes
    name: str
    kind: Kind
    method: int
    crc: int
    packed: int
    size: int
    offset: int


def _directory(stream: BinaryIO, length: int) -> _Directory:
    end = _end(stream, length)
    stream.seek(end)
    _, disk, first_disk, _, count, size, offset, _ = struct.unpack("<4s4H2LH", _exactly(stream, 22))
    if 0xFFFF in (disk, count) or 0xFFFFFFFF in (size, offset):
        end, disk, first_disk, count, size, offset = _end64(stream, end)
    start = end - size
    if disk or first_disk or start < offset:
        raise _invalid("its directory is not where it says")
    return _Directory(start, size, count, start - offset)


def _end(stream: BinaryIO, length: int) -> int:
    """The end record: the last one whose comment reaches exactly to the end of the file."""
    reach = min(length, 22 + 0xFFFF)
    stream.seek(length - reach)
    tail = _exactly(stream, reach)
    found = tail.rfind(b"PK\x05\x06")
    while found >= 0:
        if found + 22 <= reach and found + 22 + int.from_bytes(tail[found + 20 : found + 22], "little") == reach:
            return length - reach + found
        found = tail.rfind(b"PK\x05\x06", 0, found)
    raise _invalid("it is not a ZIP archive, or its end is missing")


def _end64(stream: BinaryIO, end: int) -> tuple[int, int, int, int, int, int]:
    if end < 20 + 56:
        raise _invalid("its directory is not where it says")
    stream.seek(end - 20)
    signature, _, offset, _ = struct.unpack("<4sLQL", _exactly(stream, 20))
    # The record stands right before its locator, unless something was put before the archive.
    for place in (end - 20 - 56, offset):
        if place > end - 20 - 56:
            continue
        stream.seek(place)
        head = _exactly(stream, 56)
        if signature == b"PK\x06\x07" and head[:4] == b"PK\x06\x06":
            _, _, _, _, disk, first_disk, _, count, size, start = struct.unpack("<4sQ2H2L4Q", head)
            return place, disk, first_disk, count, size, start
    raise _invalid("its directory is not where it says")


def _record(stream: BinaryIO, index: int, rest: int, shift: int) -> tuple[_Record, int]:
    if rest < 46:
        raise _invalid("its directory is damaged")
    fields = struct.unpack("<4s6H3L5H2L", _exactly(stream, 46))
    signature, made_by, _, flags, method, _, _, crc, packed, size, n_name, n_extra, n_comment = fields[:13]
    disk, _, attributes, offset = fields[13:]
    length = 46 + n_name + n_extra + n_comment
    if signature != b"PK\x01\x02" or length > rest:
        raise _invalid("its directory is damaged")
    raw_name, extra = _exactly(stream, n_name), _exactly(stream, n_extra)
    stream.seek(n_comment, os.SEEK_CUR)
    size, packed, offset = _widened(extra, size, packed, offset)
    _check_method(index, flags, method)
    if disk not in (0, 0xFFFF) or (method == 0 and size != packed):
        raise _invalid(f"entry {index} contradicts itself")
    name = raw_name.decode("utf-8" if flags & 0x800 else "cp437", "replace")
    kind = _kind(name, made_by >> 8, attributes)
    return _Record(index, raw_name, name, kind, method, crc, packed, size, offset + shift), length


def _widened(extra: bytes, *narrow: int) -> tuple[int, int, int]:
    """Size, packed size and offset, from the zip64 field where they did not fit."""
    wide = iter(_zip64_numbers(extra))
    size, packed, offset = (next(wide, number) if number == 0xFFFFFFFF else number for number in narrow)
    return size, packed, offset


def _zip64_numbers(extra: bytes) -> list[int]:
    while len(extra) >= 4:
        tag, length = struct.unpack("<2H", extra[:4])
        if tag == 1:
            field = extra[4 : 4 + length]
            return [
                int.from_bytes(field[at : at + 8], "little") for at in range(0, min(length, len(field)) // 8 * 8, 8)
            ]
        extra = extra[4 + length :]
    return []


def _check_method(index: int, flags: int, method: int) -> None:
    if flags & (0x1 | 0x20 | 0x40 | 0x2000):
        raise _invalid(f"entry {index} is encrypted or patched")
    if method not in (0, 8):
        raise _invalid(f"entry {index} is packed by method {method}; only deflate and none are read")


def _kind(name: str, system: int, attributes: int) -> Kind:
    if name.endswith(("/", "\\")) or attributes & 0x10:
        return "folder"
    mode = stat.S_IFMT(attributes >> 16) if system in (3, 19) else 0
    return "file" if mode in (0, stat.S_IFREG) else "folder" if mode == stat.S_IFDIR else "other"


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise _invalid("it is cut off")
    return data


# --- writing


def _unpack(inspection: _Inspection, entry: Entry, folder: Path) -> Unpacked:
    digest = hashlib.sha256()
    draft = folder / f".{entry.index:05}.part"
    try:
        with draft.open("xb") as file:
            for piece in inspection.inflate(entry):
                file.write(piece)
                digest.update(piece)
        name = f"{entry.index:05}-{digest.hexdigest()[:12]}{EXTENSIONS[entry.media_type]}"
        draft.rename(folder / name)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return Unpacked(entry.name, name, entry.media_type, digest.hexdigest(), entry.size)


def _is_markdown(name: str) -> bool:
    return name.lower().endswith((".md", ".markdown")) and not _base(name).startswith(".")


def _preference(entry: Entry) -> tuple[int, int, int]:
    known = {"document.md": 0, "full.md": 1}
    depth = entry.name.replace("\\", "/").count("/")
    return known.get(_base(entry.name).lower(), 2), depth, entry.index


def _base(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2]


def _shown(name: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in name[:80])


@contextmanager
def _opened(file: Source) -> Iterator[BinaryIO]:
    if isinstance(file, Path):
        with file.open("rb") as stream:
            yield stream
    else:
        yield file


def _invalid(why: str) -> BadRequest:
    return BadRequest("archive_invalid", why=why)


def _bomb(why: str) -> BadRequest:
    return BadRequest("archive_bomb", why=why)
