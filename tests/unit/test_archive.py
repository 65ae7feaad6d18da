"""Archives of strangers: what is taken, what is refused, and that nothing is written before all is judged."""

from __future__ import annotations

import contextlib
import hashlib
import io
import stat
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docmill.core.archive import Limits, inspect, page_of_image, text_entry, unpack_images
from docmill.core.errors import BadRequest
from support.measuring import costs_at_most

PNG = b"\x89PNG\r\n\x1a\n" + b"picture" * 20
IMAGES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"j" * 50,
    "image/webp": b"RIFF\x24\0\0\0WEBPVP8 " + b"w" * 30,
    "image/gif": b"GIF89a" + b"g" * 30,
    "image/tiff": b"II*\0\x08\0\0\0" + b"t" * 30,
    "image/bmp": b"BM" + struct.pack("<LHHLL", 100, 0, 0, 54, 40) + b"b" * 60,
}


def a_zip(entries: dict[str, bytes] | list[tuple[Any, bytes]], *, method: int = zipfile.ZIP_DEFLATED) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in entries.items() if isinstance(entries, dict) else entries:
            archive.writestr(name, data)
    return file


def refused(file: io.BytesIO, folder: Path, limits: Limits | None = None) -> str:
    """The code of the refusal; nothing may have been written."""
    with pytest.raises(BadRequest) as caught:
        unpack_images(file, folder, limits or Limits())
    assert [] == list(folder.iterdir())
    return caught.value.code


def patched(file: io.BytesIO, signature: bytes, offset: int, data: bytes, nth: int = 0) -> io.BytesIO:
    """The archive with bytes changed behind the nth signature."""
    raw = bytearray(file.getvalue())
    at = -1
    for _ in range(nth + 1):
        at = raw.index(signature, at + 1)
    raw[at + offset : at + offset + len(data)] = data
    return io.BytesIO(bytes(raw))


LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


def test_images_are_known_by_their_bytes(tmp_path: Path) -> None:
    names = {f"{number}.txt": data for number, data in enumerate(IMAGES.values())}
    others = {"a.svg": b"<svg onload='x()'/>", "b.png": b"<html>", "c.zip": a_zip({"x": b"y"}).getvalue(), "d.png": b""}

    found = unpack_images(a_zip(names | others), tmp_path)

    assert list(IMAGES) == [one.media_type for one in found]
    assert list(names) == [one.name_in_zip for one in found]
    for one, data in zip(found, IMAGES.values(), strict=True):
        assert data == (tmp_path / one.safe_name).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (one.sha256, one.size)
    assert sorted(one.safe_name for one in found) == sorted(path.name for path in tmp_path.iterdir())


