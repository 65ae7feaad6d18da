"""Which type the bytes are. The name is a hint that decides among kinds of text only.

`FORMATS` is the one table of formats: what is read, by which module of the local engine, and what is refused with which
code and advice."""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO

from docmill.core.errors import DocumentError
from docmill.core.links import TARGET

PDF = "application/pdf"
PNG = "image/png"
JPEG = "image/jpeg"
TIFF = "image/tiff"
WEBP = "image/webp"
GIF = "image/gif"
BMP = "image/bmp"
AVIF = "image/avif"
JP2 = "image/jp2"
HEIC = "image/heic"
EMF = "image/emf"
WMF = "image/wmf"
SVG = "image/svg+xml"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
DOC = "application/msword"
XLS = "application/vnd.ms-excel"
PPT = "application/vnd.ms-powerpoint"
RTF = "application/rtf"
ODT = "application/vnd.oasis.opendocument.text"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
ODP = "application/vnd.oasis.opendocument.presentation"
EPUB = "application/epub+zip"
OFD = "application/ofd"
XPS = "application/vnd.ms-xpsdocument"
VSDX = "application/vnd.ms-visio.drawing.main+xml"
IWORK = "application/vnd.apple.iwork"
HWP = "application/x-hwp"
HWPX = "application/hwp+zip"
HTML = "text/html"
EML = "message/rfc822"
MSG = "application/vnd.ms-outlook"
MBOX = "application/mbox"
MHTML = "multipart/related"
XML = "application/xml"
FB2 = "application/x-fictionbook+xml"
DOCBOOK = "application/docbook+xml"
JATS = "application/jats+xml"
OPML = "text/x-opml"
IPYNB = "application/x-ipynb+json"
CSV = "text/csv"
MARKDOWN = "text/markdown"
TEXT = "text/plain"
RST = "text/x-rst"
ORG = "text/org"
ASCIIDOC = "text/asciidoc"
LATEX = "application/x-tex"
VTT = "text/vtt"
SRT = "application/x-subrip"
ICS = "text/calendar"
JSON = "application/json"
YAML = "application/yaml"
TOML = "application/toml"
ZIP = "application/zip"
TAR = "application/x-tar"
GZIP = "application/gzip"
PROGRAM = "application/x-executable"
OLE = "application/x-ole-storage"
EMPTY = "application/x-empty"
UNKNOWN = "application/octet-stream"

EXPORT = "Export it as PDF or DOCX."
UNPACK = "Unpack it, or pack its files as ZIP."
NO_SPEECH = "docmill reads documents, not recordings; submit a transcript."


@dataclass(frozen=True, slots=True)
class Format:
    """One format: its name, and either the module that reads it or how it is refused."""

    media_type: str
    name: str
    endings: tuple[str, ...] = ()
    reader: str = ""
    """A module of the local engine. Empty: the format is refused."""
    advice: str = ""
    """What would help, if it is refused."""
    program: str = ""
    """The package or program that would be needed, if one would help."""


