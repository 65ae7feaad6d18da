"""Makes the documents that tests need: no binary samples in the repository, nothing from the network."""

from __future__ import annotations

import csv
import io
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pypdfium2

ENGLISH = "The quarterly report describes how the harbour grew during the last year and what it cost."
GERMAN = "Die Straßenbrücke über den Fluss wurde größer gebaut, weil die Häuser dahinter schöner aussehen sollten."
CHINESE = "本页介绍服务账号的工作原理和使用场景以及相关限制"
ONE_THREAD = threading.Lock()
ROWS = [["Port", "Ships", "Tonnes"], ["Hamburg", "120", "4500"], ["Bremen", "80", "2100"], ["Kiel", "35", "900"]]


def png(width: int = 120, height: int = 80, colour: str = "teal") -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(out, "PNG")
    return out.getvalue()


@contextmanager
def opened(data: bytes) -> Iterator[pypdfium2.PdfDocument]:
    """PDFium may be in one thread at a time, and a peer reads what it gets in threads of its own."""
    with ONE_THREAD:
        import pypdfium2

        with pypdfium2.PdfDocument(data) as document:
            yield document


def pdf(path: Path, pages: int = 1, *, text: str = ENGLISH, encrypt: str | None = None) -> Path:
    """Plain pages with a heading and paragraphs."""
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), encrypt=encrypt)
    canvas.setTitle("Harbour report")
    for number in range(1, pages + 1):
        canvas.setFont("Helvetica-Bold", 20)
        canvas.drawString(72, 770, f"Chapter {number}")
        canvas.setFont("Helvetica", 11)
        for line in range(12):
            canvas.drawString(72, 730 - 16 * line, f"{text[:80]} ({number}.{line})")
        canvas.showPage()
    canvas.save()
    return path


def pdf_rich(path: Path) -> Path:
    """Page 1: text, picture, ruled table. Page 2: two columns. Page 3: turned by 90 degrees, with a picture."""
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas
    from reportlab.platypus import Table

    canvas = Canvas(str(path), pagesize=(595, 842))
    picture = ImageReader(io.BytesIO(picture_bytes()))
    canvas.setFont("Helvetica-Bold", 20)
    canvas.drawString(72, 770, "Ships and Ports")
    canvas.setFont("Helvetica", 11)
    for line in range(5):
        canvas.drawString(72, 730 - 16 * line, f"{ENGLISH[:75]} {line}")
    canvas.drawImage(picture, 72, 450, 200, 150)
    canvas.drawString(72, 432, "Figure 1: The harbour from above")
    table = Table(ROWS, colWidths=100, style=[("GRID", (0, 0), (-1, -1), 1, "black")])
    table.wrapOn(canvas, 400, 200)
    table.drawOn(canvas, 72, 300)
    canvas.showPage()
    canvas.setFont("Helvetica", 10)
    for line in range(30):
        canvas.drawString(60, 760 - 14 * line, f"left{line:02d} alpha beta gamma delta epsilon")
        canvas.drawString(320, 760 - 14 * line, f"right{line:02d} one two three four five six")
    canvas.showPage()
    canvas.setPageRotation(90)
    # reportlab swaps the sides, so the page is still displayed upright: x is measured from its top, y from its left.
    canvas.setFont("Helvetica", 12)
    canvas.saveState()
    canvas.translate(60, 60)
    canvas.rotate(90)
    for line in range(6):
        canvas.drawString(0, -20 * line, f"turned line {line} of the page that lies on its side")
    canvas.restoreState()
    canvas.drawImage(picture, 380, 60, 150, 200)
    canvas.showPage()
    canvas.save()
    return path


