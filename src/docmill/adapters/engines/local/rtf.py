"""The bare text of an RTF file: what its readers are compared with, and the last resort."""

from __future__ import annotations

import re

TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z'])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
SKIPPED = frozenset(
    b"fonttbl colortbl stylesheet info pict object themedata colorschememapping latentstyles datastore xmlnstbl "
    b"listtable listoverridetable rsidtbl generator fldinst bkmkstart bkmkend header footer headerl headerr "
    b"headerf footerl footerr footerf pgptbl filetbl revtbl mmathPr userprops wgrffmtfilter nonshppict".split()
)
BREAKS = {b"par": "\n", b"line": "\n", b"row": "\n", b"sect": "\n", b"page": "\n", b"tab": "\t", b"cell": "\t"}
SIGNS = {b"emdash": "—", b"endash": "–", b"bullet": "•", b"lquote": "‘", b"rquote": "’"}
SIGNS |= {b"ldblquote": "“", b"rdblquote": "”"}
CODE_PAGES = {437, 708, 850, 852, 860, 862, 863, 864, 865, 866, 874, 932, 936, 949, 950, *range(1250, 1259)}


def plain_text(data: bytes) -> str:
    """Words without control words, in one pass."""
    out: list[str] = []
    raw = bytearray()
    encoding = "cp1252"
    skipped: list[bool] = [False]
    fallback = [1]
    pending = 0

    def flush() -> None:
        if raw:
            out.append(bytes(raw).decode(encoding, "replace"))
            raw.clear()

    is_first = is_starred = False
    for found in TOKEN.finditer(data):
        word, number, hexed, symbol, brace, text = found.groups()
        if brace:
            flush()
            if brace == b"{":
                skipped.append(skipped[-1])
                fallback.append(fallback[-1])
                is_first = True
            elif len(skipped) > 1:
                skipped.pop()
                fallback.pop()
            is_starred = False
            pending = 0
            continue
        if symbol == b"*":
            is_starred = is_first
            continue
        if word is not None:
            if is_first and (word in SKIPPED or is_starred):
                skipped[-1] = skipped[-1] or word not in (b"shppict", b"shpinst")
            is_first = is_starred = False
            flush()
            if word == b"ansicpg" and number and int(number) in CODE_PAGES:
                encoding = f"cp{int(number)}"
            elif word == b"uc" and number:
                fallback[-1] = min(max(int(number), 0), 8)
            elif skipped[-1]:
                continue
            elif word == b"u" and number:
                out.append(chr(int(number) % 65536))
                pending = fallback[-1]
            elif word in BREAKS or word in SIGNS:
                out.append(BREAKS.get(word) or SIGNS[word])
            continue
        is_first = False
        if skipped[-1]:
            continue
        if hexed:
            if pending:
                pending -= 1
            else:
                raw.append(int(hexed, 16))
        elif text:
            raw.extend(text[pending:])
            pending = max(0, pending - len(text))
        elif symbol in (b"~", b"-", b"_", b"\\", b"{", b"}"):
            raw.extend({b"~": b" ", b"-": b"", b"_": b"-"}.get(symbol, symbol))
    flush()
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
