"""A stream that cannot be decoded is counted; a sound, a foreign or an encrypted one is not."""

from __future__ import annotations

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
        (stream(TURNED, b"/Filter [/LZWDecode /FlateDecode]"), False, 0),
        (stream(TURNED) + b"trailer << /Encrypt 9 0 R >>", False, 0),
        (b"%PDF-1.7 no stream at all", False, 0),
        (b"", False, 0),
        (b"stream\n" + b"/Filter /FlateDecode obj stream\n", False, 0),
        (stream(JPEG, IMAGE + b"/DCTDecode") * 3, True, 0),
        (stream(JPEG[:-2], IMAGE + b"/DCTDecode"), True, 0),
        (stream(JPEG, IMAGE + b"/DCTDecode") + stream(GAP, IMAGE + b"/DCTDecode"), True, 1),
        (stream(GAP, IMAGE + b"/DCTDecode"), False, 0),
    ],
)
def test_streams_that_cannot_be_decoded_are_counted(tmp_path, data, images, expected):
    path = tmp_path / "a.pdf"
    path.write_bytes(data)

    assert expected == streams.count_corrupt(path, images=images) == streams.count_corrupt(data, images=images)


def test_a_bomb_is_not_inflated_to_its_end(tmp_path):
    path = tmp_path / "a.pdf"
    path.write_bytes(stream(zlib.compress(bytes(8 << 20))))

    assert 0 == streams.count_corrupt(path, images=False)
