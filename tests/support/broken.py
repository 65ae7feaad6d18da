"""Several hundred broken files, always the same ones: cut, bits flipped, bent by hand.

`all_files()` gives every one; `some_files()` a few of each kind, for a suite that must stay quick.
"""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from docmill.adapters.engines.markdown import coverage
from docmill.core.errors import DocmillError, DocumentError
from docmill.core.parsed import Parsed
from support import documents, hostile
from support.documents import assemble_pdf

FLIPS = 12
MEANT = frozenset({"parse_timeout", "parse_memory", "parse_crashed", "parse_output_too_large"})
"""How a file may end that was made to kill its reader: the child dies, the service says so."""
KILLERS = ("pdf/recursive form", "pdf/self-drawing form", "bomb/")
SLOW_BOMBS = frozenset({"inflating pdf", "one line", "many entries", "million pages"})
LOST = 0.5
TEXTS = frozenset({"html", "eml", "csv", "txt", "md", "utf16", "gb18030", "latin1"})
"""Formats in which any beginning of a file is a file."""


@dataclass(frozen=True, slots=True)
class Broken:
    name: str
    data: bytes
    whole: str = ""
    """The format of the sound file that it was made from, if from one."""

    @property
    def kind(self) -> str:
        return self.name.split("/")[0]

    @property
    def filename(self) -> str:
        ending = {"utf16": "txt", "gb18030": "txt", "latin1": "txt", "scan": "pdf", "rich": "pdf"}
        return f"broken.{ending.get(self.whole, self.whole)}" if self.whole else "broken"


def complaint(file: Broken, ended: Parsed | DocmillError, whole: Mapping[str, str]) -> str:
    """What is wrong with how a file ended, or nothing. *whole* is the Markdown of the sound files."""
    if isinstance(ended, DocumentError):
        return ""
    if isinstance(ended, DocmillError):
        is_meant = ended.code in MEANT and file.name.startswith(KILLERS)
        return "" if is_meant else f"{ended.code}: {ended}"
    if ended.damaged_pages or ended.facts.get("warnings") or not file.whole or file.whole in TEXTS:
        return ""
    # A container or page that was hurt must not pass for whole when its words are gone.
    left = coverage(whole[file.whole], ended.markdown)
    return f"read as if whole, with {left:.0%} of its words" if left < LOST else ""


@cache
def sound() -> dict[str, bytes]:
    """One whole document of each format."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        text = ["Harbour report", "Total amount 417 Euro"]
        made = {
            "pdf": documents.pdf(folder / "a", 4),
            "rich": documents.pdf_rich(folder / "b"),
            "scan": documents.pdf_scan(folder / "c", text),
            "docx": documents.docx(folder / "d"),
            "pptx": documents.pptx(folder / "e"),
            "xlsx": documents.xlsx(folder / "f"),
            "html": documents.html(folder / "g"),
            "eml": documents.eml(folder / "h"),
            "csv": documents.csv_file(folder / "i"),
            "tiff": documents.image(folder / "j", text, "TIFF", frames=3),
            "jpg": documents.image(folder / "k", text, "JPEG"),
            "png": documents.image(folder / "l", text, "PNG"),
            "webp": documents.image(folder / "m", text, "WEBP"),
            "gif": documents.image(folder / "n", text, "GIF"),
            "bmp": documents.image(folder / "o", text, "BMP"),
        }
        found = {name: path.read_bytes() for name, path in made.items()}
    found["md"] = f"# Hafen\n\n- {documents.GERMAN}\n- {documents.ENGLISH}\n".encode() * 20
    found["txt"] = f"{documents.ENGLISH}\n\n{documents.GERMAN}\n".encode() * 20
    found["utf16"] = f"{documents.ENGLISH}\n{documents.CHINESE}\n".encode("utf-16") * 1
    found["gb18030"] = f"{documents.CHINESE}，{documents.CHINESE}。\n".encode("gb18030") * 20
    found["latin1"] = f"{documents.GERMAN}\n".encode("latin-1") * 20
    return found


def all_files(flips: int = FLIPS) -> Iterator[Broken]:
    for kind, data in sound().items():
        for tenth in range(1, 10):
            yield Broken(f"cut/{kind}-{tenth}", data[: len(data) * tenth // 10], kind)
        for seed in range(flips):
            yield Broken(f"flipped/{kind}-{seed}", flipped(data, seed), kind)
    yield from bent()
    yield from samples()


def some_files() -> Iterator[Broken]:
    """A cut and a flip of each format, and everything that was bent by hand and is quick."""
    for kind, data in sound().items():
        yield Broken(f"cut/{kind}-5", data[: len(data) // 2], kind)
        yield Broken(f"flipped/{kind}-0", flipped(data, 0), kind)
    yield from (one for one in bent(SLOW_BOMBS) if one.name != "pdf/recursive form")


def flipped(data: bytes, seed: int) -> bytes:
    """One to thirty-two bits turned over, anywhere."""
    chance = random.Random(f"{seed}-{len(data)}")
    changed = bytearray(data)
    for _ in range(2 ** chance.randint(0, 5)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def samples() -> Iterator[Broken]:
    """What Python's own tests ship: mails that were sent to break readers, and small pictures."""
    spec = find_spec("test")
    for home in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(home, "test_email", "data").glob("*")):
            yield Broken(f"sample/{path.name}", path.read_bytes())


