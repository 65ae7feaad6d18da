"""Make the documents in samples/. Everything in them is invented. The same input gives the same bytes.

python tools/make_samples.py [folder]
"""

from __future__ import annotations

import io
import random
import re
import sys
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import EmailMessage
from importlib.util import find_spec
from pathlib import Path

import docx
import openpyxl
import pptx
import pypdfium2
from docx.shared import Cm
from openpyxl.styles import Font
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont
from pptx.util import Inches
from reportlab import rl_config
from reportlab.lib import colors
from reportlab.lib.enums import TA_RIGHT
from reportlab.lib.pagesizes import A4, landscape
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import cm
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    Flowable,
    ListFlowable,
    PageBreak,
    Paragraph,
    SimpleDocTemplate,
    Spacer,
    Table,
    TableStyle,
)
from reportlab.platypus import Image as Picture

DATE = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
INK = colors.HexColor("#1f3a5f")
rl_config.invariant = 1


def package_file(package: str, path: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed: make setup")
    return Path(spec.submodule_search_locations[0]) / path


VERA, VERA_BOLD = (package_file("reportlab", f"fonts/{name}.ttf") for name in ("Vera", "VeraBd"))
CHINESE = package_file("docvortex", "resources/fonts/DroidSansFallbackFull.ttf")
for name, file in (("Vera", VERA), ("Vera-Bold", VERA_BOLD), ("Chinese", CHINESE)):
    pdfmetrics.registerFont(TTFont(name, file))
pdfmetrics.registerFontFamily("Vera", normal="Vera", bold="Vera-Bold", italic="Vera", boldItalic="Vera-Bold")


# --- pictures


def chart(labels: tuple[str, ...], values: tuple[int, ...], title: str, font: Path = VERA) -> bytes:
    image = Image.new("RGB", (720, 400), "white")
    draw = ImageDraw.Draw(image)
    text = ImageFont.truetype(str(font), 22)
    draw.text((30, 14), title, fill="#1f3a5f", font=text)
    draw.line((60, 340, 700, 340), fill="black", width=2)
    width = 620 // len(values)
    for position, (label, value) in enumerate(zip(labels, values, strict=True)):
        left = 80 + position * width
        top = 340 - int(270 * value / max(values))
        draw.rectangle((left, top, left + width - 40, 340), fill="#4a7fb5")
        draw.text((left, top - 28), str(value), fill="black", font=text)
        draw.text((left, 352), label, fill="black", font=text)
    return png(image)


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.quantize(32).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def sign() -> bytes:
    image = Image.new("RGB", (900, 420), "#f4f1e8")
    draw = ImageDraw.Draw(image)
    draw.rounded_rectangle((40, 40, 860, 380), 30, fill="#1b6b3a", outline="white", width=8)
    big, small = ImageFont.truetype(str(VERA_BOLD), 74), ImageFont.truetype(str(VERA), 40)
    draw.text((450, 140), "NORTH ENTRANCE", fill="white", font=big, anchor="mm")
    draw.text((450, 230), "Open daily 8:00 - 18:30", fill="white", font=small, anchor="mm")
    draw.text((450, 305), "Deliveries: please ring twice", fill="white", font=small, anchor="mm")
    return png(image)


def photo() -> bytes:
    """A whiteboard, photographed a little from the side."""
    board = Image.new("RGB", (1200, 800), "#fbfbf7")
    draw = ImageDraw.Draw(board)
    title, text = ImageFont.truetype(str(VERA_BOLD), 64), ImageFont.truetype(str(VERA), 46)
    draw.text((80, 60), "Sprint goals", fill="#20304f", font=title)
    lines = (
        "1. Ship the import wizard",
        "2. Halve the start time",
        "3. Write the handbook",
        "Demo: Friday 14:00, room 3",
    )
    for position, line in enumerate(lines):
        draw.text(
            (100, 200 + position * 110), line, fill="#8a1c1c" if line.startswith("Demo") else "#111111", font=text
        )
    seen = board.transform(
        (1200, 800),
        Image.Transform.QUAD,
        (-40, -20, -10, 820, 1230, 790, 1190, 15),
        Image.Resampling.BICUBIC,
        fillcolor="#777770",
    )
    return jpeg(speckled(seen.filter(ImageFilter.GaussianBlur(0.7)), 6, seed=3), 72)


def speckled(image: Image.Image, strength: int, seed: int) -> Image.Image:
    dice = random.Random(seed)
    tile = Image.frombytes("L", (256, 256), bytes(128 + round(dice.gauss(0, strength)) for _ in range(65536)))
    noise = Image.new("L", image.size)
    for left in range(0, image.width, 256):
        for top in range(0, image.height, 256):
            noise.paste(tile.rotate(dice.choice((0, 90, 180, 270))), (left, top))
    return Image.merge(image.mode, [ImageChops.add(layer, noise, 1, -128) for layer in image.split()])


def jpeg(image: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality, dpi=(200, 200))
    return buffer.getvalue()


# --- PDF


def style(name: str, font: str, size: float, **more: object) -> ParagraphStyle:
    return ParagraphStyle(name, fontName=font, fontSize=size, leading=size * 1.45, spaceAfter=size * 0.6, **more)


class Look:
    def __init__(self, font: str = "Vera", bold: str = "Vera-Bold", **more: object) -> None:
        self.title = style("title", bold, 20, textColor=INK, **more)
        self.head = style("head", bold, 14, textColor=INK, spaceBefore=8, **more)
        self.body = style("body", font, 10.5, **more)
        self.right = style("right", font, 10.5, alignment=TA_RIGHT, **more)
        self.font, self.bold = font, bold

    def paragraph(self, text: str, kind: ParagraphStyle | None = None) -> Paragraph:
        return Paragraph(text, kind or self.body)

    def table(self, rows: list[list[str]], widths: list[float], last_bold: bool = False) -> Table:
        marks = [
            ("FONT", (0, 0), (-1, -1), self.font, 9.5),
            ("FONT", (0, 0), (-1, 0), self.bold, 9.5),
            ("BACKGROUND", (0, 0), (-1, 0), colors.HexColor("#e4ecf4")),
            ("GRID", (0, 0), (-1, -1), 0.6, colors.HexColor("#7a8ca0")),
            ("ALIGN", (1, 0), (-1, -1), "RIGHT"),
        ]
        if last_bold:
            marks.append(("FONT", (0, -1), (-1, -1), self.bold, 9.5))
        return Table(rows, [width * cm for width in widths], style=TableStyle(marks), spaceBefore=6, spaceAfter=12)

    def bullets(self, items: list[str], kind: str = "bullet") -> ListFlowable:
        start = {"start": "•"} if kind == "bullet" else {"bulletFormat": "%s."}
        return ListFlowable(
            [Paragraph(item, self.body) for item in items],
            bulletType=kind,
            leftIndent=18,
            bulletFontName=self.font,
            **start,
        )


def pdf(story: list[Flowable], title: str, language: str) -> bytes:
    buffer = io.BytesIO()
    document = SimpleDocTemplate(
        buffer,
        pagesize=A4,
        leftMargin=2 * cm,
        rightMargin=2 * cm,
        title=title,
        author="docmill samples",
        lang=language,
        invariant=1,
    )
    document.build(story)
    return buffer.getvalue()


def picture(data: bytes, width: float) -> Picture:
    size = ImageReader(io.BytesIO(data)).getSize()
    return Picture(io.BytesIO(data), width * cm, width * cm * size[1] / size[0])


def report_en() -> bytes:
    look = Look()
    p = look.paragraph
    return pdf(
        [
            p("River Monitoring 2025", look.title),
            p("Annual report of the Lower Arden Water Board (an invented authority)."),
            p("1 Summary", look.head),
            p(
                "Water quality improved at nine of twelve stations. Nitrate fell for the third year in a row, while "
                "low flow in August made fish passes unusable for nineteen days. The board recommends three measures:"
            ),
            look.bullets(
                [
                    "extend the buffer strips along the Arden to ten metres,",
                    "rebuild the fish pass at Millbrook before the spring run,",
                    "publish station data every hour instead of once a day.",
                ]
            ),
            p("2 Measurements", look.head),
            p("Table 1 lists the yearly means. Limits follow the board's own directive."),
            look.table(
                [
                    ["Station", "Nitrate (mg/l)", "Oxygen (mg/l)", "Days below minimum flow"],
                    ["Millbrook", "11.8", "9.4", "19"],
                    ["Oak Weir", "14.2", "8.9", "7"],
                    ["Harbour Gate", "17.5", "8.1", "0"],
                    ["Mean", "14.5", "8.8", "8.7"],
                ],
                [4.2, 3.6, 3.6, 5.2],
            ),
            PageBreak(),
            p("3 Trend", look.head),
            p("Figure 1 shows the mean nitrate load of all stations since 2021."),
            picture(chart(("2021", "2022", "2023", "2024", "2025"), (23, 24, 20, 17, 15), "Nitrate, mg/l"), 12),
            p("Figure 1: Nitrate load, mean of twelve stations."),
            p("3.1 Outlook", look.head),
            p(
                "If the trend holds, the target of twelve milligrams per litre will be met in 2027. Two conditions "
                "apply: the treatment plant at Oak Weir must go into service on time, and farmers must keep to the "
                "agreed dates."
            ),
            look.bullets(
                ["Tender: April 2026", "Building work: June to October 2026", "First report: March 2027"], "1"
            ),
        ],
        "River Monitoring 2025",
        "en",
    )


def bericht_de() -> bytes:
    look = Look()
    p = look.paragraph
    # With the ligatures fi and fl as single characters, as many typesetting programs leave them in the file.
    return pdf(
        [
            p("Prüfbericht zur Schulküche", look.title),
            p("Gemeinde Überlinden (erfunden), Amt für Gebäudewirtschaft, März 2026"),
            p("1 Ergebnis", look.head),
            p(
                "Die Küche ist groß genug für täglich 240 Essen. Der Fettabscheider ist zu klein, die Abluft muß "
                "erneuert werden. Die Pﬂichten aus der Auﬂage von 2019 sind erfüllt; die Begriffe „Spülküche“ und "
                "„Ausgabe“ werden im Folgenden getrennt verwendet. Auffällig ist der hohe Wasserverbrauch: häuﬁg "
                "liefen die Hähne ungenutzt."
            ),
            p("2 Mängel und Fristen", look.head),
            look.table(
                [
                    ["Mangel", "Schätzkosten (€)", "Frist"],
                    ["Fettabscheider vergrößern", "18.400", "31.07.2026"],
                    ["Abluft erneuern", "42.750", "15.09.2026"],
                    ["Fußboden ausbessern", "3.980", "01.05.2026"],
                    ["Summe", "65.130", ""],
                ],
                [7.5, 4.5, 4],
                last_bold=True,
            ),
            p("3 Nächste Schritte", look.head),
            look.bullets(
                [
                    "Ausschreibung veröffentlichen (zuständig: Frau Müßig)",
                    "Angebote prüfen und Ausschuss für Bauen und Verkehr unterrichten",
                    "Überwachung des Verbrauchs über zwölf Wochen",
                ],
                "1",
            ),
            p("Rechtsgrundlage ist § 7 Abs. 2 der Küchenordnung; Maße nach Blatt 4, Maßstab 1 : 50."),
        ],
        "Prüfbericht zur Schulküche",
        "de",
    )


def baogao_zh() -> bytes:
    look = Look("Chinese", "Chinese", wordWrap="CJK")
    p = look.paragraph
    return pdf(
        [
            p("城市图书馆年度报告", look.title),
            p("本报告由虚构的青河市图书馆编写，时间为二〇二六年三月。"),
            p("一、概况", look.head),
            p(
                "二〇二五年，全馆接待读者八十六万人次，比上一年增长百分之十二。新增图书三万二千册，其中少儿读物占四成。"
                "数字资源访问量首次超过纸质借阅量，夜间阅览室的利用率也明显提高。"
            ),
            p("二、主要数据", look.head),
            look.table(
                [
                    ["分馆", "读者（万人次）", "借阅（万册）", "活动（场）"],
                    ["中心馆", "41", "55", "126"],
                    ["东城分馆", "27", "31", "88"],
                    ["河西分馆", "18", "20", "64"],
                    ["合计", "86", "106", "278"],
                ],
                [4, 4, 4, 4],
            ),
            p("三、下一步工作", look.head),
            look.bullets(
                ["延长周末开放时间至晚上九点；", "为老年读者开设数字技能课程；", "完成古籍书库的恒温改造。"], "1"
            ),
            picture(chart(("中心馆", "东城", "河西"), (41, 27, 18), "读者（万人次）", CHINESE), 10),
            p("图一：各分馆读者人次。"),
        ],
        "城市图书馆年度报告",
        "zh",
    )


def invoice(look: Look, words: dict[str, str], rows: list[list[str]], language: str) -> bytes:
    p = look.paragraph
    return pdf(
        [
            p(words["sender"], look.right),
            Spacer(1, 0.6 * cm),
            p(words["recipient"]),
            Spacer(1, 0.6 * cm),
            p(words["title"], look.title),
            p(words["facts"]),
            look.table(rows, [7.2, 2.4, 3.4, 3.4], last_bold=True),
            p(words["payment"]),
            p(words["thanks"]),
        ],
        words["title"],
        language,
    )


def invoice_en() -> bytes:
    words = {
        "sender": "<b>Bright Kettle Supplies Ltd.</b><br/>4 Lantern Row, Fordham<br/>VAT no. GB000000000",
        "recipient": "Harbour Street Bakery<br/>17 Harbour Street<br/>Fordham",
        "title": "Invoice 2026-0147",
        "facts": "Invoice date: 2 March 2026<br/>Customer number: 30412<br/>Delivery date: 27 February 2026",
        "payment": "Payable within 30 days, by 1 April 2026, to account 00000000, sort code 00-00-00.",
        "thanks": "Thank you for your order.",
    }
    rows = [
        ["Item", "Quantity", "Unit price (£)", "Amount (£)"],
        ["Mixing bowl, steel, 12 l", "2", "38.50", "77.00"],
        ["Baking tray, perforated", "10", "14.20", "142.00"],
        ["Oven gloves, pair", "6", "9.75", "58.50"],
        ["Net", "", "", "277.50"],
        ["VAT 20 %", "", "", "55.50"],
        ["Total", "", "", "333.00"],
    ]
    return invoice(Look(), words, rows, "en")


def rechnung_de() -> bytes:
    words = {
        "sender": "<b>Tischlerei Grünspecht GmbH</b><br/>Am Mühlbach 8, 00000 Überlinden<br/>USt-IdNr. DE000000000",
        "recipient": "Buchhandlung Zum Weißen Löwen<br/>Marktstraße 3<br/>00000 Überlinden",
        "title": "Rechnung Nr. 2026/0089",
        "facts": "Rechnungsdatum: 02.03.2026<br/>Kundennummer: 7731<br/>Leistungszeitraum: 16.02.2026 bis 20.02.2026",
        "payment": "Zahlbar innerhalb von 14 Tagen ohne Abzug auf das Konto DE00 0000 0000 0000 0000 00.",
        "thanks": "Für Rückfragen stehen wir gern zur Verfügung. Vielen Dank für Ihren Auftrag!",
    }
    rows = [
        ["Leistung", "Menge", "Einzelpreis (€)", "Betrag (€)"],
        ["Bücherregal, Eiche geölt", "3", "1.180,00", "3.540,00"],
        ["Türblatt kürzen", "2", "65,00", "130,00"],
        ["Anfahrt und Montage", "1", "240,00", "240,00"],
        ["Zwischensumme", "", "", "3.910,00"],
        ["Umsatzsteuer 19 %", "", "", "742,90"],
        ["Gesamtbetrag", "", "", "4.652,90"],
    ]
    return invoice(Look(), words, rows, "de")


def rotated_en() -> bytes:
    """A page that is stored upright and shown turned by 90 degrees, as landscape tables often are."""
    buffer = io.BytesIO()
    # The size as it is shown; the stored box of a turned page is the other way round.
    canvas = Canvas(buffer, pagesize=landscape(A4), invariant=1, lang="en")
    canvas.setTitle("Duty roster")
    canvas.setPageRotation(90)
    canvas.translate(A4[0], 0)
    canvas.rotate(90)
    width, height = landscape(A4)
    look = Look()
    canvas.setFont("Vera-Bold", 20)
    canvas.drawString(2 * cm, height - 2.5 * cm, "Duty roster, week 10")
    canvas.setFont("Vera", 10.5)
    canvas.drawString(2 * cm, height - 3.4 * cm, "Museum of Lighthouses, Fordham. Changes until Thursday noon, please.")
    table = look.table(
        [
            ["Desk", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday"],
            ["Entrance", "Ada", "Ben", "Ada", "Chloe", "Ben"],
            ["Shop", "Chloe", "Ada", "Dev", "Dev", "Ada"],
            ["Tours", "Dev", "Chloe", "Ben", "Ada", "Chloe"],
        ],
        [4, 4, 4, 4, 4, 4],
    )
    table.wrapOn(canvas, width, height)
    table.drawOn(canvas, 2 * cm, height - 7.5 * cm)
    canvas.drawString(2 * cm, height - 9 * cm, "Tours start at 10:15 and 15:45. The tower is closed in strong wind.")
    canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def scan(source: bytes, angle: float, seed: int) -> bytes:
    """The first page as a scanner would deliver it: a picture of 200 dpi, slightly askew and noisy, and no text."""
    document = pypdfium2.PdfDocument(source)
    page = document[0].render(scale=200 / 72).to_pil().convert("L")
    document.close()
    page = page.rotate(angle, Image.Resampling.BICUBIC, fillcolor=255).filter(ImageFilter.GaussianBlur(0.5))
    page = page.point(lambda value: 16 + value * 228 // 255)
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=A4, invariant=1)
    canvas.drawImage(ImageReader(io.BytesIO(jpeg(speckled(page, 3, seed), 45))), 0, 0, *A4)
    canvas.showPage()
    canvas.save()
    return buffer.getvalue()


# --- office


def settled(data: bytes) -> bytes:
    """The same ZIP without the time of day."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "docProps/core.xml":
                stamp = DATE.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
                content = re.sub(rb"(<dcterms:(?:created|modified)[^>]*>)[^<]*", rb"\g<1>" + stamp, content)
            target.writestr(zipfile.ZipInfo(name, (2026, 3, 2, 9, 30, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def saved(document: object) -> bytes:
    buffer = io.BytesIO()
    document.save(buffer)  # type: ignore[attr-defined]
    return settled(buffer.getvalue())


def fill(table: object, rows: list[list[str]]) -> None:
    for row, cells in enumerate(rows):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text  # type: ignore[attr-defined]


def notes_docx() -> bytes:
    document = docx.Document()
    document.core_properties.author = "docmill samples"
    document.core_properties.title = "Workshop notes"
    document.add_heading("Workshop notes", 0)
    document.add_paragraph("Held on 2 March 2026 in Fordham. Present: Ada, Ben, Chloe and Dev.")
    document.add_heading("Decisions", 1)
    for text in ("The catalogue moves to the new server in May.", "Every loan gets a receipt, printed or by mail."):
        document.add_paragraph(text, style="List Bullet")
    document.add_heading("Tasks", 1)
    rows = [["Task", "Who", "Until"], ["Order shelves", "Ben", "13 March"], ["Write the guide", "Chloe", "27 March"]]
    table = document.add_table(len(rows), 3, style="Light Grid Accent 1")
    fill(table, rows)
    document.add_heading("Visitors", 2)
    document.add_picture(io.BytesIO(chart(("Jan", "Feb", "Mar"), (310, 275, 402), "Visitors")), width=Cm(11))
    document.add_paragraph("Next steps:", style="Normal")
    for text in ("Collect offers", "Compare them", "Decide on 20 March"):
        document.add_paragraph(text, style="List Number")
    return saved(document)


BUDGET = [["Rent", 12000, 12000], ["Energy", 4300, 4780], ["Books", 6500, 5925.5]]


def budget_xlsx() -> bytes:
    book = openpyxl.Workbook()
    book.properties.creator = "docmill samples"
    sheet = book.active
    sheet.title = "Budget 2026"
    sheet.append(["Item", "Plan (€)", "Actual (€)", "Difference (€)"])
    for number, row in enumerate(BUDGET, 2):
        sheet.append([*row, f"=C{number}-B{number}"])
    sheet.append(["Total", "=SUM(B2:B4)", "=SUM(C2:C4)", "=C5-B5"])
    for cell in (*sheet[1], *sheet[5]):
        cell.font = Font(bold=True)
    sheet.column_dimensions["A"].width = 18
    loans = book.create_sheet("Loans")
    for row in (["Month", "Books", "Games"], ["January", 812, 94], ["February", 745, 101], ["März (Umlaut)", 903, 120]):
        loans.append(row)
    return with_results(saved(book))


def with_results(data: bytes) -> bytes:
    """The workbook with its formulas' results, which a spreadsheet program would have stored."""
    results = {f"C{number}-B{number}": row[2] - row[1] for number, row in enumerate(BUDGET, 2)}
    results |= {"SUM(B2:B4)": sum(row[1] for row in BUDGET), "SUM(C2:C4)": sum(row[2] for row in BUDGET)}
    results["C5-B5"] = results["SUM(C2:C4)"] - results["SUM(B2:B4)"]
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for info in source.infolist():
            content = source.read(info)
            for formula, result in results.items():
                content = re.sub(
                    rf"(<f>{re.escape(formula)}</f>)<v\s*/?>(</v>)?".encode(),
                    rf"\g<1><v>{result}</v>".encode(),
                    content,
                )
            target.writestr(info, content)
    return settled(buffer.getvalue())


def slides_pptx() -> bytes:
    deck = pptx.Presentation()
    deck.core_properties.author = "docmill samples"
    slide = deck.slides.add_slide(deck.slide_layouts[0])
    slide.shapes.title.text = "A new reading room"
    slide.placeholders[1].text = "Proposal, March 2026"
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Why now"
    body = slide.placeholders[1].text_frame
    body.text = "Visits doubled in five years"
    for text in ("The lease next door ends in June", "Half of the seats have no socket"):
        body.add_paragraph().text = text
    slide.notes_slide.notes_text_frame.text = "Mention the survey."
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Costs"
    rows = [["Part", "Cost (€)"], ["Furniture", "21,000"], ["Light", "8,500"], ["Total", "29,500"]]
    fill(slide.shapes.add_table(len(rows), 2, Inches(1), Inches(1.8), Inches(5), Inches(2)).table, rows)
    data = chart(("2021", "2023", "2025"), (40, 58, 81), "Visits, thousand")
    slide.shapes.add_picture(io.BytesIO(data), Inches(5), Inches(4.4), width=Inches(4))
    return saved(deck)


# --- text


PAGE_HTML = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <title>Opening hours</title>
  <style>body { font-family: sans-serif }</style>
  <script>console.log("not part of the text")</script>
</head>
<body>
  <nav><a href="/">Home</a> <a href="/visit">Visit</a></nav>
  <main>
    <h1>Opening hours</h1>
    <p>The museum is open <strong>all year</strong>, except on <em>1 January</em>. See also the
      <a href="https://example.org/tours">guided tours</a>.</p>
    <table>
      <thead><tr><th>Day</th><th>From</th><th>To</th></tr></thead>
      <tbody>
        <tr><td>Monday to Friday</td><td>9:00</td><td>17:00</td></tr>
        <tr><td>Saturday &amp; Sunday</td><td>10:00</td><td>18:00</td></tr>
      </tbody>
    </table>
    <h2>Before you come</h2>
    <ul>
      <li>Lockers take one-euro coins.</li>
      <li>Dogs may come in, if they are
        <ol><li>small, and</li><li>on a lead.</li></ol>
      </li>
    </ul>
    <pre><code>curl https://example.org/hours.json</code></pre>
  </main>
  <footer>Museum of Lighthouses, Fordham (invented)</footer>
</body>
</html>
"""

DATA_CSV = """station,date,nitrate_mg_l,remark
Millbrook,2026-01-05,11.2,
Millbrook,2026-02-02,12.0,"ice, sample taken late"
Oak Weir,2026-01-05,13.9,
Oak Weir,2026-02-02,14.4,"probe ""B"" replaced"
Hafenbrücke,2026-02-02,17.1,Hochwasser
"""

README_MD = """# Field kit

A short handbook in *Markdown*.

## Packing list

- [x] sample bottles
- [ ] spare batteries
- gloves
  - two pairs

| Item | Number |
|---|---:|
| Bottle | 12 |
| Label | 24 |

```python
for bottle in range(12):
    print("label", bottle)
```

> Rinse the bottle three times before you fill it.
"""

ZEICHEN_TXT = """Zeichen, die gern verloren gehen

Umlaute: ä ö ü Ä Ö Ü ß ẞ – auch zerlegt: a\u0308 o\u0308 u\u0308
Anführung: „deutsch“ “English” «français» 「中文」
Striche: Binde-Strich, Halbgeviert – und Geviert —, Minus −
Leerzeichen: schmal\u202ffest, geschützt\u00a0fest
Ligaturen: ﬁ ﬂ ﬀ
Währungen: € £ ¥ ₹
Mathematik: ∑ √ ≤ ≠ ∞ x² H₂O
Griechisch: αβγ Ω   Kyrillisch: Журнал   Chinesisch: 你好，世界   Japanisch: こんにちは
Emoji: 🙂 👩‍🔬 🇪🇺
"""


def mail_eml() -> bytes:
    mail = EmailMessage()
    mail["From"] = "Ada Example <ada@example.org>"
    mail["To"] = "Museum Desk <desk@example.org>"
    mail["Subject"] = "Führung am 14. März – guided tour"
    mail["Date"] = "Mon, 02 Mar 2026 09:30:00 +0000"
    mail["Message-ID"] = "<sample-1@example.org>"
    mail.set_content(
        "Hello,\n\nwe would like to book a tour for 14 people on 14 March at 10:15.\nTwo of us use a wheelchair.\n\n"
        "The list of names is attached.\n\nViele Grüße\nAda\n"
    )
    mail.add_alternative(
        "<p>Hello,</p><p>we would like to book a tour for <b>14 people</b> on 14 March at 10:15.<br>Two of us use a "
        "wheelchair.</p><p>The list of names is attached.</p><p>Viele Grüße<br>Ada</p>",
        subtype="html",
    )
    mail.add_attachment("name,age group\nAda,adult\nBen,adult\nChloe,child\n", subtype="csv", filename="names.csv")
    for number, part in enumerate(part for part in mail.walk() if part.is_multipart()):
        part.set_boundary(f"=_sample_{number}")
    return mail.as_bytes()


SAMPLES: dict[str, Callable[[], bytes]] = {
    "report.en.pdf": report_en,
    "bericht.de.pdf": bericht_de,
    "报告.zh.pdf": baogao_zh,
    "invoice.en.pdf": invoice_en,
    "rechnung.de.pdf": rechnung_de,
    "rotated.en.pdf": rotated_en,
    "scan.en.pdf": lambda: scan(report_en(), 0.4, seed=1),
    "scan.de.pdf": lambda: scan(bericht_de(), -0.5, seed=2),
    "notes.docx": notes_docx,
    "budget.xlsx": budget_xlsx,
    "slides.pptx": slides_pptx,
    "page.html": PAGE_HTML.encode,
    "mail.eml": mail_eml,
    "photo.jpg": photo,
    "sign.png": sign,
    "data.csv": DATA_CSV.encode,
    "readme.md": README_MD.encode,
    "zeichen.txt": ZEICHEN_TXT.encode,
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in SAMPLES.items():
        (folder / name).write_bytes(make())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "samples")