FORMATS = (
    Format(PDF, "PDF", (".pdf",), "pdf"),
    Format(DOCX, "Word", (".docx", ".docm", ".dotx", ".dotm"), "office"),
    Format(PPTX, "PowerPoint", (".pptx", ".pptm", ".ppsx", ".potx"), "office"),
    Format(XLSX, "Excel", (".xlsx", ".xlsm", ".xltx"), "office"),
    Format(XLSB, "Excel binary workbook", (".xlsb",), "sheets"),
    Format(DOC, "Word 6 to 2003", (".doc", ".dot"), "office"),
    Format(XLS, "Excel 5 to 2003", (".xls", ".xlt"), "office"),
    Format(PPT, "PowerPoint 97 to 2003", (".ppt", ".pps"), "office"),
    Format(RTF, "Rich Text Format", (".rtf",), "office"),
    Format(ODT, "OpenDocument text", (".odt", ".ott"), "office"),
    Format(ODS, "OpenDocument spreadsheet", (".ods", ".ots"), "office"),
    Format(ODP, "OpenDocument presentation", (".odp", ".otp"), "office"),
    Format(EPUB, "EPUB", (".epub",), "office"),
    Format(OFD, "OFD", (".ofd",), "office"),
    Format(XPS, "XPS", (".xps", ".oxps"), "xps"),
    Format(VSDX, "Visio drawing", (".vsdx", ".vsdm"), "xps"),
    Format(IWORK, "Pages, Numbers or Keynote with a preview", (".pages", ".numbers"), "iwork"),
    Format(HWP, "Hangul Word Processor 5", (".hwp",), "korean"),
    Format(HWPX, "Hangul Word Processor XML", (".hwpx",), "korean"),
    Format(HTML, "HTML", (".html", ".htm", ".xhtml"), "web"),
    Format(EML, "Mail", (".eml",), "mail"),
    Format(MSG, "Outlook message", (".msg",), "mail"),
    Format(MBOX, "Mailbox", (".mbox",), "mail"),
    Format(MHTML, "Web archive (MHTML)", (".mht", ".mhtml"), "mail"),
    Format(FB2, "FictionBook", (".fb2",), "markup"),
    Format(DOCBOOK, "DocBook", (".docbook", ".dbk"), "markup"),
    Format(JATS, "JATS article", (".nxml",), "markup"),
    Format(OPML, "OPML outline", (".opml",), "markup"),
    Format(XML, "XML", (".xml",), "markup"),
    Format(IPYNB, "Jupyter notebook", (".ipynb",), "notebook"),
    Format(CSV, "CSV", (".csv", ".tsv"), "text"),
    Format(MARKDOWN, "Markdown", (".md", ".markdown"), "text"),
    Format(TEXT, "Plain text", (".txt", ".text", ".log"), "text"),
    Format(RST, "reStructuredText", (".rst",), "lightweight"),
    Format(ORG, "Org", (".org",), "lightweight"),
    Format(ASCIIDOC, "AsciiDoc", (".adoc", ".asciidoc"), "lightweight"),
    Format(LATEX, "LaTeX", (".tex", ".latex"), "lightweight"),
    Format(VTT, "WebVTT subtitles", (".vtt",), "records"),
    Format(SRT, "SubRip subtitles", (".srt",), "records"),
    Format(ICS, "iCalendar", (".ics",), "records"),
    Format(JSON, "JSON", (".json",), "records"),
    Format(YAML, "YAML", (".yaml", ".yml"), "records"),
    Format(TOML, "TOML", (".toml",), "records"),
    Format(PNG, "PNG", (".png",), "image"),
    Format(JPEG, "JPEG", (".jpg", ".jpeg"), "image"),
    Format(TIFF, "TIFF", (".tif", ".tiff"), "image"),
    Format(WEBP, "WebP", (".webp",), "image"),
    Format(GIF, "GIF", (".gif",), "image"),
    Format(BMP, "BMP", (".bmp",), "image"),
    Format(AVIF, "AVIF", (".avif",), "image"),
    Format(JP2, "JPEG 2000", (".jp2", ".j2k"), "image"),
    Format(HEIC, "HEIC", (".heic", ".heif"), "image"),
    Format(SVG, "SVG", (".svg",), "picture"),
    Format(EMF, "Enhanced metafile", (".emf",), "picture"),
    Format(WMF, "Windows metafile", (".wmf",), "picture"),
    Format(ZIP, "ZIP archive", (".zip",), "archive"),
    Format(TAR, "TAR archive", (".tar",), "archive"),
    Format(GZIP, "GZIP file", (".gz", ".tgz"), "archive"),
    Format("application/x-7z-compressed", "7-Zip archive", (".7z",), advice=UNPACK),
    Format("application/vnd.rar", "RAR archive", (".rar",), advice=UNPACK),
    Format("application/x-bzip2", "BZIP2 file", (".bz2",), advice=UNPACK),
    Format("application/x-xz", "XZ file", (".xz",), advice=UNPACK),
    Format("application/zstd", "Zstandard file", (".zst",), advice=UNPACK),
    Format(OLE, "OLE container of an unknown program", advice=EXPORT),
    Format("application/x-hwp3", "Hangul Word Processor 3", advice="Save it as HWPX or PDF."),
    Format("application/vnd.visio", "Visio 2003 drawing", (".vsd",), advice="Save it as VSDX or PDF."),
    Format("application/x-mspublisher", "Publisher", (".pub",), advice=EXPORT),
    Format("application/onenote", "OneNote", (".one",), advice=EXPORT),
    Format("application/vnd.ms-works", "Microsoft Works", (".wps",), advice=EXPORT),
    Format("application/vnd.ms-word2", "Word 2", program="LibreOffice", advice="Save it there as DOCX."),
    Format("application/vnd.ms-powerpoint4", "PowerPoint 4", program="LibreOffice", advice="Save it there as PPTX."),
    Format("application/vnd.ms-excel4", "Excel 2 to 4", program="LibreOffice", advice="Save it there as XLSX."),
    Format(
        "application/vnd.wordperfect", "WordPerfect", (".wpd",), program="LibreOffice", advice="Save it there as DOCX."
    ),
    Format("image/vnd.djvu", "DjVu", (".djvu", ".djv"), program="DjVuLibre", advice="Convert it: ddjvu -format=pdf."),
    Format(
        "application/postscript", "PostScript", (".ps", ".eps"), program="Ghostscript", advice="Convert it: ps2pdf."
    ),
    Format("application/vnd.ms-htmlhelp", "Compiled HTML Help", (".chm",), advice="Export its pages as HTML."),
    Format(
        "application/x-mobipocket-ebook", "Mobipocket or Kindle book", (".mobi", ".azw3"), advice="Convert it to EPUB."
    ),
    Format("application/x-caj", "CAJ", (".caj", ".kdh"), advice=EXPORT),
    Format("image/vnd.adobe.photoshop", "Photoshop", (".psd",), advice="Export it as PNG or PDF."),
    Format("image/vnd.dwg", "AutoCAD drawing", (".dwg",), advice="Export it as PDF."),
    Format("audio/x-any", "Sound recording", (".mp3", ".wav", ".m4a", ".ogg", ".flac"), advice=NO_SPEECH),
    Format("video/x-any", "Video", (".mp4", ".mov", ".avi", ".mkv", ".webm"), advice=NO_SPEECH),
    Format("application/vnd.sqlite3", "SQLite database", (".sqlite",), advice="Export its tables as CSV."),
    Format("application/vnd.apache.parquet", "Parquet table", (".parquet",), advice="Export it as CSV."),
    Format("application/x-pem-file", "Key or certificate", advice="It holds no text to read."),
    Format(PROGRAM, "Program", (".exe",), advice="It is no document."),
)
BY_TYPE = {one.media_type: one for one in FORMATS}
BY_NAME = {ending: one.media_type for one in FORMATS if one.reader for ending in one.endings}
REFUSED_BY_NAME = {ending: one.media_type for one in FORMATS if not one.reader for ending in one.endings}

