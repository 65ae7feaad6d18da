"""A JPEG that lacks data is noticed; one of a rare kind, or with something to spare, is not called hurt."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from PIL import Image

from docmill.adapters.engines.local import jpeg
from support.pictures import a_jpeg, with_a_gap
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
        (WHOLE[:-2] + b"spare" + WHOLE[-2:], False),
        (OTHER_VERSION, False),
        (with_a_gap(OTHER_VERSION), True),
        (WHOLE[: len(WHOLE) // 2], True),
        (with_a_gap(WHOLE[:HEAD] + b"spare" + WHOLE[HEAD:]), True),
        (WHOLE[: SCAN + 30], True),
    ],
)
def test_what_loses_nothing_is_harmless(data, expected):
    assert (expected, 320 * 200) == jpeg.lacks_data(data)


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xd8", b"no picture", WHOLE[:HEAD], WHOLE[:SCAN], b"\xff" * 5000])
def test_what_is_no_picture_is_left_to_others(data):
    assert (False, 0) == jpeg.lacks_data(data)


def test_huge_ones_are_not_decoded_again():
    assert (False, 0) == jpeg.lacks_data(with_a_gap(a_jpeg((8000, 6300), "white")))


def test_endless_scans_are_not_walked():
    scans = WHOLE[SCAN:-2] * (jpeg.MOST_SCANS + 1)

    assert (False, 0) == jpeg.lacks_data(WHOLE[:SCAN] + scans)


@pytest.mark.parametrize(("hurt", "warnings"), [(False, 0), (True, 1)])
def test_a_hurt_picture_is_read_with_a_warning(bench: Bench, tmp_path: Path, hurt: bool, warnings: int) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(with_a_gap(WHOLE) if hurt else WHOLE)

    parsed = bench.parse(path, ocr="never")

    assert (warnings, ()) == (len(parsed.facts.get("warnings", ())), parsed.damaged_pages)
    assert "assets/" in parsed.markdown