def picture_bytes() -> bytes:
    """A picture that no parser takes for a line or a background."""
    from PIL import Image, ImageDraw

    image = Image.effect_noise((200, 150), 80).convert("RGB")
    draw = ImageDraw.Draw(image)
    draw.ellipse((40, 30, 160, 120), fill="orange")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def pdf_form(path: Path) -> Path:
    """A form that somebody filled in."""
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path))
    canvas.drawString(72, 760, "Please tell us the name of the ship and its home port below.")
    canvas.acroForm.textfield(name="ship", value="Gorch Fock", x=72, y=700, width=200, height=20)
    canvas.save()
    return path


def pdf_chinese(path: Path) -> Path:
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.pdfbase.pdfmetrics import registerFont
    from reportlab.pdfgen.canvas import Canvas

    registerFont(UnicodeCIDFont("STSong-Light"))
    canvas = Canvas(str(path))
    canvas.setFont("STSong-Light", 14)
    for line in range(6):
        canvas.drawString(72, 760 - 22 * line, CHINESE)
    canvas.save()
    return path


def text_image(lines: list[str], *, dpi: int = 130) -> bytes:
    """A PNG of text, drawn by reportlab and PDFium: no system font is needed."""
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(420, 30 + 30 * len(lines)))
    canvas.setFont("Helvetica", 15)
    for number, line in enumerate(lines):
        canvas.drawString(20, 30 * (len(lines) - number) - 5, line)
    canvas.save()
    with opened(out.getvalue()) as document:
        image = document[0].render(scale=dpi / 72).to_pil().convert("RGB")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def image(path: Path, lines: list[str], kind: str, frames: int = 1) -> Path:
    from PIL import Image

    pictures = [Image.open(io.BytesIO(text_image(lines))) for _ in range(frames)]
    more = {"save_all": True, "append_images": pictures[1:]} if frames > 1 else {}
    pictures[0].save(path, kind, **more)
    return path


def pdf_scan(path: Path, lines: list[str]) -> Path:
    """A page that is nothing but a picture of text."""
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    picture = ImageReader(io.BytesIO(text_image(lines)))
    width, height = picture.getSize()
    canvas = Canvas(str(path), pagesize=(420, 420 * height / width))
    canvas.drawImage(picture, 0, 0, 420, 420 * height / width)
    canvas.save()
    return path


def docx(path: Path) -> Path:
    from docx import Document

    document = Document()
    document.core_properties.title = "Harbour minutes"
    document.add_heading("Minutes", 1)
    document.add_paragraph(ENGLISH)
    document.add_paragraph("first point", style="List Bullet")
    document.add_paragraph("second point", style="List Bullet")
    table = document.add_table(rows=0, cols=3)
    for row in ROWS:
        for cell, value in zip(table.add_row().cells, row, strict=True):
            cell.text = value
    document.add_picture(io.BytesIO(picture_bytes()))
    document.add_paragraph(GERMAN)
    document.save(str(path))
    return path


def docx_with_notes(path: Path) -> Path:
    """A footnote in the text, an endnote in a table, and a reference to a note that is not there."""
    from docx import Document

    document = Document()
    document.add_paragraph("The harbour grewFOOT last year.GONE")
    document.add_table(rows=1, cols=2).cell(0, 0).text = "KielEND"
    plain = io.BytesIO()
    document.save(plain)
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    raised = '<w:rPr><w:vertAlign w:val="superscript"/></w:rPr>'

    def reference(kind: str, number: int) -> bytes:
        return f'</w:t></w:r><w:r>{raised}<w:{kind}Reference w:id="{number}"/></w:r><w:r><w:t>'.encode()

    def note(kind: str, number: int, text: str) -> str:
        lines = f'<w:{kind} w:type="separator" w:id="0"><w:p><w:r><w:t>line</w:t></w:r></w:p></w:{kind}>'
        own = f"<w:p><w:r><w:{kind}Ref/></w:r><w:r><w:t>{text}</w:t></w:r></w:p><w:p><w:r><w:t>More.</w:t></w:r></w:p>"
        return f'<w:{kind}s {word}>{lines}<w:{kind} w:id="{number}">{own}</w:{kind}></w:{kind}s>'

    with zipfile.ZipFile(plain) as archive, zipfile.ZipFile(path, "w") as new:
        for entry in archive.infolist():
            data = archive.read(entry)
            if entry.filename == "word/document.xml":
                for mark, kind, number in ((b"FOOT", "footnote", 2), (b"END", "endnote", 3), (b"GONE", "footnote", 9)):
                    data = data.replace(mark, reference(kind, number))
            new.writestr(entry.filename, data)
        new.writestr("word/footnotes.xml", note("footnote", 2, "By two *new* basins &lt;b&gt;."))
        new.writestr("word/endnotes.xml", note("endnote", 3, "Counted by hand."))
    return path