def bent(without: frozenset[str] = frozenset()) -> Iterator[Broken]:
    yield from bombs(without)
    yield from bent_pdfs()
    yield from bent_office()
    yield from bent_pictures()
    yield from bent_texts()


def bombs(without: frozenset[str]) -> Iterator[Broken]:
    making: dict[str, Callable[[], bytes]] = {
        "zip": hostile.zip_bomb,
        "xml": hostile.xml_bomb,
        "overlapping": hostile.overlapping_zip,
        "lying": hostile.lying_zip,
        "many entries": hostile.zip_of_many,
        "million pages": hostile.million_pages,
        "png": hostile.huge_png,
        "html": hostile.html_bomb,
        "nested html": hostile.nested_html,
        "wide csv": lambda: hostile.wide_csv(200_000),
        "one line": lambda: hostile.one_line(20 * hostile.MiB),
        "inflating pdf": lambda: hostile.inflating_pdf(256),
        "endless page": hostile.endless_page,
    }
    for name, make in making.items():
        if name not in without:
            yield Broken(f"bomb/{name}", make())


def bent_pdfs() -> Iterator[Broken]:
    whole = sound()["pdf"]
    catalog, leaf = b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] %s >>"
    tree = b"<< /Type /Pages /Kids [%s] /Count %d >>"
    start = whole.rindex(b"startxref")
    table = whole.rindex(b"xref\n", 0, start)
    made = {
        "encrypted": hostile.encrypted_pdf(),
        "self-drawing form": hostile.self_drawing_form(),
        "recursive form": hostile.recursive_form(),
        "circular pages": hostile.circular_pages(),
        "polyglot": hostile.polyglot(),
        "no pages": assemble_pdf([catalog, tree % (b"", 0)]),
        "fewer pages than counted": assemble_pdf([catalog, tree % (b"3 0 R", 9), leaf % b""]),
        "negative count": assemble_pdf([catalog, tree % (b"3 0 R", -5), leaf % b""]),
        "huge count": assemble_pdf([catalog, tree % (b"3 0 R", 2**31), leaf % b""]),
        "missing page": assemble_pdf([catalog, tree % (b"3 0 R 9 0 R", 2), leaf % b""]),
        "page is a number": assemble_pdf([catalog, tree % (b"3 0 R", 1), b"42"]),
        "pages is its own parent": assemble_pdf([catalog, b"<< /Type /Pages /Parent 2 0 R /Kids [2 0 R] /Count 1 >>"]),
        "catalog is its own pages": assemble_pdf([b"<< /Type /Catalog /Pages 1 0 R /Kids [1 0 R] /Count 1 >>"]),
        "deep tree": assemble_pdf([catalog, *(tree % (b"%d 0 R" % (n + 3), 1) for n in range(2000)), leaf % b""]),
        "contents of itself": assemble_pdf([catalog, tree % (b"3 0 R", 1), leaf % b"/Contents 3 0 R"]),
        "missing contents": assemble_pdf([catalog, tree % (b"3 0 R", 1), leaf % b"/Contents 77 0 R"]),
        "unknown filter": assemble_pdf(
            [catalog, tree % (b"3 0 R", 1), leaf % b"/Contents 4 0 R", hostile._stream(b"abc", b"/Filter /Nonsense")]
        ),
        "noise for content": assemble_pdf(
            [catalog, tree % (b"3 0 R", 1), leaf % b"/Contents 4 0 R", hostile._stream(hostile.noise(5000))]
        ),
        "noise packed": assemble_pdf(
            [
                catalog,
                tree % (b"3 0 R", 1),
                leaf % b"/Contents 4 0 R",
                hostile._stream(hostile.noise(5000), b"/Filter /FlateDecode"),
            ]
        ),
        "no sheet": assemble_pdf([catalog, tree % (b"3 0 R", 1), b"<< /Type /Page /MediaBox [0 0 0 0] >>"]),
        "sheet upside down": assemble_pdf([catalog, tree % (b"3 0 R", 1), b"<< /Type /Page /MediaBox [9 9 -9 -9] >>"]),
        "sheet of nonsense": assemble_pdf([catalog, tree % (b"3 0 R", 1), b"<< /Type /Page /MediaBox [(a) /B] >>"]),
        "xref of zeros": whole[: table + 5] + b"0" * (start - table - 5) + whole[start:],
        "xref elsewhere": whole[:start] + b"startxref\n7\n%%EOF",
        "xref beyond the end": whole[:start] + b"startxref\n99999999999\n%%EOF",
        "xref negative": whole[:start] + b"startxref\n-1\n%%EOF",
        "xref of itself": whole[:start] + b"startxref\n%d\n%%%%EOF" % start,
        "no xref": whole[:table],
        "previous xref is this": whole[:start].replace(b"/Root", b"/Prev %d /Root" % table) + whole[start:],
        "no header": whole.removeprefix(b"%PDF-1.3"),
        "text before": b"some text before\n" * 20 + whole,
        "text after": whole + b"\nsome text after" * 200,
        "twice": whole + whole,
        "only a header": b"%PDF-1.7\n",
        "lengths lie": whole.replace(b"/Length ", b"/Length 9"),
        "lines without ends": whole.replace(b"\n", b" "),
        "zeros inside": whole[: len(whole) // 3] + bytes(2000) + whole[len(whole) // 3 + 2000 :],
    }
    for name, data in made.items():
        yield Broken(f"pdf/{name}", data)


def bent_office() -> Iterator[Broken]:
    main = {"docx": "word/document.xml", "pptx": "ppt/presentation.xml", "xlsx": "xl/workbook.xml"}
    for kind, part in main.items():
        for name, content in {
            "without its main part": None,
            "empty main part": b"",
            "main part of noise": hostile.noise(3000),
            "main part cut": b"<?xml version='1.0'?><w:document",
            "main part of another world": b"<?xml version='1.0'?><html><body>hello</body></html>",
            "deep main part": b"<?xml version='1.0'?>" + b"<a>" * 50_000 + b"</a>" * 50_000,
        }.items():
            yield Broken(f"office/{kind} {name}", repacked(sound()[kind], part, content))
        yield Broken(f"office/{kind} without relations", repacked(sound()[kind], "_rels/.rels", None))
        yield Broken(f"office/{kind} without types", repacked(sound()[kind], "[Content_Types].xml", None))
    yield Broken("office/encrypted", hostile.built(documents.encrypted_office))


def repacked(data: bytes, part: str, content: bytes | None) -> bytes:
    """The same container with one part replaced, or left out."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            if entry != part:
                new.writestr(entry, old.read(entry))
            elif content is not None:
                new.writestr(entry, content)
    return out.getvalue()


def bent_pictures() -> Iterator[Broken]:
    tiff = sound()["tiff"]
    first = int.from_bytes(tiff[4:8], "little")
    count = int.from_bytes(tiff[first : first + 2], "little")
    after = first + 2 + 12 * count
    yield Broken("picture/tiff whose frames go round", tiff[:after] + first.to_bytes(4, "little") + tiff[after + 4 :])
    yield Broken("picture/tiff whose frames lie outside", tiff[:4] + b"\xff\xff\xff\x7f" + tiff[8:])
    for kind in ("png", "jpg", "gif", "bmp", "webp", "tiff"):
        yield Broken(f"picture/{kind} with only a head", sound()[kind][:40])
        yield Broken(f"picture/{kind} full of noise", sound()[kind][:60] + hostile.noise(4000))


def bent_texts() -> Iterator[Broken]:
    for name, data in {
        "empty": b"",
        "one byte": b"\0",
        "only zeros": bytes(5000),
        "only blanks": b" \n" * 500,
        "only a mark": b"\xff\xfe",
        "noise": hostile.noise(),
        "half a letter": documents.CHINESE.encode()[:-1],
        "html without end": b"<html><body><table><tr><td>" * 300,
        "html that opens comments": b"<html><!--" * 3000,
        "mail without body": b"From: a@example.org\nSubject: x\nMessage-ID: <1@x>\n",
        "mail in mails": b"From: a@b.c\nSubject: x\nContent-Type: message/rfc822\n\n" * 500,
        "mail that never closes": b"From: a@b.c\nSubject: x\nContent-Type: multipart/mixed; boundary=b\n\n--b\n--b\n"
        * 50,
        "csv with an open quote": b'a;b;c\n1;2;3\n"' + b"x;" * 5000,
        "csv of commas": b"," * 20_000 + b"\n",
        "a program": b"\x7fELF" + hostile.noise(500),
    }.items():
        yield Broken(f"text/{name}", data)
