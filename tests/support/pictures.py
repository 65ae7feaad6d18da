"""Pictures of one kind or another, whole or hurt."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image, ImageDraw


def a_jpeg(size: tuple[int, int] = (320, 200), paper: str = "ivory", mode: str = "RGB", **options: Any) -> bytes:
    picture = Image.new("RGB", size, paper)
    draw = ImageDraw.Draw(picture)
    for step in range(0, min(size) if paper != "white" else 0, 7):
        draw.line((step, 0, size[0] - step, size[1]), (step % 256, 90, 200 - step % 200), 3)
    out = io.BytesIO()
    picture.convert(mode).save(out, "JPEG", **options)
    return out.getvalue()


def with_a_gap(jpeg: bytes) -> bytes:
    """The second half of its data is missing, its end is there."""
    start = jpeg.index(b"\xff\xda")
    return jpeg[: (start + len(jpeg)) // 2] + b"\xff\xd9"