OOXML = frozenset({DOCX, PPTX, XLSX, XLSB, VSDX})
ODF = frozenset({ODT, ODS, ODP})
ZIPPED = OOXML | ODF | {EPUB, OFD, XPS, IWORK, HWPX}
"""Documents that are ZIP files inside."""
TEXTS = frozenset({HTML, EML, CSV, MARKDOWN, TEXT})
"""Kinds of text that any text may be."""
NAMED_TEXTS = frozenset({CSV, MARKDOWN, TEXT, RST, ORG, ASCIIDOC, LATEX, YAML, TOML})
"""Kinds of text that only the name tells apart."""
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
XML_START = re.compile(r"\s*<(?:\?xml\b|!--|!doctype\b|[A-Za-z_])", re.IGNORECASE)
XML_NAME = re.compile(r"<(?:([\w.-]{1,100}):)?([\w.-]{1,100})")
MAX_PROLOG_NODES = 100
TEX_START = re.compile(r"^[ \t]{0,20}\\(?:documentclass|documentstyle|begin\{document\}|usepackage)\b", re.MULTILINE)
SRT_START = re.compile(r"\s*\d{1,7}\s{1,4}\d{1,3}:\d\d:\d\d[,.]\d{1,3} *-->")
PEM_START = re.compile(rb"\s*-----BEGIN [A-Z0-9 ]{1,60}-----")
MBOX_START = re.compile(rb"From [^\r\n]{1,300}\r?\n(?:>?[A-Za-z][A-Za-z0-9-]*:|>From )")
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
    """The type that the name promises, if it is one that is read."""
    return BY_NAME.get(PurePath(filename).suffix.lower())


