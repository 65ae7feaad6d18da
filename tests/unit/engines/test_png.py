"""A PNG whose data is not what was written is told of, though Pillow shows it."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from docmill.adapters.engines import sniff
from docmill.adapters.engines.local import image
from docmill.adapters.engines.local.damage import png
from support import documents

TEXT = documents.text_image(["Harbour report", "Total amount 417 Euro"])


def encoded(mode: str = "RGB") -> bytes:
    notes, buffer = PngInfo(), io.BytesIO()
    notes.add_text("Author", "the harbour office")
    Image.open(io.BytesIO(TEXT)).convert(mode).save(buffer, "PNG", pnginfo=notes)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "I;16"])
def test_sound_ones_are_not_called_garbled(mode: str) -> None:
    assert not png.is_garbled(encoded(mode))
    assert not png.is_garbled(encoded(mode) + b"what somebody added")


def test_each_wrong_bit_of_the_data_is_told_of_and_none_of_a_note() -> None:
    data = encoded()
    picture, note = data.index(b"IDAT"), data.index(b"tEXt")
    for at in range(picture + 4, len(data) - 12, 97):
        assert png.is_garbled(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    at = note + 8
    assert not png.is_garbled(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])


@pytest.mark.parametrize("cut", [0, 7, 12, 30, 500])
def test_a_cut_file_breaks_nothing(cut: int) -> None:
    png.is_garbled(encoded()[:cut])


@pytest.mark.parametrize(("most", "warnings"), [(1 << 20, 1), (100, 0)])
def test_a_file_too_large_to_be_held_is_not_looked_at(
    most: int, warnings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, said = encoded(), []
    source = tmp_path / "hurt.png"
    source.write_bytes(data[:-40] + bytes([data[-40] ^ 4]) + data[-39:])
    monkeypatch.setattr(image, "MOST_CHECKED", most)
    image.check_data(SimpleNamespace(media_type=sniff.PNG, source=source, warn=said.append))  # type: ignore[arg-type]
    assert warnings == len(said)
