"""A JPEG that lacks data is noticed; one of a rare kind, or with something to spare, is not called hurt."""

from __future__ import annotations

import io
from itertools import product
from pathlib import Path

import pytest
from PIL import Image

from docmill.adapters.engines.local.damage import jpeg, jpeg_blocks, jpeg_scans
from support.pictures import a_jpeg, sound_jpegs, with_a_gap, with_a_turned_bit
from unit.engines.conftest import Bench

WHOLE = a_jpeg()
HEAD = WHOLE.index(b"\xff\xdb")
SCAN = WHOLE.index(b"\xff\xda")
VERSION = WHOLE.index(b"JFIF") + 5
OTHER_VERSION = WHOLE[:VERSION] + b"\x07" + WHOLE[VERSION + 1 :]
EXIF = Image.Exif()
EXIF[274] = 6
KINDS = [
    {"mode": mode, "progressive": progressive, "subsampling": subsampling, **restart}
    for mode, progressive, subsampling, restart in product(
        ("L", "RGB", "CMYK"),
        (False, True),
        (0, 1, 2),
        ({}, {"restart_marker_blocks": 3}, {"restart_marker_rows": 1}),
    )
]
EXTRAS = [{"exif": EXIF}, {"icc_profile": bytes(99_000)}, {"comment": b"hello"}, {"keep_rgb": True}, {"quality": 100}]


def a_jpeg_of_noise() -> bytes:
    out = io.BytesIO()
    Image.effect_noise((900, 900), 90).save(out, "JPEG", quality=90)
    assert len(out.getvalue()) > 3 * jpeg_blocks.WINDOW
    return out.getvalue()


@pytest.mark.parametrize("options", [*KINDS, *EXTRAS])
def test_whole_ones_of_every_kind(options):
    data = a_jpeg(**options)

    assert not any(jpeg.lacks_data(one)[0] for one in (data, data + b"something after it" * 9, data + data, data[:-2]))


@pytest.mark.parametrize("options", [one for one in KINDS if one["mode"] != "CMYK"] + EXTRAS)
def test_hurt_ones_of_every_kind(options):
    assert (True, 320 * 200) == jpeg.lacks_data(with_a_gap(a_jpeg(**options)))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (WHOLE[:HEAD] + b"spare" + WHOLE[HEAD:], False),
        (WHOLE[:-2] + bytes(5) + WHOLE[-2:], False),
        (WHOLE[:-2] + b"\xff" * 5 + WHOLE[-2:], False),
        (WHOLE[:-2] + b"\xff\xd0" + WHOLE[-2:], False),
        (WHOLE[:-2] + b"\r\n", False),
        (WHOLE[:-2] + b"spare" + WHOLE[-2:], False),
        (WHOLE[:-2] + b"data that nobody reads" + WHOLE[-2:], True),
        (OTHER_VERSION, False),
        (with_a_gap(OTHER_VERSION), True),
        (WHOLE[: len(WHOLE) // 2], True),
        (with_a_gap(WHOLE[:HEAD] + b"spare" + WHOLE[HEAD:]), True),
        (WHOLE[: SCAN + 30], True),
    ],
)
def test_what_loses_nothing_is_harmless(data, expected):
    assert (expected, 320 * 200) == jpeg.lacks_data(data)


def test_several_hundred_sound_ones_are_not_called_hurt():
    called = [made for made, data in sound_jpegs(400) if jpeg.lacks_data(data)[0] or jpeg.lacks_data(data + b"more")[0]]

    assert [] == called


@pytest.mark.parametrize("options", [{}, {"mode": "L"}, {"subsampling": 0}, {"optimize": True}, {"quality": 95}])
def test_data_that_is_not_what_was_written_is_noticed_though_libjpeg_says_nothing(options):
    """Some blocks come twice: their codes exist, and all data that the picture needs is there."""
    data = a_jpeg(**options)
    start = data.index(b"\xff\xda") + 14
    twice = [data[:at] + data[at - 300 :] for at in range(start + 300, len(data), (len(data) - start) // 60)]
    silent = [one for one in twice if not jpeg.LOSSES.search(jpeg.murmur(one))]

    assert len(silent) > 10
    assert [] == [one for one in silent if not jpeg.lacks_data(one)[0]]


def test_a_turned_bit_that_moves_all_codes_after_it_is_noticed():
    """Of those that only change a coefficient's value nobody can know."""
    start = SCAN + 14
    hurt = [with_a_turned_bit(WHOLE, at) for at in range(start, len(WHOLE) - 2, 20)]
    silent = [one for one in hurt if not jpeg.LOSSES.search(jpeg.murmur(one))]

    assert len(silent) / 5 < len([one for one in silent if jpeg.lacks_data(one)[0]]) < len(silent)


def test_a_brightness_that_no_picture_has_is_noticed():
    """The table of quantisers says that all is 16 times as bright or dark. All codes are as they were."""
    at = WHOLE.index(b"\xff\xdb") + 5

    assert jpeg.lacks_data(WHOLE[:at] + bytes([WHOLE[at] * 16]) + WHOLE[at + 1 :])[0]


def test_intervals_behind_the_last_row_are_harmless():
    """A scanner of documents writes such files."""
    data = a_jpeg(restart_marker_rows=1)
    row = data.index(b"\xff\xd0"), data.index(b"\xff\xd1")

    assert not jpeg.lacks_data(data[:-2] + data[row[0] : row[1]] * 3 + data[-2:])[0]


def test_a_progressive_one_with_data_left_over_is_hurt():
    data = a_jpeg(progressive=True)

    assert jpeg.lacks_data(data[:-2] + b"data that nobody reads" * 2 + data[-2:])[0]


def test_large_ones_are_walked_through_piece_by_piece():
    """More data than is looked up at once."""
    noise = a_jpeg_of_noise()
    at = len(noise) // 3

    assert (False, True) == (jpeg.lacks_data(noise)[0], jpeg.lacks_data(noise[:at] + noise[at + 40 :])[0])


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xd8", b"no picture", WHOLE[:HEAD], WHOLE[:SCAN], b"\xff" * 5000])
def test_what_is_no_picture_is_left_to_others(data):
    assert (False, 0) == jpeg.lacks_data(data)


def test_huge_ones_are_not_decoded_again():
    assert (False, 0) == jpeg.lacks_data(with_a_gap(a_jpeg((8000, 6300), "white")))


def test_endless_scans_are_not_walked():
    scans = WHOLE[SCAN:-2] * (jpeg.MOST_SCANS + 1)

    assert (False, 0) == jpeg.lacks_data(WHOLE[:SCAN] + scans)


def test_scans_that_come_again_are_not_walked_again():
    again = WHOLE[:SCAN] + WHOLE[SCAN:-2] * 50 + WHOLE[-2:]

    assert jpeg_scans.MOST_SCANS == len(jpeg_scans.scans(again).found)


@pytest.mark.parametrize(("hurt", "warnings"), [(False, 0), (True, 1)])
def test_a_hurt_picture_is_read_with_a_warning(bench: Bench, tmp_path: Path, hurt: bool, warnings: int) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(with_a_gap(WHOLE) if hurt else WHOLE)

    parsed = bench.parse(path, ocr="never")

    assert (warnings, ()) == (len(parsed.facts.get("warnings", ())), parsed.damaged_pages)
    assert "assets/" in parsed.markdown