def name_of(media_type: str) -> str:
    """What people call the type."""
    found = BY_TYPE.get(media_type)
    return found.name if found else media_type


def refuse(media_type: str) -> DocumentError:
    """The error for a type that is not read: its name, and what would help."""
    found = BY_TYPE.get(media_type, Format(media_type, f"Files of type {media_type}", advice=EXPORT))
    facts = {"media_type": media_type, "type": found.name, "advice": found.advice or EXPORT}
    if found.program:
        return DocumentError("document_needs_program", program=found.program, **facts)
    return DocumentError("document_unsupported", **facts)


MAGIC = (
    (b"\x89PNG\r\n\x1a\n", PNG),
    (b"\xff\xd8\xff", JPEG),
    (b"II*\x00", TIFF),
    (b"MM\x00*", TIFF),
    (b"II+\x00", TIFF),
    (b"MM\x00+", TIFF),
    (b"GIF87a", GIF),
    (b"GIF89a", GIF),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", JP2),
    (b"\xff\x4f\xff\x51", JP2),
    (b"\xd7\xcd\xc6\x9a", WMF),
    (b"\x01\x00\x09\x00\x00\x03", WMF),
    (b"\x1f\x8b", GZIP),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"AT&TFORM", "image/vnd.djvu"),
    (b"ITSF\x03\x00", "application/vnd.ms-htmlhelp"),
    (b"HWP Document File V", "application/x-hwp3"),
    (b"\xdb\xa5-\x00", "application/vnd.ms-word2"),
    (b"\x09\x00\x04\x00", "application/vnd.ms-excel4"),
    (b"\x09\x02\x06\x00", "application/vnd.ms-excel4"),
    (b"\x09\x04\x06\x00", "application/vnd.ms-excel4"),
    (b"\xffWPC", "application/vnd.wordperfect"),
    (b"%!PS", "application/postscript"),
    (b"\xc5\xd0\xd3\xc6", "application/postscript"),
    (b"\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d", "application/onenote"),
    (b"8BPS\x00", "image/vnd.adobe.photoshop"),
    (b"AC10", "image/vnd.dwg"),
    (b"ID3\x02", "audio/x-any"),
    (b"ID3\x03", "audio/x-any"),
    (b"ID3\x04", "audio/x-any"),
    (b"fLaC\x00", "audio/x-any"),
    (b"OggS\x00", "audio/x-any"),
    (b"\xff\xfb", "audio/x-any"),
    (b"\x1aE\xdf\xa3", "video/x-any"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"\x7fELF", PROGRAM),
    (b"MZ\x90\x00", PROGRAM),
    (b"KDH ", "application/x-caj"),
    (b"CAJ\x00", "application/x-caj"),
)


def binary_type(head: bytes, path: Path, filename: str) -> str | None:
    if head.lstrip(BLANK).startswith(b"{\\rtf"):
        return RTF
    if head.startswith(b"\x01\x00\x00\x00") and head[40:44] == b" EMF":  # it may have a PDF inside
        return EMF
    if has_pdf_header(head, filename):
        return PDF
    for magic, media_type in MAGIC:
        if head.startswith(magic):
            return media_type
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return ole_type(path)
    if head.startswith(b"RIFF") and len(head) > 12:
        return {b"WEBP": WEBP, b"WAVE": "audio/x-any", b"AVI ": "video/x-any"}.get(head[8:12])
    if head.startswith(b"BM") and len(head) > 30 and head[14:18] in (b"\x28\0\0\0", b"\x7c\0\0\0", b"\x6c\0\0\0"):
        return BMP
    if head[4:8] == b"ftyp":
        return brand_type(head)
    if head[60:68] in (b"BOOKMOBI", b"TEXtREAd"):
        return "application/x-mobipocket-ebook"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08PK", b"PK00PK")):
        return zip_type(path)
    if head[257:262] == b"ustar" and is_tar_header(head[:512]):
        return TAR
    return PDF if is_hurt_pdf(head, path) else None