HOSTILE = [
    "../up.png",
    "../../../../etc/passwd",
    "/etc/absolute.png",
    "C:\\drive.png",
    "C:drive.png",
    "\\\\server\\share\\unc.png",
    "a/../../b.png",
    "CON",
    "nul\0byte.png",
    "x" * 10_000 + ".png",
    "case.png",
    "CASE.PNG",
    "\u00fc.png",
    "u\u0308.png",
    "trailing.",
    "trailing ",
    "",
    "..",
    "~/x.png",
    "．．／wide.png",
    "new\nline.png",
    "case.png",
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("image_1.png", ("image", 1)),
        ("a/b/page_0012.JPEG", ("page", 12)),
        ("a\\PREVIEW_7.webp", ("preview", 7)),
        ("image_3", ("image", 3)),
        ("page_1234567.png", ("page", 1_234_567)),
        *((name, ("image", None)) for name in ("page_0.png", "page_12345678.png", "mypage_1.png", "page_1a.png")),
        *((name, ("image", None)) for name in ("page_1/x.png", "page_1.x.png", "page_\u0661.png", "img-0.jpeg", "")),
    ],
)
def test_names_of_images_tell_their_page(name: str, expected: tuple[str, int | None]) -> None:
    assert expected == page_of_image(name)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_never_become_paths(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in HOSTILE:
            info = zipfile.ZipInfo("x")
            info.filename = name  # the constructor would cut it at a NUL
            archive.writestr(info, PNG)

    found = unpack_images(file, inside)

    assert HOSTILE == [one.name_in_zip for one in found]
    assert len(HOSTILE) == len({one.safe_name.casefold() for one in found})
    assert all(one.safe_name.isascii() and len(one.safe_name) < 40 for one in found)
    assert [inside] == list(tmp_path.iterdir())
    assert len(HOSTILE) == len(list(inside.iterdir()))


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_are_passed_over(tmp_path: Path, mode: int) -> None:
    info = zipfile.ZipInfo("link.png")
    info.create_system = 3
    info.external_attr = (mode | 0o777) << 16

    found = unpack_images(a_zip([(info, PNG), (zipfile.ZipInfo("folder/"), b""), ("real.png", PNG)]), tmp_path)

    assert ["real.png"] == [one.name_in_zip for one in found]


def test_an_entry_or_all_of_them_may_be_too_big(tmp_path: Path) -> None:
    file = a_zip({"a.png": PNG * 100, "b.png": PNG * 100})

    assert "archive_bomb" == refused(file, tmp_path, Limits(entry_bytes=len(PNG) * 99))
    assert "archive_bomb" == refused(file, tmp_path, Limits(total_bytes=len(PNG) * 199))
    assert 2 == len(unpack_images(file, tmp_path, Limits(total_bytes=len(PNG) * 200)))


def test_a_plain_bomb_is_stopped_early(tmp_path: Path) -> None:
    file = a_zip({"zeros.png": bytes(100 << 20)})

    with costs_at_most(5):
        assert "archive_bomb" == refused(file, tmp_path, Limits(ratio=50))


def test_a_blank_page_is_no_bomb(tmp_path: Path) -> None:
    blank = IMAGES["image/bmp"] + bytes(20 << 20)

    assert [len(blank)] == [one.size for one in unpack_images(a_zip({"blank.bmp": blank}), tmp_path)]


def overlapped(copies: int, kernel: int) -> io.BytesIO:
    """Fifield's trick: many directory entries that share one kernel of packed bytes, here by a common local header."""
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = bytes(kernel)
    body = packed.compress(zeros) + packed.flush()
    crc, name = zlib.crc32(zeros), b"a.png"
    local = struct.pack("<4s5H3L2H", LOCAL, 20, 0, 8, 0, 0, crc, len(body), kernel, len(name), 0) + name + body
    record = struct.pack("<4s6H3L5H2L", CENTRAL, 20, 20, 0, 8, 0, 0, crc, len(body), kernel, 5, 0, 0, 0, 0, 0, 0) + name
    directory = record * copies
    end = struct.pack("<4s4H2LH", END, 0, 0, copies, copies, len(directory), len(local), 0)
    return io.BytesIO(local + directory + end)


def quoted(copies: int, kernel: int) -> io.BytesIO:
    """The full overlap: each entry's deflate stream quotes the next local header as a stored block."""
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = bytes(kernel)
    body, data, chain = packed.compress(zeros) + packed.flush(), zeros, []
    for number in reversed(range(copies)):
        name = f"{number:04}.png".encode()
        facts = (zlib.crc32(data), len(body), len(data))
        header = struct.pack("<4s5H3L2H", LOCAL, 20, 0, 8, 0, 0, *facts, len(name), 0) + name
        chain.append((name, facts, header))
        body = b"\0" + struct.pack("<HH", len(header), len(header) ^ 0xFFFF) + header + body
        data = header + data
    local, offset, records = body[5:], 0, b""
    for name, facts, header in reversed(chain):
        records += struct.pack("<4s6H3L5H2L", CENTRAL, 20, 20, 0, 8, 0, 0, *facts, 8, 0, 0, 0, 0, 0, offset) + name
        offset += len(header) + 5
    end = struct.pack("<4s4H2LH", END, 0, 0, copies, copies, len(records), len(local), 0)
    return io.BytesIO(local + records + end)


@pytest.mark.parametrize("make", [overlapped, quoted])
def test_entries_that_share_bytes_are_refused_at_once(tmp_path: Path, make: Any) -> None:
    file = make(400, 2 << 20)
    assert len(file.getvalue()) < 60_000
    assert 400 == len(zipfile.ZipFile(file).namelist())

    with costs_at_most(1):
        assert "archive_bomb" == refused(file, tmp_path, Limits(total_bytes=1 << 40, ratio=1 << 30))


def test_one_of_them_alone_would_be_fine(tmp_path: Path) -> None:
    """So that it is the overlap that was refused, not the making of the test."""
    assert [1000] == [entry.size for entry in inspect(overlapped(1, 1000))]
    assert [1000] == [entry.size for entry in inspect(quoted(1, 1000))]


def test_archives_in_archives_are_not_opened(tmp_path: Path) -> None:
    """The 42.zip: five layers of sixteen, petabytes at the bottom."""
    inner = a_zip({"0.dll": bytes(4 << 20)}).getvalue()
    for _ in range(4):
        inner = a_zip({f"{number}.zip": inner for number in range(16)}).getvalue()

    file = a_zip({"42.zip": inner, "fine.png": PNG})

    assert ["fine.png"] == [one.name_in_zip for one in unpack_images(file, tmp_path)]
    assert "application/zip" == inspect(file)[0].media_type


def test_an_archive_that_holds_itself_ends(tmp_path: Path) -> None:
    """A quine needs not be opened to be known as an archive: what comes out is an archive, and stays closed."""
    itself = a_zip({"r/r.zip": b"PK\x03\x04" + b"again" * 1000})

    assert () == unpack_images(itself, tmp_path)


@pytest.mark.parametrize(
    ("where", "offset", "data"),
    [
        (CENTRAL, 24, struct.pack("<L", 5)),  # says that it is smaller
        (CENTRAL, 24, struct.pack("<L", 5000)),  # says that it is larger
        (CENTRAL, 20, struct.pack("<L", 5)),  # packed: fewer bytes than there are
        (CENTRAL, 20, struct.pack("<L", 0xFFFFFFF0)),
        (CENTRAL, 16, b"abcd"),  # checksum
        (CENTRAL, 42, struct.pack("<L", 7)),  # offset
        (CENTRAL, 42, struct.pack("<L", 0xFFFFFFF0)),
        (CENTRAL, 28, struct.pack("<H", 60_000)),  # length of the name
        (CENTRAL, 8, struct.pack("<H", 1)),  # encrypted
        (LOCAL, 6, struct.pack("<H", 1)),
        (CENTRAL, 8, struct.pack("<H", 0x40)),
        (CENTRAL, 10, struct.pack("<H", 12)),  # bzip2
        (CENTRAL, 10, struct.pack("<H", 99)),
        (LOCAL, 8, struct.pack("<H", 14)),  # another method than the directory says
        (LOCAL, 30, b"other"),  # another name than the directory says
        (CENTRAL, 34, struct.pack("<H", 3)),  # on another disk
        (END, 12, struct.pack("<L", 3)),  # size of the directory
        (END, 16, struct.pack("<L", 0x7FFFFFFF)),
        (END, 20, struct.pack("<H", 9)),  # a comment that is not there
        (END, 4, struct.pack("<H", 2)),
        (CENTRAL, 0, b"PKxx"),
        (LOCAL, 0, b"PKxx"),
    ],
)
def test_lies_are_found_out(tmp_path: Path, where: bytes, offset: int, data: bytes) -> None:
    file = patched(a_zip({"a.png": PNG, "b.png": PNG}), where, offset, data)

    assert refused(file, tmp_path) in {"archive_invalid", "archive_bomb"}


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = a_zip({"a.png": PNG, "b.md": b"# text"}).getvalue()

    assert {"archive_invalid"} == {refused(io.BytesIO(whole[:end]), tmp_path) for end in range(len(whole))}


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_damage_never_escapes_as_another_error(data: st.DataObject) -> None:
    raw = bytearray(a_zip({"a.png": PNG, "b.md": b"# text" * 50}).getvalue())
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadRequest):
        inspect(io.BytesIO(bytes(raw)))
        text_entry(io.BytesIO(bytes(raw)))