def pptx(path: Path) -> Path:
    from pptx import Presentation
    from pptx.util import Inches

    deck = Presentation()
    for number in (1, 2):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = f"Slide {number}"
        slide.placeholders[1].text = f"{ENGLISH}\nPoint {number}"
    slide.shapes.add_picture(io.BytesIO(picture_bytes()), Inches(1), Inches(4))
    deck.save(str(path))
    return path


def xlsx(path: Path) -> Path:
    from openpyxl import Workbook

    book = Workbook()
    book.active.title = "Ports"
    for row in ROWS:
        book.active.append(row)
    other = book.create_sheet("People")
    other.append(["Name", "Role"])
    other.append(["Änne", "Kapitänin"])
    book.save(str(path))
    return path


def html(path: Path) -> Path:
    import base64

    cells = "".join("<tr>" + "".join(f"<td>{value}</td>" for value in row) + "</tr>" for row in ROWS)
    inline = base64.b64encode(png()).decode()
    path.write_text(
        f"""<!doctype html><html lang="de"><head><title>Der Hafen</title><style>p {{ color: red }}</style>
        <script>steal()</script></head><body><h1>Hafen</h1><p>{GERMAN}</p><ul><li>eins</li><li>zwei</li></ul>
        <table>{cells}</table><img alt="Kai" src="data:image/png;base64,{inline}">
        <img alt="fern" src="https://example.org/x.png"><a href="javascript:steal()">klick</a></body></html>""",
        encoding="utf-8",
    )
    return path


def eml(path: Path) -> Path:
    message = EmailMessage()
    message["From"] = "Änne Müller <a@example.org>"
    message["To"] = "b@example.org"
    message["Subject"] = "Der neue Kai"
    message["Date"] = "Fri, 01 May 2026 10:00:00 +0200"
    message.set_content(GERMAN)
    message.add_alternative(f'<h2>Kai</h2><p>{GERMAN}</p><img alt="Bild" src="cid:pic1">', subtype="html")
    message.get_payload()[1].add_related(png(), "image", "png", cid="<pic1>")
    message.add_attachment(b"%PDF-1.4 x", maintype="application", subtype="pdf", filename="plan.pdf")
    path.write_bytes(message.as_bytes())
    return path


