"""A picture that lost data is reported as corrupt where its checksum or decoder tells; a sound one is not."""

from __future__ import annotations

import io
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from docmill.adapters.engines import sniff
from docmill.adapters.engines.local import image
from docmill.adapters.engines.local.damage import is_corrupt
from support import documents
from support.pictures import a_jpeg, with_a_gap

TEXT = documents.text_image(["Harbour report", "Total amount 417 Euro"])
KINDS = [
    {"mode": mode, "progressive": progressive, "subsampling": subsampling}
    for mode, progressive, subsampling in product(("L", "RGB"), (False, True), (0, 2))
]


def a_png(mode: str = "RGB") -> bytes:
    notes, buffer = PngInfo(), io.BytesIO()
    notes.add_text("Author", "the harbour office")
    Image.open(io.BytesIO(TEXT)).convert(mode).save(buffer, "PNG", pnginfo=notes)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "I;16"])
def test_sound_pngs_are_not_corrupt(mode: str) -> None:
    assert not is_corrupt(sniff.PNG, a_png(mode))
    assert not is_corrupt(sniff.PNG, a_png(mode) + b"what was added later")


def test_each_wrong_bit_of_a_pngs_data_is_found_and_none_of_a_note() -> None:
    data = a_png()
    picture, note = data.index(b"IDAT"), data.index(b"tEXt")
    for at in range(picture + 4, len(data) - 12, 97):
        assert is_corrupt(sniff.PNG, data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    at = note + 8
    assert not is_corrupt(sniff.PNG, data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])


@pytest.mark.parametrize("cut", [0, 7, 12, 30, 500])
def test_a_cut_file_raises_nothing(cut: int) -> None:
    is_corrupt(sniff.PNG, a_png()[:cut])
    is_corrupt(sniff.JPEG, a_jpeg()[:cut])


@pytest.mark.parametrize("options", KINDS)
def test_jpegs_of_every_kind(options: dict[str, object]) -> None:
    data = a_jpeg(**options)
    assert not is_corrupt(sniff.JPEG, data)
    assert not is_corrupt(sniff.JPEG, data[:-2]), "only the end marker is missing"
    assert is_corrupt(sniff.JPEG, data[: len(data) // 2])
    assert is_corrupt(sniff.JPEG, with_a_gap(data))


@pytest.mark.parametrize(("most", "warnings"), [(1 << 20, 1), (100, 0)])
def test_a_file_too_large_to_be_held_is_not_checked(
    most: int, warnings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, said = a_png(), []
    source = tmp_path / "corrupt.png"
    source.write_bytes(data[:-40] + bytes([data[-40] ^ 4]) + data[-39:])
    monkeypatch.setattr(image, "MAX_CHECKED_BYTES", most)
    image.check_data(SimpleNamespace(media_type=sniff.PNG, source=source, warn=said.append))  # type: ignore[arg-type]
    assert warnings == len(said)
