"""Huge workbooks row by row, and binary ones (XLSB). Other workbooks are read by the office reader."""

from __future__ import annotations

import datetime
import struct
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from docmill.core.errors import DocumentError

from .. import sniff
from ..markdown import cell as cell_text
from ..markdown import escape, html_table
from . import numbers, xml
from .job import Job

HUGE_CELLS = 50_000
"""docvortex takes 23 s and 600 MB for 175,000 cells."""
CHUNK_BYTES = 1 << 20
MAX_ASSET_CELLS = 200_000
"""Larger tables come as Markdown only."""
MAX_COLUMNS = 16_384
ROWS_PER_PAGE = 5000


def read(job: Job) -> None:
    """XLSB."""
    from python_calamine import CalamineWorkbook

    try:
        book = CalamineWorkbook.from_path(str(job.source))
        names = [one.name for one in book.sheets_metadata if str(one.visible).endswith(".Visible")]
        sheets = [(name, book.get_sheet_by_name(name)) for name in names]
    except (MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # Rust panics are no Exception
        if "assword" in str(error):
            raise DocumentError("document_encrypted") from error
        raise DocumentError("document_broken", why="not readable as a workbook") from error
    index = 0
    for name, sheet in sheets:
        rows = ([display(value) for value in row] for row in sheet.iter_rows())
        index = write_sheet(job, index, name, rows)
    if not sheets:
        job.add_page(0, "")


def display(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    return numbers.displayed(value, "General")


def is_huge(source: Path) -> bool:
    """Whether the cells of all sheets are more than the office reader takes in its time and memory."""
    with zipfile.ZipFile(source) as archive:
        entries = [one for one in archive.infolist() if one.filename.startswith("xl/worksheets/")]
        if sum(one.file_size for one in entries) < HUGE_CELLS * len(b'<c r="A1"/>'):
            return False
        count = 0
        for entry in entries:
            with archive.open(entry) as part:
                while chunk := part.read(CHUNK_BYTES):
                    count += chunk.count(b"<c ") + chunk.count(b":c ")
                    if count > HUGE_CELLS:
                        return True
    return False


def read_xlsx(job: Job) -> None:
    """Rows as they come: memory does not grow with the sheet. Merged cells have their text in the first one, anyway."""
    import openpyxl

    try:
        with job.source.open("rb") as file:  # its name may have no ending, which openpyxl asks for
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            job.title = book.properties.title
            index = 0
            for sheet in book.worksheets:
                if sheet.sheet_state == "visible":
                    sheet.reset_dimensions()  # what the file says of them may be wrong
                    index = write_sheet(job, index, sheet.title, map(shown_row, sheet.iter_rows()))
            book.close()
    except (DocumentError, MemoryError):
        raise
    except Exception as error:
        raise DocumentError("document_broken", why=f"its content cannot be read ({type(error).__name__})") from error


def shown_row(row: Iterable[Any]) -> list[str]:
    return [
        "" if one.value is None else numbers.displayed(one.value, one.number_format or "General").removesuffix(" 00:00")
        for one in row
    ]


def write_sheet(job: Job, index: int, name: str, rows: Iterable[Sequence[str]]) -> int:
    """The sheet as pages of a table each; gives the index of the next page."""
    began = index
    head: list[str] | None = None
    for part in parts(rows):
        if head is None:
            head, body = list(part[0]), part[1:]
        else:
            body = part
        shown = [head, *body]
        used = [at for at in range(max(map(len, shown))) if any(at < len(row) and row[at] for row in shown)]
        shown = [[row[at] if at < len(row) else "" for at in used] for row in shown]
        title = f"## {escape(name)}\n\n" if name and index == began else ""
        if len(shown) * len(used) <= MAX_ASSET_CELLS:
            line = pipes(shown[0])
            job.add_table(html_table(shown), index, anchor=line)
        job.check_pages(index + 1)
        job.add_page(index, title + "\n".join([pipes(shown[0]), pipes(["---"] * len(used)), *map(pipes, shown[1:])]))
        job.progress(index + 1, None)
        index += 1
    if head is None:
        job.add_page(index, f"## {escape(name)}" if name else "")
        index += 1
    return index


def parts(rows: Iterable[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    """Rows that are not empty, so many at a time."""
    part: list[Sequence[str]] = []
    for row in rows:
        if any(row):
            part.append(row[:MAX_COLUMNS])
        if len(part) == ROWS_PER_PAGE:
            yield part
            part = []
    if part:
        yield part


def pipes(row: Sequence[str]) -> str:
    return (
        "| "
        + " | ".join(cell_text(value).replace("<", "&lt;") if "<" in value else cell_text(value) for value in row)
        + " |"
    )


BOUND_SHEET, END_OF_FILE = 0x85, 0x0A
MAX_GLOBAL_RECORDS = 100_000


def hidden_sheets(job: Job) -> set[str]:
    """Names of the sheets that the program does not show."""
    if job.media_type == sniff.XLSX:
        with zipfile.ZipFile(job.source) as archive:
            root = xml.parse(archive.read("xl/workbook.xml"))
        sheets = (one for one in root.iter() if xml.name_of(one) == "sheet")
        return {one.get("name", "") for one in sheets if one.get("state") in ("hidden", "veryHidden")}
    return hidden_xls(job) if job.media_type == sniff.XLS else set()


def hidden_xls(job: Job) -> set[str]:
    import olefile

    with olefile.OleFileIO(str(job.source)) as container:
        name = next((one for one in ("Workbook", "Book", "WORKBOOK", "BOOK") if container.exists(one)), "")
        data = container.openstream(name).read() if name else b""
    found: set[str] = set()
    at = 0
    for _ in range(MAX_GLOBAL_RECORDS):
        if at + 4 > len(data):
            break
        kind, size = struct.unpack_from("<HH", data, at)
        body = data[at + 4 : at + 4 + size]
        at += 4 + size
        if kind == END_OF_FILE:
            break
        if kind == BOUND_SHEET and len(body) > 8 and body[4] & 3:
            is_wide = body[7] & 1
            found.add(
                body[8 : 8 + body[6] * (2 if is_wide else 1)].decode("utf-16-le" if is_wide else "latin-1", "replace")
            )
    return found