def brand_type(head: bytes) -> str:
    """Pictures, sound and video share one container; the brand tells them apart."""
    size = min(struct.unpack(">I", head[:4])[0], 256)
    brands = {head[8:12], *(head[at : at + 4] for at in range(16, size, 4))}
    if brands & {b"avif", b"avis"}:
        return AVIF
    if head[8:12] == b"jp2 ":
        return JP2
    if brands & {b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1"} and head[8:12] not in (
        b"isom",
        b"mp42",
        b"qt  ",
    ):
        return HEIC
    return "audio/x-any" if head[8:11] == b"M4A" else "video/x-any"


def is_tar_header(block: bytes) -> bool:
    try:
        said = int(block[148:156].strip(b" \0") or b"0", 8)
    except ValueError:
        return False
    return said == sum(block[:148]) + 8 * 32 + sum(block[156:])


OLE_STREAMS = (
    ("WordDocument", DOC),
    ("Workbook", XLS),
    ("Book", XLS),
    ("PowerPoint Document", PPT),
    ("__properties_version1.0", MSG),
    ("FileHeader", HWP),
    ("VisioDocument", "application/vnd.visio"),
    ("Quill", "application/x-mspublisher"),
    ("MatOST", "application/vnd.ms-works"),
    ("PP40", "application/vnd.ms-powerpoint4"),
)
"""Streams in the root folder of an OLE file, and what they tell. The names are compared without case."""


def ole_type(path: Path) -> str:
    try:
        with path.open("rb") as file:
            names = {name.casefold() for name in root_streams(file)}
    except (struct.error, IndexError, ValueError, OSError):
        names = set()
    if "encryptedpackage" in names:
        return OLE
    return next((media_type for name, media_type in OLE_STREAMS if name.casefold() in names), OLE)


MAX_OLE_ENTRIES = 20_000


