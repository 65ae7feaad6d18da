"""Pictures that are not what was written, as far as their own decoders or checksums tell."""

from __future__ import annotations

import re
from zlib import crc32

from .. import sniff

MAX_PIXELS = 50_000_000
"""Of one JPEG. A progressive one takes six to eight bytes for each while it is decoded, now a second time."""
LOSSES = re.compile(r"premature end|bad Huffman code|bad arithmetic code|instead of RST", re.IGNORECASE)
"""libjpeg's warnings about lost data. Odd versions and the like lose nothing."""
PNG_SIGNATURE_BYTES = 8
JPEG_END = b"\xff\xd9"


def is_corrupt(media_type: str, data: bytes) -> bool:
    """Whether part of the picture got lost. Its decoder shows the rest without an error."""
    if media_type == sniff.PNG:
        return is_corrupt_png(data)
    return media_type == sniff.JPEG and is_corrupt_jpeg(data)


def is_corrupt_png(data: bytes) -> bool:
    """Whether the checksum of a chunk that is needed to show the picture does not hold: Pillow does not look at it."""
    at = PNG_SIGNATURE_BYTES
    while at + 12 <= len(data):
        name, end = data[at + 4 : at + 8], at + 8 + int.from_bytes(data[at : at + 4])
        if name[:1].isupper() and crc32(memoryview(data)[at + 4 : end]) != int.from_bytes(data[end : end + 4]):
            return True
        if name == b"IEND":
            return False
        at = end + 4
    return False


def is_corrupt_jpeg(data: bytes) -> bool:
    """libjpeg fills gaps with grey and only warns; Pillow does not pass the warning on."""
    from simplejpeg import decode_jpeg, decode_jpeg_header

    try:
        height, width, *_ = decode_jpeg_header(data)
        if height * width > MAX_PIXELS:
            return False
        # A missing end marker alone loses nothing, and would be the only warning that is passed on.
        decode_jpeg(
            data + JPEG_END, "GRAY", strict=True, min_height=1, min_width=1
        )  # an eighth as high and wide, from all data
    except ValueError as error:
        return LOSSES.search(str(error)) is not None
    return False
