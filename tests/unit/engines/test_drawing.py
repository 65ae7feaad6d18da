"""Pages as pictures, drawn in a child."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from docmill.adapters.engines.local import Limits, LocalEngine
from docmill.core.errors import DocmillError, StageFailed
from support import documents, hostile


@pytest.fixture(scope="module")
def draw(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("drawing")
    with asyncio.Runner() as runner:
        engine = LocalEngine(1, spares=0)

        def drawn(data: bytes, page: int = 0, width: int = 300) -> Image.Image:
            source = folder / "source"
            source.write_bytes(data)
            return Image.open(io.BytesIO(runner.run(engine.draw(source, page, width=width))))

        yield drawn
        runner.run(engine.close())


def test_a_page_of_a_pdf_has_the_width_that_was_asked_for(draw: Any) -> None:
    data = hostile.pages(2)

    first, second = draw(data, 0, 300), draw(data, 1, 500)

    assert [("PNG", 300), ("PNG", 500)] == [(image.format, image.width) for image in (first, second)]
    assert first.height == pytest.approx(300 * 842 / 595, abs=2)
    assert first.convert("L").getextrema()[0] < 128, "there is ink on it"


def test_a_picture_is_its_own_page_and_each_frame_of_a_tiff_is_one(draw: Any) -> None:
    out = io.BytesIO()
    frames = [Image.new("RGB", (40, 20), colour) for colour in ("red", "lime")]
    frames[0].save(out, "TIFF", save_all=True, append_images=frames[1:])

    assert (0, 255, 0) == draw(out.getvalue(), 1, 80).convert("RGB").getpixel((40, 20))
    assert (80, 40) == draw(documents.png(40, 20), 0, 80).size


@pytest.mark.parametrize(
    ("data", "page", "code"),
    [
        (hostile.pages(2), 2, "page_not_found"),
        (documents.png(), 1, "page_not_found"),
        (b"just text", 0, "page_images_unavailable"),
        (hostile.truncated(documents.png(), 0.6), 0, "document_broken"),
        (hostile.encrypted_pdf(), 0, "document_encrypted"),
        (hostile.circular_pages(), 0, "document_broken"),
        (hostile.huge_png(), 0, "document_too_many_pixels"),
    ],
)
def test_what_cannot_be_drawn_says_why(draw: Any, data: bytes, page: int, code: str) -> None:
    with pytest.raises(DocmillError) as caught:
        draw(data, page)

    assert (code, "page" in code) == (caught.value.code, 404 == caught.value.status)


def test_a_sheet_as_large_as_a_town_and_a_very_long_one_stay_small(draw: Any) -> None:
    assert (300, 300) == draw(hostile.endless_page()).size
    width, height = draw(documents.png(2, 5000), 0, 300).size
    assert height <= 2400
    assert width >= 1


def test_a_page_that_takes_too_long_ends_its_child_only(naughty: Callable[..., Any], tmp_path: Path) -> None:
    """The two forms draw themselves and each other: PDFium needs ages, or dies of it."""
    source = tmp_path / "source"
    source.write_bytes(hostile.recursive_form())

    async def play(engine: LocalEngine, work: Any) -> str:
        with pytest.raises(StageFailed):
            await engine.draw(source, 0, width=300)
        parsed = await engine.start(work("say", "still here"), lambda _done, _total: None)
        return parsed.pages[0].markdown

    assert "still here" == naughty(play, Limits(seconds=20, render_seconds=1.5))
