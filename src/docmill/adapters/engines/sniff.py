"""Which type the bytes are. The name is a hint that decides among kinds of text only."""

from __future__ import annotations

import codecs
import csv
import os
import re
import zipfile
from pathlib import Path, PurePath

from docmill.core.links import TARGET

PDF = "application/pdf"
PNG = "image/png"
JPEG = "image/jpeg"
TIFF = "image/tiff"
WEBP = "image/webp"
GIF = "image/gif"
BMP = "image/bmp"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
HTML = "text/html"
EML = "message/rfc822"
CSV = "text/csv"
MARKDOWN = "text/markdown"
TEXT = "text/plain"
SVG = "image/svg+xml"
ZIP = "application/zip"
OLE = "application/x-ole-storage"
EMPTY = "application/x-empty"
UNKNOWN = "application/octet-stream"

OOXML = frozenset({DOCX, PPTX, XLSX})
TEXTS = frozenset({HTML, EML, CSV, MARKDOWN, TEXT})
BY_NAME = {
    ".pdf": PDF,
    ".png": PNG,
    ".jpg": JPEG,
    ".jpeg": JPEG,
    ".tif": TIFF,
    ".tiff": TIFF,
    ".webp": WEBP,
    ".gif": GIF,
    ".bmp": BMP,
    ".docx": DOCX,
    ".pptx": PPTX,
    ".xlsx": XLSX,
    ".html": HTML,
    ".htm": HTML,
    ".eml": EML,
    ".csv": CSV,
    ".tsv": CSV,
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".txt": TEXT,
    ".text": TEXT,
    ".log": TEXT,
}
HEAD = 64 * 1024
NEAR = 1024
"""So far from the beginning a PDF's header may stand, and so far from the end its last words."""
PDF_HEADER = re.compile(rb"%PDF(?:-|.\d\.\d)", re.DOTALL)
"""Also one that was hurt."""
PDF_MARK = re.compile(rb"(?<![^\r\n])(?:\d{1,10} \d{1,5} obj\b|\d{10} \d{5} [nf])|endobj\b")
"""Where an object begins or ends, and a line of the table of them."""
PDF_OBJECTS = 3
FENCE = re.compile(rb"^ {0,3}(?:```|~~~)", re.MULTILINE)
BLANK = b"\xef\xbb\xbf\0 \t\r\n\f"
MAIL_FIELDS = frozenset(
    b"from to cc subject date received return-path delivered-to message-id mime-version reply-to sender".split()
)
MAIL_FIELD = re.compile(rb"([A-Za-z][A-Za-z0-9-]*):")
HTML_START = re.compile(
    r"\s*(<\?xml[^>]*>\s*)?(<!--(?:(?!-->).)*-->\s*)*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
HTML_TAG = re.compile(r"</?(html|body|div|p|table|h[1-6]|span|ul|br)\b[^<>]{0,2000}>", re.IGNORECASE)
MARKDOWN_SIGNS = (
    re.compile(r"^#{1,6} \S", re.MULTILINE),
    re.compile(r"^(```|~~~)", re.MULTILINE),
    re.compile(r"^[ \t]*[-*+] \S", re.MULTILINE),
    re.compile(rf"\[[^\[\]\n]{{1,500}}\]\({TARGET}>?\)"),
    re.compile(r"^\|?( *:?-{3,}:? *\|)+", re.MULTILINE),
)
OFFICE_ENTRY = re.compile(rb"PK\x03\x04.{26}(word/|ppt/|xl/)", re.DOTALL)
PRINTABLE_CONTROL = {9, 10, 12, 13, 27}


def sniff(path: Path, filename: str = "") -> str:
    """The media type of the file at *path*. Reads a little of it, and never fails on strange bytes."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head:
        return EMPTY
    return binary_type(head, path, filename) or text_type(head, filename) or UNKNOWN


def claimed(filename: str) -> str | None:
    """The type that the name promises."""
    return BY_NAME.get(PurePath(filename).suffix.lower())


def binary_type(head: bytes, path: Path, filename: str) -> str | None:
    if has_pdf_header(head, filename):
        return PDF
    for magic, media_type in (
        (b"\x89PNG\r\n\x1a\n", PNG),
        (b"\xff\xd8\xff", JPEG),
        (b"II*\x00", TIFF),
        (b"MM\x00*", TIFF),
        (b"II+\x00", TIFF),
        (b"MM\x00+", TIFF),
        (b"GIF87a", GIF),
        (b"GIF89a", GIF),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OLE),
    ):
        if head.startswith(magic):
            return media_type
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return WEBP
    if head.startswith(b"BM") and len(head) > 30 and head[14:18] in (b"\x28\0\0\0", b"\x7c\0\0\0", b"\x6c\0\0\0"):
        return BMP
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return zip_type(path)
    return PDF if is_hurt_pdf(head, path) else None


def has_pdf_header(head: bytes, filename: str) -> bool:
    """Whether it begins like a PDF. Something may stand before that, but no text in which a PDF is quoted."""
    if head.lstrip(BLANK).startswith(b"%PDF-"):
        return True
    header = PDF_HEADER.search(head, 0, NEAR)
    if header is None:
        return False
    in_line = head[: header.start()][-1:] not in (b"", b"\r", b"\n")
    may_be_quoted = in_line or claimed(filename) in TEXTS or FENCE.search(head)
    return not may_be_quoted or charset(head, whole=len(head) < HEAD) is None


def is_hurt_pdf(head: bytes, path: Path) -> bool:
    """Whether it is full of a PDF's objects, although its header is hurt, missing or quoted."""
    with path.open("rb") as file:
        file.seek(max(len(head), file.seek(0, os.SEEK_END) - HEAD))
        data = head + file.read()
    ends = any(word in data[-NEAR:] for word in (b"%%EOF", b"startxref"))
    return (ends or PDF_HEADER.search(head, 0, NEAR) is not None) and is_full_of_objects(data)


def is_full_of_objects(data: bytes) -> bool:
    """Whether most of it is objects of a PDF, and not words between them."""
    if FENCE.search(data):
        return False
    begun: int | None = None
    count = covered = 0
    for mark in PDF_MARK.finditer(data):
        if mark[0] == b"endobj":
            if begun is not None:
                count, covered, begun = count + 1, covered + mark.end() - begun, None
        elif not mark[0].endswith(b"obj"):
            covered += len(mark[0])
        elif begun is None:
            begun = mark.start()
    return count >= PDF_OBJECTS and covered > len(data) // 2


def zip_type(path: Path) -> str:
    """Office documents are ZIP files with a table of contents and one telling folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return broken_zip_type(path)
    if "[Content_Types].xml" not in names:
        return ZIP
    for folder, media_type in (("word/", DOCX), ("ppt/", PPTX), ("xl/", XLSX)):
        if any(name.startswith(folder) for name in names):
            return media_type
    return ZIP


def broken_zip_type(path: Path) -> str:
    """A cut-off office document is a broken office document, not an unknown file."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    entry = OFFICE_ENTRY.search(head)
    return {b"word/": DOCX, b"ppt/": PPTX, b"xl/": XLSX}[entry[1]] if entry else ZIP


def text_type(head: bytes, filename: str) -> str | None:
    encoding = charset(head, whole=len(head) < HEAD)
    if encoding is None:
        return None
    text = head.decode(encoding, "ignore").lstrip("\ufeff")
    hint = claimed(filename)
    if HTML_START.match(text[:4096]) and hint != MARKDOWN:
        return HTML
    if re.match(r"\s*(<\?xml[^>]*>\s*)?(<!doctype svg[^>]*>\s*)?<svg\b", text[:2048], re.IGNORECASE):
        return SVG
    if hint == HTML and HTML_TAG.search(text):
        return HTML
    if is_mail(head):
        return EML
    if hint in (CSV, MARKDOWN, TEXT):
        return hint
    if looks_like_csv(text):
        return CSV
    return MARKDOWN if sum(bool(sign.search(text)) for sign in MARKDOWN_SIGNS) >= 2 else TEXT


def charset(data: bytes, *, whole: bool = True) -> str | None:
    """The encoding of text, or None if it is no text. *whole* is False if the last character may be cut."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return encoding
    zeros = data[:4096].count(0)
    if zeros:
        return utf16_without_mark(data[:4096])
    if sum(byte < 32 and byte not in PRINTABLE_CONTROL for byte in data[:4096]) > len(data[:4096]) // 200:
        return None
    if decodes(data, "utf-8", whole):
        return "utf-8"
    if decodes(data, "gb18030", whole):
        text = data[:HEAD].decode("gb18030", "ignore")
        if sum("\u4e00" <= letter <= "\u9fff" for letter in text) > len(text) // 5:
            return "gb18030"
    head = data[:HEAD]
    return "cp1252" if sum(byte >= 128 for byte in head) < len(head) // 3 else None


def utf16_without_mark(data: bytes) -> str | None:
    even, odd = data[::2].count(0), data[1::2].count(0)
    for encoding, high, low in (("utf-16-le", odd, data[::2]), ("utf-16-be", even, data[1::2])):
        strange = sum(byte < 32 and byte not in PRINTABLE_CONTROL for byte in low)
        if high > len(data) // 5 and (even + odd - high) * 20 < high and strange * 20 < len(low):
            return encoding
    return None


def decodes(data: bytes, encoding: str, whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(data, final=whole)
    except UnicodeDecodeError:
        return False
    return True


def is_mail(head: bytes) -> bool:
    """Header lines first, two of them such as only mails have."""
    found = set()
    for number, line in enumerate(head.splitlines()[:200]):
        if not line.strip():
            break
        if line[:1] in b" \t" or (number == 0 and line.startswith(b"From ")):
            continue
        field = MAIL_FIELD.match(line)
        if field is None:
            return False
        found.add(field[1].lower())
    return len(found & MAIL_FIELDS) >= 2 and bool(found & {b"from", b"received", b"return-path", b"message-id"})


def looks_like_csv(text: str) -> bool:
    lines = text.splitlines()[:-1][:30] if len(text) > 2000 else text.splitlines()[:30]
    return len(lines) >= 3 and delimiter(lines) is not None


def delimiter(lines: list[str]) -> str | None:
    """The character that cuts every line into the same number of cells."""
    for mark in ("\t", ";", ",", "|"):
        try:
            widths = {len(row) for row in csv.reader(lines, delimiter=mark) if row}
        except csv.Error:
            continue
        if len(widths) == 1 and widths.pop() >= 2:
            return mark
    return None