def a_zip64(entries: int, count: int | None = None) -> io.BytesIO:
    """Empty entries, as many as wanted, with the large forms of all numbers."""
    local = struct.pack("<4s5H3L2H", LOCAL, 45, 0, 0, 0, 0, 0, 0, 0, 1, 0) + b"x"
    wide = struct.pack("<2H3Q", 1, 24, 0, 0, 0)
    small = 0xFFFFFFFF
    fields = (CENTRAL, 45, 45, 0, 0, 0, 0, 0, small, small, 1, len(wide), 0, 0, 0, 0, small)
    records = bytearray((struct.pack("<4s6H3L5H2L", *fields) + b"x" + wide) * entries)
    one = len(records) // entries
    for number in range(min(entries, 100)):
        struct.pack_into("<Q", records, one * number + 47 + 20, number * len(local))
    start = len(local) * entries
    told = entries if count is None else count
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, told, told, len(records), start)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, start + len(records), 1)
    end = struct.pack("<4s4H2LH", END, 0, 0, 0xFFFF, 0xFFFF, small, small, 0)
    return io.BytesIO(local * entries + bytes(records) + end64 + locator + end)


def test_zip64_is_read(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, archive.open("a.png", "w", force_zip64=True) as entry:
        entry.write(PNG)

    assert ["a.png"] == [one.name_in_zip for one in unpack_images(file, tmp_path)]
    assert 50 == len(inspect(a_zip64(50)))


@pytest.mark.parametrize("told", [1_000_000, 3])
def test_a_million_entries_are_refused_fast(tmp_path: Path, told: int) -> None:
    """Also if the archive says that there are three."""
    file = a_zip64(1_000_000, told)
    tracemalloc.start()

    with costs_at_most(3):
        assert "archive_bomb" == refused(file, tmp_path)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 << 20


def test_memory_stays_flat(tmp_path: Path) -> None:
    file = tmp_path / "big.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("big.png", "w") as entry:
        entry.write(PNG)
        for _ in range(64):
            entry.write(bytes(1 << 20))
    target = tmp_path / "out"
    target.mkdir()
    tracemalloc.start()

    [image] = unpack_images(file, target, Limits(ratio=2000))

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert image.size > 64 << 20
    assert peak < 4 << 20


def test_it_must_not_take_long(tmp_path: Path) -> None:
    assert "archive_bomb" == refused(a_zip({"a.png": PNG}), tmp_path, Limits(seconds=-1))


def test_something_before_the_archive_is_no_harm(tmp_path: Path) -> None:
    file = io.BytesIO(b"#!/bin/sh\n" + a_zip({"a.png": PNG}).getvalue())

    assert ["a.png"] == [one.name_in_zip for one in unpack_images(file, tmp_path)]


@pytest.mark.parametrize("junk", [b"", b"PK", b"not a zip" * 1000, END, b"\0" * 70_000])
def test_what_is_no_archive_is_refused(tmp_path: Path, junk: bytes) -> None:
    assert "archive_invalid" == refused(io.BytesIO(junk), tmp_path)


def test_an_empty_archive_holds_nothing(tmp_path: Path) -> None:
    assert () == unpack_images(a_zip({}), tmp_path)
    assert text_entry(a_zip({})) is None


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["a.md"], "a.md"),
        (["z/document.md", "a.md"], "z/document.md"),
        (["deep/a.md", "b.MD"], "b.MD"),
        (["b.md", "full.md"], "full.md"),
        (["b.md", "a.md"], "b.md"),
        (["__MACOSX/._a.md", "in/a.md"], "in/a.md"),
    ],
)
def test_one_markdown_file_is_found(names: list[str], chosen: str) -> None:
    found = text_entry(a_zip({"x.png": PNG} | {name: f"# {name} ü".encode() for name in names}))

    assert found is not None
    assert (chosen, f"# {chosen} ü") == (found.name_in_zip, found.text)


def test_markdown_may_be_too_long_or_no_text() -> None:
    with pytest.raises(BadRequest) as large:
        text_entry(a_zip({"a.md": b"x" * 100}), Limits(text_bytes=99))
    with pytest.raises(BadRequest) as binary:
        text_entry(a_zip({"a.md": b"\xff\xfe\xfa"}))
    assert ("archive_bomb", "archive_invalid") == (large.value.code, binary.value.code)
