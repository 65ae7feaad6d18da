"""A hurt stream is noticed; a sound, a foreign or an encrypted one is not called hurt."""

from __future__ import annotations

import base64
import zlib

import pytest

from docmill.adapters.engines.local.pdf import streams


def stream(data: bytes, head: bytes = b"/Filter /FlateDecode") -> bytes:
    return b"7 0 obj\n<< /Length %d %s >>\nstream\n%s\nendstream\nendobj\n" % (len(data), head, data)


PACKED = zlib.compress(b"BT (The harbour grew in this year) Tj ET " * 40)
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
    ],
)
def test_checksums(tmp_path, data, images, expected):
    path = tmp_path / "a.pdf"
    path.write_bytes(data)

    assert expected == streams.hurt(path, images=images)


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
