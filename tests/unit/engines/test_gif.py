"""A GIF whose data makes other pixels than it has is told of, a sound one never."""

import io
import random
from typing import Any

import pytest
from PIL import Image

from docmill.adapters.engines.local.damage import gif
from support import documents
from support.broken import flipped

SIZES = ((1, 1), (1, 40), (33, 7), (200, 150), (640, 480))


def encoded(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "GIF", **options)
    return buffer.getvalue()


def page() -> Image.Image:
    text = documents.text_image(["Harbour report", "Total amount 417 Euro"])
    return Image.open(io.BytesIO(text)).convert("L")


def contents(chance: random.Random) -> Image.Image:
    size = chance.choice(SIZES)
    match chance.randrange(4):
        case 0:
            return Image.frombytes("L", size, chance.randbytes(size[0] * size[1]))
        case 1:
            return Image.new("L", size, chance.randrange(256))
        case 2:
            return Image.linear_gradient("L").resize(size)
        case _:
            return page()


@pytest.mark.parametrize("seed", range(8))
def test_no_sound_picture_is_called_garbled(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        image = contents(chance).convert(chance.choice(["L", "P", "1", "RGB"]))
        options: dict[str, Any] = {"interlace": chance.randrange(2), "optimize": chance.random() < 0.5}
        if chance.random() < 0.3:
            options |= {"save_all": True, "append_images": [image.rotate(90 * turn) for turn in range(3)]}
        data = encoded(image, **options)
        assert not gif.is_garbled(data), (image.size, image.mode, options)
        assert not gif.is_garbled(data + b"what somebody added"), (image.size, image.mode, options)


def test_most_wrong_bits_are_told_of() -> None:
    data = encoded(page())
    assert sum(gif.is_garbled(flipped(data, seed)) for seed in range(200)) > 150


@pytest.mark.parametrize("cut", [0, 5, 10, 13, 20, 400])
def test_a_cut_file_breaks_nothing(cut: int) -> None:
    data = encoded(page())
    gif.is_garbled(data[:cut])
    assert gif.is_garbled(data[: len(data) // 2])


def test_a_picture_of_too_much_data_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(page())
    hurt = next(one for one in (flipped(data, seed) for seed in range(20)) if gif.is_garbled(one))
    monkeypatch.setattr(gif, "MOST_CODED", 100)
    assert not gif.is_garbled(hurt)