def root_streams(file: BinaryIO) -> list[str]:
    """Names in the root folder of an OLE file. Embedded documents lie in folders of their own."""
    header = file.read(512)
    shift = struct.unpack_from("<H", header, 30)[0]
    first_directory = struct.unpack_from("<I", header, 48)[0]
    if shift not in (9, 12):
        raise ValueError("an unknown sector size")
    size = 1 << shift
    table_sectors = [one for one in struct.unpack_from("<109I", header, 76) if one < 0xFFFFFFFA]

    def sector(number: int) -> bytes:
        file.seek((number + 1) << shift)
        return file.read(size)

    def following(number: int) -> int:
        per_sector = size // 4
        at: int = struct.unpack_from("<I", sector(table_sectors[number // per_sector]), number % per_sector * 4)[0]
        return at

    entries: list[bytes] = []
    number = first_directory
    while number < 0xFFFFFFFA and len(entries) < MAX_OLE_ENTRIES:
        data = sector(number)
        entries += [data[at : at + 128] for at in range(0, len(data) - 127, 128)]
        try:
            number = following(number)
        except (IndexError, struct.error):
            break
    if not entries:
        return []
    found: list[str] = []
    seen: set[int] = set()
    waiting = [struct.unpack_from("<I", entries[0], 76)[0]]
    while waiting:
        at = waiting.pop()
        if at in seen or at >= len(entries):
            continue
        seen.add(at)
        entry = entries[at]
        length = min(struct.unpack_from("<H", entry, 64)[0], 64)
        found.append(entry[: max(0, length - 2)].decode("utf-16-le", "replace"))
        waiting += struct.unpack_from("<2I", entry, 68)
    return found


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


PARTS = (
    ("word/", DOCX),
    ("ppt/", PPTX),
    ("xl/workbook.bin", XLSB),
    ("xl/", XLSX),
    ("visio/", VSDX),
)
"""Beginnings of names in an OOXML package."""
OTHER_PARTS = (
    ("META-INF/container.xml", EPUB),
    ("OFD.xml", OFD),
    ("Contents/content.hpf", HWPX),
    ("FixedDocSeq.fdseq", XPS),
    ("FixedDocumentSequence.fdseq", XPS),
    ("Index/Document.iwa", IWORK),
    ("Index.zip", IWORK),
    ("index.apxl", IWORK),
    ("index.apxl.gz", IWORK),
    ("buildVersionHistory.plist", IWORK),
    ("QuickLook/Preview.pdf", IWORK),
)
MIMETYPES = {
    b"application/epub+zip": EPUB,
    b"application/hwp+zip": HWPX,
    **{f"application/vnd.oasis.opendocument.{name}".encode(): kind for name, kind in (
        ("text", ODT), ("text-template", ODT), ("text-master", ODT), ("text-web", ODT),
        ("spreadsheet", ODS), ("spreadsheet-template", ODS),
        ("presentation", ODP), ("presentation-template", ODP), ("graphics", ODP), ("graphics-template", ODP),
    )},
    b"application/vnd.sun.xml.writer": ODT,
    b"application/vnd.sun.xml.calc": ODS,
    b"application/vnd.sun.xml.impress": ODP,
}  # fmt: skip
"""What the entry `mimetype` says, wherever it stands."""


def zip_type(path: Path) -> str:
    """Many documents are ZIP files; an entry tells which."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            said = mimetype_of(archive) if "mimetype" in names else b""
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error):
        return broken_zip_type(path)
    if said in MIMETYPES:
        return MIMETYPES[said]
    known = set(names)
    if "[Content_Types].xml" in known:
        for beginning, media_type in PARTS:
            if any(name.startswith(beginning) for name in names):
                return media_type
        if any(name.endswith((".fdseq", ".fpage")) for name in names):
            return XPS
    for name, media_type in OTHER_PARTS:
        if name in known:
            return media_type
    if "content.xml" in known and "META-INF/manifest.xml" in known:
        return ODT
    return ZIP


def mimetype_of(archive: zipfile.ZipFile) -> bytes:
    try:
        with archive.open("mimetype") as entry:
            return entry.read(100).strip()
    except (zipfile.BadZipFile, zlib.error, RuntimeError, OSError, EOFError):
        return b""


def broken_zip_type(path: Path) -> str:
    """A cut-off office document is a broken office document, not an unknown file."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if head[30:38] == b"mimetype":
        said = max((one for one in MIMETYPES if head.startswith(one, 38)), key=len, default=b"")
        if said:
            return MIMETYPES[said]
    entry = OFFICE_ENTRY.search(head)
    return {b"word/": DOCX, b"ppt/": PPTX, b"xl/": XLSX}[entry[1]] if entry else ZIP


def text_type(head: bytes, filename: str) -> str | None:
    encoding = charset(head, whole=len(head) < HEAD)
    if encoding is None:
        return None
    text = head.decode(encoding, "ignore").lstrip("\ufeff")
    hint = claimed(filename)
    if PEM_START.match(head):
        return "application/x-pem-file"
    if HTML_START.match(text[:4096]) and hint != MARKDOWN:
        return HTML
    if hint not in (HTML, MARKDOWN, TEXT) and (found := xml_type(text, hint)):
        return found
    if hint == HTML and HTML_TAG.search(text):
        return HTML
    if MBOX_START.match(head):
        return MBOX
    fields = mail_fields(head)
    if is_mail(fields) or b"mime-version" in fields:
        return MHTML if is_web_archive(head, fields, hint) else EML
    if found := signed_text(text, hint):
        return found
    if hint in NAMED_TEXTS:
        return hint
    if looks_like_csv(text):
        return CSV
    return MARKDOWN if sum(bool(sign.search(text)) for sign in MARKDOWN_SIGNS) >= 2 else TEXT


def signed_text(text: str, hint: str | None) -> str | None:
    """Kinds of text that begin in a way of their own."""
    if re.match(r"WEBVTT(?![^\s])", text):
        return VTT
    if SRT_START.match(text[:200]):
        return SRT
    if re.match(r"\s{0,100}BEGIN:VCALENDAR\b", text, re.IGNORECASE):
        return ICS
    if text.lstrip()[:1] in ("{", "[") and hint not in NAMED_TEXTS:
        return json_type(text, hint)
    if hint in (None, TEXT) and TEX_START.search(text):
        return LATEX
    return None


def json_type(text: str, hint: str | None) -> str | None:
    if '"nbformat"' in text or hint == IPYNB:
        return IPYNB
    if hint == JSON:
        return JSON
    if len(text.encode("utf-8", "ignore")) >= HEAD - 4:  # only the beginning is here
        return JSON if re.match(r'\s*[\[{]\s*(?:"[^"\n]{0,200}"\s*[:,]|[\[{])', text[:1000]) else None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return JSON


def xml_type(text: str, hint: str | None) -> str | None:
    """The vocabulary of an XML text, by its root element."""
    if not XML_START.match(text[:2000]):
        return None
    prefix, name, start, doctype = root_of(text)
    if name is None or not (text.lstrip().startswith("<?xml") or "xmlns" in start or doctype or hint is not None):
        return SVG if name == "svg" else None
    namespace = re.search(rf"""xmlns{":" + re.escape(prefix) if prefix else ""}\s*=\s*["']([^"']{{0,300}})""", start)
    return vocabulary(name, namespace[1] if namespace else "", doctype, hint)


def vocabulary(name: str, namespace: str, doctype: str, hint: str | None) -> str | None:
    if name == "svg":
        return SVG
    if name == "FictionBook":
        return FB2
    if name == "opml":
        return OPML
    if name == "html" or namespace == "http://www.w3.org/1999/xhtml":
        return HTML
    if "docbook" in namespace.lower() or "docbook" in doctype.lower() or hint == DOCBOOK:
        return DOCBOOK
    if (
        any(word in doctype for word in ("JATS", "NLM//DTD", "journalpublishing"))
        or name == "pmc-articleset"
        or hint == JATS
    ):
        return JATS
    return XML if hint in (None, XML, FB2, OPML, SVG) or hint not in NAMED_TEXTS else None


def root_of(text: str) -> tuple[str, str | None, str, str]:
    """Prefix, name and start tag of the root element, and the DOCTYPE before it."""
    at, doctype = 0, ""
    for _ in range(MAX_PROLOG_NODES):
        at = text.find("<", at)
        if at < 0:
            break
        if text.startswith("<?", at):
            end = text.find("?>", at)
            at = end + 2
        elif text.startswith("<!--", at):
            end = text.find("-->", at)
            at = end + 3
        elif text[at : at + 9].upper() == "<!DOCTYPE":
            end, subset = text.find(">", at), text.find("[", at)
            if 0 <= subset < end:
                end = text.find("]", subset)
                end = text.find(">", end) if end >= 0 else -1
            doctype = text[at : min(end, at + 1000)]
            at = end + 1
        else:
            found = XML_NAME.match(text, at)
            end = text.find(">", at)
            if found is None:
                break
            return found[1] or "", found[2], text[at : end if 0 <= end < at + 4000 else at + 4000], doctype
        if end < 0:
            break
    return "", None, "", doctype


def is_web_archive(head: bytes, fields: set[bytes], hint: str | None) -> bool:
    """A saved web page is a mail without a receiver whose parts belong to each other."""
    if hint == MHTML or b"snapshot-content-location" in fields:
        return True
    return b"multipart/related" in head[:4096].lower() and not fields & {b"to", b"received", b"message-id"}


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


def mail_fields(head: bytes) -> set[bytes]:
    """Names of the header lines that it begins with; none if something else stands among them."""
    found = set()
    for number, line in enumerate(head.splitlines()[:200]):
        if not line.strip():
            break
        if line[:1] in b" \t" or (number == 0 and line.startswith(b"From ")):
            continue
        field = MAIL_FIELD.match(line)
        if field is None:
            return set()
        found.add(field[1].lower())
    return found


def is_mail(fields: set[bytes]) -> bool:
    """Two header lines such as only mails have."""
    return len(fields & MAIL_FIELDS) >= 2 and bool(fields & {b"from", b"received", b"return-path", b"message-id"})


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
