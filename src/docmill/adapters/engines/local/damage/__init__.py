"""Pictures that are not what was written, though their decoders show them without a word.

png    its checksums, at which Pillow does not look
jpeg   data that is missing or garbled: jpeg_scans what it says of itself, jpeg_blocks a walk through its data
webp   data that can be spared: vp8 its parts
gif    data that makes other pixels than it has
"""

from __future__ import annotations

from collections.abc import Callable

from ... import sniff
from . import gif, jpeg, png, webp

CHECKS: dict[str, Callable[[bytes], bool]] = {
    sniff.JPEG: lambda data: jpeg.lacks_data(data)[0],
    sniff.WEBP: webp.is_garbled,
    sniff.GIF: gif.is_garbled,
    sniff.PNG: png.is_garbled,
}


def is_hurt(media_type: str, data: bytes) -> bool:
    return media_type in CHECKS and CHECKS[media_type](data)
