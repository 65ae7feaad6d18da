"""A WebP whose data is garbled is noticed, though libwebp decodes it; a sound one of any kind is not called hurt."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from docmill.adapters.engines.local.damage import webp
from docmill.adapters.engines.local.damage.vp8 import Frame
from support.pictures import FOUR_PARTS, a_webp, drawn, sound_webps, with_a_turned_bit
from unit.engines.conftest import Bench

WHOLE = a_webp()
KINDS = [
    {},
    {"quality": 20, "method": 0},
    {"quality": 95, "method": 6},
    {"size": (1, 1)},
    {"size": (1, 1), "lossless": True},
    {"size": (700, 16)},
    {"lossless": True},
    {"mode": "RGBA"},
    {"exif": Image.Exif().tobytes(), "icc_profile": bytes(300)},
]


def with_alpha(**options: object) -> bytes:
    picture = drawn((320, 200))
    picture.putalpha(drawn((320, 200)).convert("L"))
    out = io.BytesIO()
    picture.save(out, "WEBP", **options)
    return out.getvalue()


def animated() -> bytes:
    out = io.BytesIO()
    drawn((320, 200)).save(out, "WEBP", save_all=True, append_images=[Image.new("RGB", (320, 200))])
    return out.getvalue()


@pytest.mark.parametrize("data", [*(a_webp(**kind) for kind in KINDS), with_alpha(), animated(), FOUR_PARTS])
def test_whole_ones_of_every_kind(data):
    assert not any(webp.is_garbled(one) for one in (data, data + b"something after it" * 9, data + data))


def test_several_hundred_sound_ones_are_not_called_hurt():
    assert [] == [made for made, data in sound_webps(400) if webp.is_garbled(data)]


def silent(data: bytes, places: range) -> list[bytes]:
    """Those with a turned bit that libwebp decodes all the same."""
    return [one for one in (with_a_turned_bit(data, at) for at in places) if webp.decodes(one)]


@pytest.mark.parametrize("data", [WHOLE, a_webp(quality=30, method=0), animated()])
def test_turned_bits_are_noticed_in_lossy_ones_though_libwebp_says_nothing(data):
    start = data.index(b"VP8 ") + 30
    end = start + int.from_bytes(data[start - 26 : start - 22], "little") * 3 // 4

    hurt = silent(data, range(start, end, (end - start) // 60))

    assert len(hurt) > 5
    assert len([one for one in hurt if webp.is_garbled(one)]) > 0.9 * len(hurt)  # some end at the end by chance


@pytest.mark.parametrize("number", range(5))
def test_every_part_is_looked_at(number):
    frame = Frame.parse(webp.first_picture(FOUR_PARTS)[b"VP8 "])
    parts = list(frame.parts)
    parts[number] += b"data that nobody reads"
    longer = webp.packed({b"VP8 ": Frame(frame.head, tuple(parts)).packed()})

    assert (True, True) == (webp.decodes(longer), webp.is_garbled(longer))


def test_a_frame_is_packed_as_it_was():
    data = webp.first_picture(FOUR_PARTS)[b"VP8 "]
    frame = Frame.parse(data)

    assert (5, (32, 64), data) == (len(frame.parts), frame.size, frame.packed())


@pytest.mark.parametrize(("data", "chunk"), [(with_alpha(), b"ALPH"), (a_webp(lossless=True), b"VP8L")])
def test_data_left_over_is_noticed_in_alpha_and_lossless_ones(data, chunk):
    chunks = dict(webp.first_picture(data))
    chunks[chunk] += b"data that nobody reads"

    assert (True, True) == (webp.decodes(webp.packed(chunks)), webp.is_garbled(webp.packed(chunks)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF",
        b"no picture at all",
        WHOLE[:20],
        WHOLE[:30],
        WHOLE[: len(WHOLE) // 2],
        webp.packed({}),
        webp.packed({b"VP8 ": b""}),
        webp.packed({b"VP8 ": bytes(40)}),
        webp.packed({b"VP8 ": b"\xff" * 40}),
        webp.packed({b"VP8L": b""}),
        webp.packed({b"VP8L": b"\x2f" + b"\xff" * 9}),
        webp.packed({b"ANMF": b""}),
        webp.packed({b"ANMF": bytes(99)}),
    ],
)
def test_what_is_no_picture_is_left_to_others(data):
    assert not webp.is_garbled(data)


@pytest.mark.parametrize(("hurt", "warnings"), [(False, 0), (True, 1)])
def test_a_hurt_picture_is_read_with_a_warning(bench: Bench, tmp_path: Path, hurt: bool, warnings: int) -> None:
    found = next(one for one in silent(WHOLE, range(60, len(WHOLE), 7)) if webp.is_garbled(one))
    path = tmp_path / "a.webp"
    path.write_bytes(found if hurt else WHOLE)

    parsed = bench.parse(path, ocr="never")

    assert (warnings, ()) == (len(parsed.facts.get("warnings", ())), parsed.damaged_pages)
    assert "assets/" in parsed.markdown
