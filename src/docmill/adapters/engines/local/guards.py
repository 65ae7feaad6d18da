"""What is refused before it is parsed."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
import zlib
from collections.abc import Container
from pathlib import Path
from typing import IO

from docmill.core.errors import DocumentError

from .. import sniff
from .limits import Limits

MB = 1024 * 1024
CHUNK = 1 << 20
RATIO_FROM = 8 * MB
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
ENTITY_MARKS = (b"<!DOCTYPE", b"<!ENTITY")
LONGEST_MARK = max(len(mark) for mark in ENTITY_MARKS) * 2
UNDECODABLE = (OSError, SyntaxError, ValueError, EOFError, TypeError, LookupError, AttributeError, struct.error)
"""What Pillow raises for pictures that are none; it does not always notice by itself."""
MARKUP_ENDINGS = (".xml", ".rels", ".vml", ".svg", ".xhtml", ".html", ".opf", ".ncx", ".fpage", ".hpf", ".apxl")
IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")


def check_type(source: Path, filename: str, media_type: str, supported: Container[str]) -> None:
    if media_type == sniff.EMPTY:
        raise DocumentError("document_empty")
    if media_type in supported:
        return
    if media_type == sniff.OLE and is_encrypted_office(source):
        raise DocumentError("document_encrypted")
    promised = sniff.claimed(filename)
    if promised is not None and media_type in (sniff.UNKNOWN, sniff.OLE, sniff.PROGRAM):
        raise DocumentError("document_mislabelled", claimed=promised, found=media_type)
    raise sniff.refuse(media_type)


def is_encrypted_office(source: Path) -> bool:
    """A password turns an OOXML file into an OLE container with a stream of this name."""
    name = "EncryptedPackage".encode("utf-16-le")
    rest = b""
    with source.open("rb") as file:
        while chunk := file.read(CHUNK):
            if name in rest + chunk:
                return True
            rest = chunk[-len(name) :]
    return False


def check_pixels(size: tuple[int, int], limits: Limits) -> None:
    pixels = size[0] * size[1]
    if pixels > limits.pixels:
        raise DocumentError("document_too_many_pixels", pixels=pixels, limit=limits.pixels)


def check_zip(source: Path, limits: Limits, *, may_declare_type: bool = False) -> None:
    """Inflate everything once, counting; headers may lie. Refuses overlaps, which older Pythons accept.

    *may_declare_type*: XML of this format may have a DOCTYPE, which must not declare entities.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            entries = archive.infolist()
            if len(entries) > limits.zip_entries:
                raise bomb(f"{len(entries)} entries")
            check_overlap(source, entries)
            inflated = 0
            for entry in entries:
                inflated += check_entry(archive, entry, limits, ENTITY_MARKS[may_declare_type:])
                if inflated > limits.zip_mb * MB:
                    raise bomb(f"more than {limits.zip_mb} MB in all")
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, OverflowError, ValueError) as error:
        raise DocumentError("document_broken", why="its ZIP container is damaged") from error
    except (NotImplementedError, RuntimeError) as error:
        raise DocumentError("document_broken", why="its ZIP container uses an unknown method") from error


def bomb(why: str) -> DocumentError:
    return DocumentError("document_bomb", why=why)


def check_overlap(source: Path, entries: list[zipfile.ZipInfo]) -> None:
    """No two entries may share bytes of the file."""
    end = 0
    with source.open("rb") as file:
        for entry in sorted(entries, key=lambda entry: entry.header_offset):
            if entry.header_offset < end:
                raise bomb("entries overlap")
            file.seek(entry.header_offset)
            fields = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
            end = entry.header_offset + LOCAL_HEADER.size + fields[9] + fields[10] + entry.compress_size


def check_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limits: Limits, refused: tuple[bytes, ...]) -> int:
    """The entry's real size."""
    if entry.flag_bits & 1:
        raise DocumentError("document_encrypted")
    name = entry.filename.lower()
    marks = refused if name.endswith((".xml", ".rels", ".vml")) else ENTITY_MARKS[1:]
    is_markup = name.endswith(MARKUP_ENDINGS)
    size = 0
    rest = b""
    with archive.open(entry) as stream:
        while chunk := stream.read(CHUNK):
            size += len(chunk)
            if size > limits.zip_entry_mb * MB:
                raise bomb(f"an entry of more than {limits.zip_entry_mb} MB")
            if size > RATIO_FROM and size > limits.zip_ratio * max(1, entry.compress_size):
                raise bomb(f"an entry packed more than {limits.zip_ratio} times")
            if is_markup:
                seen = (rest + chunk).replace(b"\0", b"").upper()  # without zeros UTF-16 reads like ASCII
                if any(mark in seen for mark in marks):
                    raise bomb("its XML declares entities")
                rest = chunk[-LONGEST_MARK:]
    if name.endswith(IMAGE_ENDINGS) and size:
        with archive.open(entry) as stream:
            check_image_header(io.BytesIO(stream.read()), limits)
    return size


def check_image_header(stream: IO[bytes], limits: Limits) -> None:
    """Pixel bombs by their header; what is no image is left to whoever wants to read it."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Image.MAX_IMAGE_PIXELS = None
            with Image.open(stream) as image:
                size = image.size
    except UNDECODABLE:
        return
    check_pixels(size, limits)
