"""A hurt stream is noticed; a sound, a foreign or an encrypted one is not called hurt."""

from __future__ import annotations

import base64
import zlib

import pytest

from docmill.adapters.engines.local.pdf import streams
from support.pictures import a_jpeg, with_a_gap


def stream(data: bytes, head: bytes = b"/Filter /FlateDecode") -> bytes:
    return b"7 0 obj\n<< /Length %d %s >>\nstream\n%s\nendstream\nendobj\n" % (len(data), head, data)


PACKED = zlib.compress(b"BT (The harbour grew in this year) Tj ET " * 40)
IMAGE = b"/Subtype /Image /Filter "
JPEG = a_jpeg()
GAP = with_a_gap(JPEG)
TURNED = PACKED[:30] + bytes([PACKED[30] ^ 16]) + PACKED[31:]


@pytest.mark.parametrize(
    ("data", "images", "expected"),
    [
        (stream(PACKED) * 3, False, 0),
        (stream(PACKED) + stream(TURNED), False, 1),
        (stream(PACKED[:-9]), False, 1),
        (stream(TURNED, b"/Filter[/FlateDecode]"), False, 1),
        (stream(TURNED, b"/Subtype /Image /Filter /FlateDecode"), False, 0),
        (stream(TURNED, b"/Subtype /Image /Filter /FlateDecode"), True, 1),
        (stream(TURNED, b"/Length1 900 /Filter /FlateDecode"), False, 0),
        (stream(base64.a85encode(PACKED) + b"~>", b"/Filter [ /ASCII85Decode /FlateDecode ]"), False, 0),
        (stream(base64.a85encode(TURNED) + b"~>", b"/Filter [ /ASCII85Decode /FlateDecode ]"), False, 1),
        (stream(TURNED, b"/Filter [/LZWDecode /FlateDecode]"), False, 0),
        (stream(TURNED, b"/Filter /DCTDecode"), True, 0),
        (stream(TURNED) + b"trailer << /Encrypt 9 0 R >>", False, 0),
        (b"%PDF-1.7 no stream at all", False, 0),
        (b"", False, 0),
        (b"stream\n" + b"/Filter /FlateDecode obj stream\n", False, 0),
        (stream(PACKED).replace(b"<<", b"><"), False, 1),
        (stream(PACKED, b"/Subtype /Image /Width 800 /Height 200 /Filter\xa0 /FlateDecode"), True, 1),
        (stream(PACKED, b"/Subtype /Image /Width 800 /Height 200 /Filter\xa0 /FlateDecode"), False, 0),
        (stream(bytes(20_000), b"/Subtype /Image /Width 800 /Height 200"), True, 0),
        (stream(PACKED, b"/Subtype /Image /Width 80 0 R /Height 200"), True, 0),
        (stream(PACKED).replace(b"\n<<", b"% a remark\r\n <<"), False, 0),
    ],
)
def test_checksums(tmp_path, data, images, expected):
    path = tmp_path / "a.pdf"
    path.write_bytes(data)

    assert expected == streams.hurt(path, images=images)


@pytest.mark.parametrize(
    ("data", "images", "expected"),
    [
        (stream(PACKED, b"/Filter /FlatEDecode"), False, 1),
        (stream(PACKED, b"/Filter/Flate05ecode/Type/X"), False, 1),
        (stream(PACKED, b"/Filter [ /ASCII05Decode /FlateDecode ]"), False, 1),
        (stream(PACKED, b"/Filter [/FlateDecode /]"), False, 1),
        (stream(PACKED, b"/Subtype /Image /Filter /FlatEDecode"), False, 0),
        (stream(PACKED, b"/Subtype /Image /Filter /FlatEDecode"), True, 1),
        (stream(PACKED, b"/Length1 900 /Filter /FlatEDecode"), False, 0),
        (stream(PACKED, b"/Filter /FlatEDecode") + b"trailer << /Encrypt 9 0 R >>", False, 0),
        (stream(PACKED, b"/Filter /#46late#44ecode"), False, 0),
        (stream(TURNED, b"/Filter /#46late#44ecode"), False, 1),
        (stream(TURNED, b"/Filter /Fl"), False, 1),
        (stream(TURNED, b"/Filter 12 0 R /Type /Foreign"), False, 0),
        (stream(TURNED, b"/Filter [12 0 R] /Type /Foreign"), False, 0),
        (stream(TURNED, b"/Filter null /FFilter /Foreign"), False, 0),
        (stream(TURNED, b"/Filter []"), False, 0),
        *((stream(b"abc", b"/Filter /" + name), False, 0) for name in sorted(streams.KNOWN - {streams.FLATE})),
        *((stream(b"abc", b"/Filter [/" + name + b"]"), False, 0) for name in sorted(streams.SHORT.keys() - {b"Fl"})),
    ],
)
def test_a_filter_that_nobody_knows_was_another_one(data, images, expected):
    assert expected == streams.hurt(data, images=images)


