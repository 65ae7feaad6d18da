"""Plain pictures come out of the file pixel by pixel; whatever is not plain is left to PDFium."""

from __future__ import annotations

import zlib

import pytest

from docmill.adapters.engines.local.pdf import pixels

WIDE, HIGH = 24, 12
RED = bytes([200, 30, 20]) * WIDE * HIGH
NOISE = bytes(n * 7919 % 251 for n in range(3 * WIDE * HIGH))
HALF = bytes(0 if x < WIDE // 2 else 255 for _ in range(HIGH) for x in range(WIDE))
RGB = b"/ColorSpace /DeviceRGB"
MASKED = RGB + b" /SMask 9 0 R"


def stored(packed: bytes, more: bytes, number: int = 7, size: tuple[int, int] = (WIDE, HIGH)) -> bytes:
    head = b"/Subtype /Image /Width %d /Height %d /BitsPerComponent 8 /Filter /FlateDecode " % size
    return b"\n%d 0 obj\n<< %s %s >>\nstream\r\n%s\nendstream\nendobj" % (number, head, more, packed)


def mask(alpha: bytes, more: bytes = b"/ColorSpace /DeviceGray") -> bytes:
    return stored(zlib.compress(alpha), more, 9)


def taken(tmp_path, packed: bytes, file: bytes):
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF-1.7" + file)
    with pixels.opened(path) as found:
        return found.picture(packed)


def test_the_pixels_are_those_of_the_file(tmp_path):
    packed = zlib.compress(NOISE)

    image = taken(tmp_path, packed, stored(zlib.compress(RED), RGB, 5) + stored(packed, RGB))

    assert ("RGB", (WIDE, HIGH)) == (image.mode, image.size)
    assert NOISE == image.tobytes()


def test_a_profile_of_three_channels_is_colour_and_of_one_is_grey(tmp_path):
    for data, mode in ((NOISE, "RGB"), (NOISE[: WIDE * HIGH], "L")):
        packed = zlib.compress(data)
        assert mode == taken(tmp_path, packed, stored(packed, b"/ColorSpace [ /ICCBased 3 0 R ]")).mode


def test_what_is_transparent_shows_the_page(tmp_path):
    packed = zlib.compress(NOISE)

    image = taken(tmp_path, packed, stored(packed, MASKED) + mask(HALF))
    whole = taken(tmp_path, packed, stored(packed, MASKED) + mask(bytes([255]) * WIDE * HIGH))

    assert (255, 255, 255) == image.getpixel((0, 0))
    assert whole.getpixel((WIDE - 1, 3)) == image.getpixel((WIDE - 1, 3))
    assert NOISE == whole.tobytes()


def test_the_newest_mask_of_a_number_counts(tmp_path):
    packed = zlib.compress(NOISE)

    image = taken(tmp_path, packed, mask(HALF) + stored(packed, MASKED) + mask(bytes([255]) * WIDE * HIGH))

    assert NOISE == image.tobytes()


def test_rows_filtered_as_in_png(tmp_path):
    rows = [NOISE[at : at + 3 * WIDE] for at in range(0, len(NOISE), 3 * WIDE)]
    above = [bytes(3 * WIDE), *rows]
    upwards = b"".join(
        b"\2" + bytes((one - two) % 256 for one, two in zip(row, before, strict=True))
        for row, before in zip(rows, above[:-1], strict=True)
    )
    packed = zlib.compress(upwards)
    more = RGB + b" /DecodeParms << /Predictor 15 /Colors 3 /Columns %d /BitsPerComponent 8 >>" % WIDE

    assert NOISE == taken(tmp_path, packed, stored(packed, more)).convert("RGB").tobytes()


@pytest.mark.parametrize(
    ("data", "more"),
    [
        (NOISE, b"/ColorSpace /DeviceCMYK"),
        (NOISE, b"/ColorSpace 7 0 R"),
        (NOISE[: WIDE * HIGH], b"/ColorSpace [ /Indexed /DeviceRGB 127 35 0 R ]"),
        (NOISE, RGB + b" /Decode [1 0 1 0 1 0]"),
        (NOISE, RGB + b" /Mask [0 0 0 0 0 0]"),
        (NOISE, RGB + b" /DecodeParms << /Predictor 2 /Colors 3 >>"),
        (NOISE, RGB + b" /DecodeParms << /Predictor 15 /Colors 3 /Columns 24 >>"),
        (NOISE, RGB + b" /DecodeParms 8 0 R"),
        (NOISE, MASKED),
        (NOISE[:-1], RGB),
        (NOISE + b"more", RGB),
        (NOISE + bytes(9 << 20), RGB),
    ],
)
def test_what_is_not_plain_is_left_to_pdfium(tmp_path, data, more):
    packed = zlib.compress(data)

    assert taken(tmp_path, packed, stored(packed, more)) is None


@pytest.mark.parametrize(
    "mask_of",
    [mask(HALF, b"/ColorSpace /DeviceGray /Matte [0 0 0]"), mask(HALF[:-3]), mask(HALF, RGB), b"\n9 0 obj\n<< >>"],
)
def test_a_mask_that_is_not_plain_leaves_all_to_pdfium(tmp_path, mask_of):
    packed = zlib.compress(NOISE)

    assert taken(tmp_path, packed, stored(packed, MASKED) + mask_of) is None


def test_broken_and_foreign_bytes(tmp_path):
    packed = zlib.compress(NOISE)
    hurt = packed[:40] + bytes([packed[40] ^ 8]) + packed[41:]

    assert taken(tmp_path, packed, b"") is None
    assert taken(tmp_path, hurt, stored(hurt, RGB)) is None
    assert taken(tmp_path, packed[:90], stored(packed[:90], RGB)) is None
    assert taken(tmp_path, packed, stored(packed, RGB, size=(90_000, 90_000))) is None


def test_an_empty_file_has_none(tmp_path):
    path = tmp_path / "a.pdf"
    path.write_bytes(b"")

    with pixels.opened(path) as found:
        assert found is None
