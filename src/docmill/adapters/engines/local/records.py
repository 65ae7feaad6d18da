"""Subtitles as paragraphs with times, calendars as events, JSON, YAML and TOML as blocks and tables."""

from __future__ import annotations

import json
import re
from typing import Any

from .. import sniff
from ..markdown import escape, html_table, table, tidy
from .job import Job
from .notebook import FENCES
from .text import decode

CUE_TIME = re.compile(r"^\s*((?:\d{1,3}:)?\d{1,2}:\d{2}[.,]\d{1,3})\s+-->\s+((?:\d{1,3}:)?\d{1,2}:\d{2}[.,]\d{1,3})")
CUE_TAG = re.compile(
    r"<v(?:\.[^\s<>]{0,100})?\s+([^<>]{1,200})>|</?[a-z0-9.:]{0,100}(?:\s[^<>]{0,200})?>", re.IGNORECASE
)
VTT_BLOCK = re.compile(r"(?:NOTE|STYLE|REGION)(?:\s|$)")
ICS_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)?(Z)?)?")
ICS_ESCAPE = re.compile(r"\\([nN,;\\])")
EVENTS = {"VEVENT": "Event", "VTODO": "Task", "VJOURNAL": "Journal"}
FIELDS = {
    "DTSTART": "Start", "DTEND": "End", "DUE": "Due", "DURATION": "Duration", "LOCATION": "Location",
    "ORGANIZER": "Organizer", "ATTENDEE": "Attendee", "RRULE": "Repeats", "STATUS": "Status", "URL": "Link",
    "CATEGORIES": "Categories", "DESCRIPTION": "Description", "COMMENT": "Comment", "CONTACT": "Contact",
    "RESOURCES": "Resources",
}  # fmt: skip
MAX_TABLE_CELLS = 200_000
MAX_TABLE_COLUMNS = 50
MAX_PARSED_BYTES = 64 << 20


def read(job: Job) -> None:
    text = decode(job.source.read_bytes())
    readers = {sniff.VTT: subtitles, sniff.SRT: subtitles, sniff.ICS: calendar}
    if job.media_type in readers:
        job.add_page(0, readers[job.media_type](text))
    elif job.media_type == sniff.JSON:
        job.add_page(0, data(job, text))
    else:
        job.add_page(0, block(text, "yaml" if job.media_type == sniff.YAML else "toml"))
    job.progress(1, 1)


def subtitles(text: str) -> str:
    """Cues as paragraphs; consecutive ones of one speaker are not joined, their times tell them apart."""
    paragraphs: list[str] = []
    for chunk in re.split(r"\n{2,}", text.replace("\r\n", "\n").replace("\r", "\n").strip()):
        lines = chunk.strip("\n").split("\n")
        at = next((number for number, line in enumerate(lines[:3]) if CUE_TIME.match(line)), None)
        if at is None:
            rest = " ".join(lines)
            if not VTT_BLOCK.match(rest) and not rest.startswith("WEBVTT"):
                paragraphs.append(escape(rest))
            elif rest.startswith(("NOTE", "WEBVTT")) and len(rest.split()) > 1:
                paragraphs.append(escape(rest.split(None, 1)[1].lstrip("- ")))
            continue
        found = CUE_TIME.match(lines[at])
        if found is None:
            continue
        said = " ".join(CUE_TAG.sub(lambda tag: f"{tag[1]}: " if tag[1] else "", line) for line in lines[at + 1 :])
        label = f" *{escape(lines[0])}*" if at == 1 and not lines[0].strip().isdecimal() else ""
        paragraphs.append(f"**{found[1]} – {found[2]}**{label} {escape(said)}".rstrip())
    return "\n\n".join(filter(None, paragraphs))


def calendar(text: str) -> str:
    """Every event is a section with its fields as a list."""
    sections: list[str] = []
    fields: list[tuple[str, str]] = []
    kind, depth = "", 0
    for line in unfolded(text):
        name, _, value = line.partition(":")
        name, _, parameters = name.partition(";")
        name, value = name.upper().strip(), value.strip()
        if name == "BEGIN":
            if value.upper() in EVENTS:
                kind, fields, depth = value.upper(), [], 0
            elif kind:
                depth += 1
            continue
        if name == "END":
            if value.upper() == kind:
                sections.append(event(EVENTS[kind], fields))
                kind = ""
            elif kind:
                depth -= 1
            continue
        if kind and not depth:
            fields.append((name, shown_value(name, value, parameters)))
        elif not kind and name in ("X-WR-CALNAME", "NAME") and value:
            sections.insert(0, f"# {escape(unescaped(value))}")
    return tidy("\n\n".join(sections))


def unfolded(text: str) -> list[str]:
    """Lines that begin with a space go on with the one before."""
    return re.sub(r"\r?\n[ \t]", "", text).replace("\r\n", "\n").split("\n")


def unescaped(value: str) -> str:
    return ICS_ESCAPE.sub(lambda found: "\n" if found[1] in "nN" else found[1], value)


def shown_value(name: str, value: str, parameters: str) -> str:
    if name in ("DTSTART", "DTEND", "DUE") and (found := ICS_DATE.fullmatch(value)):
        year, month, day, hour, minute, second, zulu = found.groups()
        time = f" {hour}:{minute}" + (f":{second}" if second and second != "00" else "") if hour else ""
        zone = next((one[5:] for one in parameters.split(";") if one.upper().startswith("TZID=")), "")
        return f"{year}-{month}-{day}{time}{' UTC' if zulu else f' ({zone})' if zone and time else ''}"
    if name in ("ORGANIZER", "ATTENDEE"):
        said = next((one[3:].strip('"') for one in parameters.split(";") if one.upper().startswith("CN=")), "")
        address = re.sub(r"^mailto:", "", value, flags=re.IGNORECASE)
        return f"{said} ({address})" if said and said != address else address
    return unescaped(value)


def event(kind: str, fields: list[tuple[str, str]]) -> str:
    title = next((value for name, value in fields if name == "SUMMARY" and value), kind)
    lines = [f"- **{FIELDS[name]}:** {escape(value)}" for name, value in fields if name in FIELDS and value]
    return f"## {escape(title)}\n\n" + "\n".join(lines)


def data(job: Job, text: str) -> str:
    """JSON: an array of flat objects is a table, everything else a block."""
    try:
        value = json.loads(text) if len(text) <= MAX_PARSED_BYTES else None
    except (ValueError, RecursionError):
        job.warn("not valid JSON: shown as it is")
        return block(text, "json")
    rows = rows_of(value)
    if rows is None:
        return block(text, "json")
    markdown = table(rows)
    job.add_table(html_table(rows), 0, anchor=markdown.split("\n", 1)[0])
    return markdown


def rows_of(value: Any) -> list[list[str]] | None:
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) and one for one in value):
        return None
    names = list(dict.fromkeys(name for one in value for name in one))
    if len(names) > MAX_TABLE_COLUMNS or len(names) * len(value) > MAX_TABLE_CELLS:
        return None
    if any(isinstance(cell, dict | list) for one in value for cell in one.values()):
        return None
    return [names, *([shown_cell(one.get(name)) for name in names] for one in value)]


def shown_cell(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def block(text: str, language: str) -> str:
    """The text as it is, in a block that it cannot end itself."""
    fence = "`" * max([3, *(len(found) + 1 for found in FENCES.findall(text))])
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"
