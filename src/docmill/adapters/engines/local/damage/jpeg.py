"""JPEGs that lack data, or have it garbled.

libjpeg fills gaps with grey and only murmurs, and Pillow does not pass that on. Of garbled data it says nothing as long
as that could be a picture: so the data is walked through, too.
"""

from __future__ import annotations

import re

from .jpeg_blocks import MOST_JUNK, is_garbled
from .jpeg_scans import SEGMENT, scans

MOST_PIXELS = 50_000_000
"""Of one picture. A progressive one takes six to eight bytes for each while it is decoded, now a second time."""
MOST_SCANS = 100
"""Of a progressive picture, which has about ten: each takes a walk over all of it, however few bytes it has."""
START, SCAN, END = b"\xff\xd8", b"\xff\xda", b"\xff\xd9"
DESCRIBING = frozenset({*range(0xE0, 0xF0), 0xFE})
"""Segments of applications (EXIF, profiles, thumbnails) and comments."""
LOSSES = re.compile(r"premature end of data|bad Huffman code|bad arithmetic code|instead of RST")
"""What is murmured of data that got lost. Odd versions and the like lose nothing."""
LEFT_OVER = re.compile(r"(?<!\d)(\d+) extraneous bytes before marker")
NO_END = "Premature end of JPEG file"


def lacks_data(data: bytes) -> tuple[bool, int]:
    """Whether part of the picture is not what was written, and how many pixels were looked at.

    What is too large, or of a kind that only others read, is not looked at.
    """
    from simplejpeg import decode_jpeg_header

    data = bare(data)
    try:
        height, width, *_ = decode_jpeg_header(data)
    except ValueError:
        return False, 0
    if height * width > MOST_PIXELS or data.count(SCAN) > MOST_SCANS:
        return False, 0
    said = murmur(data)
    if NO_END in said:
        # That is all one hears, whether only the end is missing or half of the picture as well.
        said = murmur(data + END)
    return LOSSES.search(said) is not None or goes_astray(data, said), height * width


def goes_astray(data: bytes, said: str) -> bool:
    """Whether the data does not end with the picture, or says on its way what no picture has."""
    try:
        walked = scans(data)
    except (LookupError, ValueError):
        return False
    if any(map(is_garbled, walked.found)):
        return True
    left = LEFT_OVER.search(said)
    return left is not None and not walked.are_all and int(left[1]) > MOST_JUNK


def bare(data: bytes) -> bytes:
    """The picture without what describes it: only the first murmur is heard, and that might be about a version."""
    kept, at = [START], len(START)
    while found := SEGMENT.search(data, at):
        if found[1] == SCAN[1:]:
            return b"".join([*kept, data[found.start() :]])
        at = found.end() - 2 + int.from_bytes(found[2])
        if found[1][0] not in DESCRIBING:
            kept.append(data[found.start() : at])
    return data


def murmur(data: bytes) -> str:
    from simplejpeg import decode_jpeg

    try:
        decode_jpeg(data, "GRAY", strict=True, min_height=1, min_width=1)  # an eighth as high and wide, from all data
    except ValueError as error:
        return str(error)
    return ""