def csv_file(path: Path, rows: list[list[str]] = ROWS, delimiter: str = ";") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def png_bomb(path: Path, side: int = 50_000) -> Path:
    """A header that promises side x side pixels, in a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


def zip_bomb_docx(path: Path, megabytes: int = 64) -> Path:
    docx(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/padding.bin", b"\0" * (megabytes << 20))
    return path


def overlapping_docx(path: Path) -> Path:
    """Two names in the table of contents for the same bytes."""
    docx(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("word/one.bin", b"x" * 100_000)
        first = archive.getinfo("word/one.bin")
        twin = zipfile.ZipInfo("word/one.bin")
        for name in ("header_offset", "compress_size", "file_size", "CRC", "compress_type", "flag_bits", "date_time"):
            setattr(twin, name, getattr(first, name))
        archive.filelist.append(twin)
        archive._didModify = True  # type: ignore[attr-defined]
    return path


def xml_bomb_docx(path: Path) -> Path:
    """A document whose entities would grow a billionfold."""
    entities = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    body = f'<?xml version="1.0"?><!DOCTYPE w [{entities}]><w>&a9;</w>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", body)
    return path


def encrypted_office(path: Path) -> Path:
    """Looks like what Word writes when a password is set."""
    path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 1000 + "EncryptedPackage".encode("utf-16-le"))
    return path


def pdf_with_many_pages(path: Path, pages: int = 1_000_000) -> Path:
    """A page tree that uses the same page again and again: few bytes, very many pages."""
    fan = 100
    levels = [pages, pages // fan, pages // fan**2]
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    for depth, count in enumerate(levels):
        kid = depth + 3
        objects.append(b"<< /Type /Pages /Count %d /Kids [%s] >>" % (count, b" ".join([b"%d 0 R" % kid] * fan)))
    objects.append(b"<< /Type /Page /MediaBox [0 0 10 10] >>")
    path.write_bytes(assemble_pdf(objects))
    return path


def assemble_pdf(objects: list[bytes]) -> bytes:
    """A PDF of these objects, numbered from 1; the first is the catalogue."""
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(out)


def pdf_turned(path: Path, angle: int, crop: tuple[float, float, float, float] | None = None) -> Path:
    """A page with an orange picture among text, turned, and cut to *crop* (points, from the bottom left)."""
    from PIL import Image
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    picture = Image.effect_noise((200, 150), 60).convert("RGB")
    picture.paste("orange", (20, 20, 180, 130))
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(595, 842))
    canvas.setFont("Helvetica", 11)
    for line in range(14):
        canvas.drawString(90, 740 - 15 * line, f"{ENGLISH[:70]} {line}")
    canvas.drawImage(ImageReader(picture), 120, 300, 200, 150)
    canvas.drawString(120, 285, "Figure 1: The harbour from above")
    canvas.save()
    with opened(out.getvalue()) as document:
        page = document[0]
        page.set_rotation(angle)
        if crop:
            page.set_cropbox(*crop)
        document.save(path)
    return path


def pdf_coloured(path: Path, angle: int, crop: tuple[float, float, float, float] | None = None) -> Path:
    """A red heading, a green paragraph and a blue list item, displayed upright whatever the page's angle is; *crop* as
    above."""
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(595, 842))
    canvas.translate(*{0: (0, 0), 90: (595, 0), 180: (595, 842), 270: (0, 842)}[angle])
    canvas.rotate(angle)
    top = 842 if angle in (0, 180) else 595
    canvas.setFont("Helvetica-Bold", 20)
    canvas.setFillColorRGB(0.9, 0, 0)
    canvas.drawString(90, top - 110, "The red harbour")
    canvas.setFont("Helvetica", 11)
    canvas.setFillColorRGB(0, 0.8, 0)
    for line in range(6):
        canvas.drawString(90, top - 150 - 14 * line, f"Green sentences say how the harbour grew in the year {line}.")
    canvas.setFillColorRGB(0, 0, 0.9)
    canvas.drawString(104, top - 300, "\u2022 A blue item of a list stands alone here")
    canvas.save()
    with opened(out.getvalue()) as document:
        page = document[0]
        page.set_rotation(angle)
        if crop:
            page.set_cropbox(*crop)
        document.save(path)
    return path


def pdf_spanning(path: Path) -> Path:
    """A ruled table whose first row has a cell over two columns, and whose cells hold more than one line."""
    from reportlab.pdfgen.canvas import Canvas
    from reportlab.platypus import Table

    canvas = Canvas(str(path), pagesize=(595, 842))
    canvas.setFont("Helvetica", 11)
    for line in range(6):
        canvas.drawString(72, 770 - 16 * line, f"{ENGLISH[:75]} {line}")
    rows = [
        ["Port", "Traffic", ""],
        ["", "Ships", "Tonnes"],
        ["Hamburg\n(free port)", "120", "4500"],
        ["Kiel", "35", "900"],
    ]
    style = [("GRID", (0, 0), (-1, -1), 1, "black"), ("SPAN", (1, 0), (2, 0)), ("SPAN", (0, 0), (0, 1))]
    table = Table(rows, colWidths=110, style=style)
    table.wrapOn(canvas, 400, 300)
    table.drawOn(canvas, 72, 480)
    canvas.save()
    return path


def pdf_tagged(path: Path) -> Path:
    """A tagged page: a heading in small letters, a paragraph over two lines, a list, a table without lines."""
    lines = [
        (0, "H1", 12, "About the harbour"),
        (1, "P", 12, "The cranes are main-"),
        (1, "P", 12, "tained by the city."),
        (2, "LI", 12, "First quay"),
        (3, "LI", 12, "Second quay"),
        (4, "TD", 12, "Port"),
        (5, "TD", 12, "Ships"),
        (6, "TD", 12, "Kiel"),
        (7, "TD", 12, "35"),
    ]
    stream = b""
    for number, (mark, tag, size, text) in enumerate(lines):
        x = 200 if mark in (5, 7) else 72
        y = 700 - 20 * (number - (mark in (5, 7)))
        stream += b"/%s <</MCID %d>> BDC BT /F %d Tf %d %d Td (%s) Tj ET EMC\n" % (
            tag.encode(),
            mark,
            size,
            x,
            y,
            text.encode(),
        )
    stream += b"/Artifact BMC BT /F 9 Tf 72 30 Td (Internal paper) Tj ET EMC\n"

    def element(kind: bytes, parent: int, kids: bytes) -> bytes:
        return b"<< /Type /StructElem /S /%s /P %d 0 R /Pg 3 0 R /K %s >>" % (kind, parent, kids)

    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /MarkInfo << /Marked true >> /StructTreeRoot 6 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R %s >>"
        % b"/StructParents 0 /Resources << /Font << /F 5 0 R >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /StructTreeRoot /K [7 0 R] /ParentTree 8 0 R /ParentTreeNextKey 1 >>",
        element(b"Document", 6, b"[9 0 R 10 0 R 11 0 R 14 0 R]"),
        b"<< /Nums [0 [9 0 R 10 0 R 12 0 R 13 0 R 17 0 R 18 0 R 19 0 R 20 0 R]] >>",
        element(b"H1", 7, b"0"),
        element(b"P", 7, b"1"),
        element(b"L", 7, b"[12 0 R 13 0 R]"),
        element(b"LI", 11, b"2"),
        element(b"LI", 11, b"3"),
        element(b"Table", 7, b"[15 0 R 16 0 R]"),
        element(b"TR", 14, b"[17 0 R 18 0 R]"),
        element(b"TR", 14, b"[19 0 R 20 0 R]"),
        element(b"TD", 15, b"4"),
        element(b"TD", 15, b"5"),
        element(b"TD", 16, b"6"),
        element(b"TD", 16, b"7"),
    ]
    path.write_bytes(assemble_pdf(objects))
    return path


def pdf_with_headers(path: Path, pages: int = 5) -> Path:
    """Chapters under a running header, above page numbers."""
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), pagesize=(595, 842))
    for number in range(1, pages + 1):
        canvas.setFont("Helvetica", 8)
        canvas.drawString(72, 815, "Annual report of the harbour office")
        canvas.drawString(290, 25, f"Page {number} of {pages}")
        canvas.setFont("Helvetica-Bold", 20)
        canvas.drawString(72, 780, f"Chapter {number}")
        canvas.setFont("Helvetica", 11)
        for line in range(12):
            canvas.drawString(72, 740 - 16 * line, f"{ENGLISH[:80]} ({number}.{line})")
        canvas.showPage()
    canvas.save()
    return path