@pytest.mark.parametrize(
    ("data", "images", "expected"),
    [
        (stream(JPEG, IMAGE + b"/DCTDecode") * 3, True, 0),
        (stream(JPEG[:-2], IMAGE + b"/DCTDecode"), True, 0),
        (stream(JPEG, IMAGE + b"/DCTDecode") + stream(GAP, IMAGE + b"/DCTDecode"), True, 1),
        (stream(GAP, IMAGE + b"[/DCT]"), True, 1),
        (stream(GAP, IMAGE + b"/DCTDecode"), False, 0),
        (stream(base64.a85encode(JPEG) + b"~>", IMAGE + b"[/ASCII85Decode /DCTDecode]"), True, 0),
        (stream(base64.a85encode(GAP) + b"~>", IMAGE + b"[/ASCII85Decode /DCTDecode]"), True, 1),
        (stream(b"\xff no letters ~>", IMAGE + b"[/ASCII85Decode /DCTDecode]"), True, 1),
        (stream(zlib.compress(JPEG), IMAGE + b"[/FlateDecode /DCTDecode]"), True, 0),
        (stream(zlib.compress(JPEG)[:-9], IMAGE + b"[/FlateDecode /DCTDecode]"), True, 1),
    ],
)
def test_a_jpeg_that_lacks_data_is_hurt(data, images, expected):
    assert expected == streams.hurt(data, images=images)


def test_only_so_many_pictures_are_looked_at():
    blank = a_jpeg((6000, 8000), "white")
    few, many = streams.MOST_JPEG * streams.PIXELS_A_BYTE // 48_000_000, 20

    assert few + 1 == streams.hurt(stream(with_a_gap(blank), IMAGE + b"/DCTDecode") * many, images=True)


def test_a_bomb_is_not_inflated_to_its_end(tmp_path):
    path = tmp_path / "a.pdf"
    path.write_bytes(stream(zlib.compress(bytes(8 << 20))))

    assert 0 == streams.hurt(path, images=False)


def objects(data: bytes) -> bytes:
    return stream(zlib.compress(data), b"/Type /ObjStm /N 2 /First 9 /Filter /FlateDecode")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (stream(PACKED), False),
        (b"5 0 obj << /Type /Font /Subtype /Type3 >> endobj" + stream(PACKED), True),
        (b"5 0 obj << /Type /OCG /Name (German) >> endobj", True),
        (objects(b"<< /Type /Font /Subtype /Type1 >>" * 50), False),
        (objects(b"<< /Type /Page >>") + objects(b"<< /Type /Font /Subtype /Type3 >>"), True),
        (stream(b"not packed at all", b"/Type /ObjStm /Filter /FlateDecode"), True),
        (objects(b"<< /Type /Page >>").partition(b"endstream")[0], True),
        (objects(bytes(8 << 20)) + objects(b"<< /Type /Page >>"), True),
    ],
)
def test_fonts_and_layers_that_hide_letters_are_found(tmp_path, data, expected):
    path = tmp_path / "a.pdf"
    path.write_bytes(data)

    assert expected == streams.may_hide_letters(data) == streams.may_hide_letters(path)
