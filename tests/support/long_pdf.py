"""PDFs whose pages carry their numbers, so that loss and disorder show."""

from __future__ import annotations

from pathlib import Path

from reportlab.pdfgen import canvas


def numbered_pdf(path: Path, pages: int) -> Path:
    pdf = canvas.Canvas(str(path), pagesize=(200, 200))
    for number in range(1, pages + 1):
        pdf.drawString(20, 100, f"P{number:05d} of the long report")
        pdf.showPage()
    pdf.save()
    return path
