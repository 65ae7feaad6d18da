"""The dialect of seed 000: progress, a final report that may be huge, and failures. Read leniently.

`correlation`, `jobId` and tokens in a body are never kept: only the fields named here leave this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from math import isfinite
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, NoReturn
from uuid import UUID

import pybase64

from docmill.core.errors import BadRequest, DocmillError, Unauthorized
from docmill.core.reports import Cancelled, Failed, PageText, Progress
from docmill.core.reports import Final as FinalReport
from docmill.dialects.base import (
    MAX_ERROR,
    MAX_MESSAGE,
    WORKER_RESTARTED,
    Claim,
    Expected,
    Outcome,
    Signature,
    bearer,
    header_token,
    is_token,
    kept_small,
    worker_error,
    worker_failed,
)
from docmill.dialects.spill import Spill, Spilled, spilled

DATA_SPILLS: Final = (
    Spill(("extracted_text",), "text"),
    Spill(("images_archive_data",), "base64"),
    Spill(("metadata", "text_contents", "*", "content"), "text"),
)
"""For a file that holds the `data` of a final report alone."""
SPILLS: Final = tuple(Spill(("data", *spill.path), spill.kind) for spill in DATA_SPILLS)

MAX_PHASE: Final = 200
MAX_PROCESS_ID: Final = 200
MAX_NAME: Final = 255
MAX_ADDRESS: Final = 2_000
MAX_PAGE: Final = 1_000_000

ARCHIVE_URLS: Final = ("images_archive_url", "pages_archive_url", "mistral_ocr_images_url", "archive_url")
"""Fields with the address of a ZIP of images. Workers of today send these, often relative to their own origin."""

_SAYINGS: Final = ("phase", "progress", "message", "data", "error")
_RESULTS: Final = ("extracted_text", "images_archive_data", *ARCHIVE_URLS, "markdown_url", "result_key")
_DECIMAL: Final = re.compile(r"\s*([-+]?[0-9]{1,20}(?:\.[0-9]{1,20})?)\s*", re.ASCII)
_WHOLE: Final = re.compile(r"[0-9]{1,7}", re.ASCII)


class Secretary:
    name = "secretary"
    spills = SPILLS

    def authenticate(self, claim: Claim, expected: Expected) -> None:
        # Each carrier that is there must be right; so two that differ never pass.
        if claim.x_callback_token:
            by_header = is_token(header_token(claim), expected)
            right = by_header and is_token(bearer(claim), expected) if claim.authorization else by_header
        else:
            right = is_token(bearer(claim), expected)
        if not right:
            raise Unauthorized("callback_token_invalid")

    def signature(self, claim: Claim, expected: Expected, *, now: float) -> Signature:
        return Signature(claim, expected, now=now, refusal=Unauthorized)

    def read(self, value: Any, folder: Path | None = None) -> Outcome:
        if not isinstance(value, dict):
            _refuse("the body is not a JSON object")
        if all(value.get(name) is None for name in _SAYINGS):
            _refuse(f"it has none of {', '.join(_SAYINGS)}")
        phase = _text(value, "phase", MAX_PHASE)
        error = value.get("error")
        end = phase.strip().lower()
        completed = end == "completed"
        if end == "failed" or error or (error == {} and not completed):
            return _failed(value, error)
        data = _object(value, "data")
        if completed or (data and any(data.get(name) is not None for name in _RESULTS)):
            return _final(data, folder, process_id=_process_id(value), message=_text(value, "message", MAX_MESSAGE))
        return Progress(
            _percent(value.get("progress")), phase, _text(value, "message", MAX_MESSAGE), _process_id(value)
        )

    def read_data(self, data: Any, folder: Path | None = None) -> FinalReport:
        """The `data` of a final report, from a file that a worker stored."""
        if not isinstance(data, dict):
            _refuse("the result is not a JSON object")
        return _final(data, folder)

    def outcome_hash(self, value: Any) -> str | None:  # noqa: ARG002 - a differing report gets the same answer here
        return None

    def reply(self, report: Outcome, job_id: UUID, *, cancel_requested: bool = False) -> dict[str, Any]:
        answer: dict[str, Any] = {"status": "ok", "kind": _kind(report), "jobId": str(job_id)}
        if cancel_requested and isinstance(report, Progress):
            answer["cancel_requested"] = True
        return answer

    def refusal(self, error: DocmillError) -> dict[str, Any] | None:  # noqa: ARG002 - the seed leaves the form to us
        return None


def _kind(report: Outcome) -> str:
    match report:
        case Progress():
            return "progress"
        case FinalReport():
            return "final"
        case Failed() | Cancelled():
            return "failed"


def _failed(value: dict[str, Any], error: Any) -> Failed:
    said = error if isinstance(error, dict) else {"message": error if isinstance(error, str) else None}
    message = _text(said, "message", MAX_ERROR, "error.") or _text(value, "message", MAX_MESSAGE)
    details: dict[str, Any] = {}
    if (code := said.get("code")) and isinstance(code, str | int):
        details["code"] = str(code)[:MAX_PHASE]
    if (added := said.get("details")) is not None:
        details["details"] = kept_small(added)
    if process_id := _process_id(value):
        details["process_id"] = process_id
    why = message or details.get("code") or "The worker reported a failure and gave no reason."
    own = worker_error(details.get("code"), message, added)
    failed = worker_failed(why, details.get("code") == WORKER_RESTARTED, details, own)
    # Workers send `phase: "failed"` without an error object for every error line of their log.
    is_final = bool(error) or isinstance(error, dict)
    return replace(failed, is_final=is_final, process_id=process_id)


def _final(
    data: dict[str, Any], folder: Path | None, *, process_id: str | None = None, message: str = ""
) -> FinalReport:
    text = _file(data, "extracted_text", folder)
    archive = _file(data, "images_archive_data", folder)
    if archive is not None and not archive.size:
        archive = None
    text_url = _text(data, "markdown_url", MAX_ADDRESS, "data.", cut=False) or None
    archive_urls = {name: url for name in ARCHIVE_URLS if (url := _text(data, name, MAX_ADDRESS, "data.", cut=False))}
    result_key = _text(data, "result_key", MAX_ADDRESS, "data.", cut=False) or None
    if text is None and archive is None and not (text_url or archive_urls or result_key):
        _refuse(f"a final report needs one of {', '.join(f'data.{name}' for name in _RESULTS)}")
    entries = _entries(data.get("metadata"))
    pages = _pages(entries, folder)
    ignored = len(entries) - len(pages)
    removed = sum(one.removed for one in spilled(data))
    return FinalReport(
        text=text.path if text else None,
        pages=pages,
        archive=archive.path if archive else None,
        text_url=text_url,
        archive_urls=archive_urls,
        result_key=result_key,
        process_id=process_id,
        message=message,
        facts=_facts(data, text, archive)
        | ({"pages_ignored": ignored} if ignored else {})
        | ({"characters_removed": removed} if removed else {}),
    )


def _facts(data: dict[str, Any], text: Spilled | None, archive: Spilled | None) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, file in (("text", text), ("archive", archive)):
        if file is not None:
            facts |= {f"{name}_size": file.size, f"{name}_sha256": file.sha256}
    if filename := _text(data, "images_archive_filename", MAX_NAME, "data."):
        facts["archive_filename"] = filename
    return facts


def _entries(metadata: Any) -> list[Any]:
    """The entries of the text by page, whatever they are."""
    entries = metadata.get("text_contents") if isinstance(metadata, dict) else None
    return entries if isinstance(entries, list) else [] if entries is None else [entries]


def _pages(entries: list[Any], folder: Path | None) -> tuple[PageText, ...]:
    """The text by page. Entries that make no sense are left out: the whole text is there without them."""
    pages = sorted((page for entry in entries if (page := _page(entry))), key=lambda page: page[0])
    if not any(isinstance(content, str) for _, content in pages):
        return tuple(PageText(number, one.path, one.start, one.size) for number, one in pages)
    if folder is None:
        raise ValueError("pages are strings: give a folder, or read the body with SPILLS")
    return tuple(_written_pages(pages, folder))


def _written_pages(pages: list[tuple[int, Any]], folder: Path) -> Iterable[PageText]:
    with NamedTemporaryFile("wb", prefix="spill-", dir=folder, delete=False) as file:
        for number, content in pages:
            start = file.tell()
            try:
                size = file.write(content.encode())
            except UnicodeEncodeError:
                _refuse("data.metadata.text_contents is not Unicode")
            yield PageText(number, Path(file.name), start, size)


def _page(entry: Any) -> tuple[int, Any] | None:
    if not isinstance(entry, dict):
        return None
    number, content = entry.get("page"), entry.get("content")
    if isinstance(number, str) and _WHOLE.fullmatch(number):
        number = int(number)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_PAGE:
        return None
    return (number, content) if isinstance(content, str | Spilled) else None


def _percent(given: Any) -> float | None:
    if given is None:
        return None
    if isinstance(given, str) and (match := _DECIMAL.fullmatch(given)):
        given = float(match[1])
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or (isinstance(given, float) and not isfinite(given))
    ):
        _refuse("progress is not a number")
    if not 0 <= given <= 100:
        _refuse("progress is not between 0 and 100")
    return float(given)


def _process_id(value: dict[str, Any]) -> str | None:
    process = value.get("process")
    given = process.get("id") if isinstance(process, dict) else None
    if isinstance(given, bool) or not isinstance(given, str | int):
        return None
    return str(given)[:MAX_PROCESS_ID] or None


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    given = value.get(name)
    if given is None:
        return {}
    if not isinstance(given, dict):
        _refuse(f"{name} is not an object")
    return given


def _text(value: dict[str, Any], name: str, limit: int, within: str = "", *, cut: bool = True) -> str:
    given = value.get(name)
    if given is None:
        return ""
    if not isinstance(given, str):
        _refuse(f"{within}{name} is not a text")
    if len(given) > limit and not cut:
        _refuse(f"{within}{name} has more than {limit} characters")
    return given[:limit]


def _file(data: dict[str, Any], name: str, folder: Path | None) -> Spilled | None:
    given = data.get(name)
    if given is None or isinstance(given, Spilled):
        return given
    if not isinstance(given, str):
        _refuse(f"data.{name} is not a text")
    if folder is None:
        raise ValueError(f"{name} is a string: give a folder, or read the body with SPILLS")
    return _written(name, given, folder)


def _written(name: str, given: str, folder: Path) -> Spilled:
    try:
        content = given.encode() if name == "extracted_text" else pybase64.b64decode(given, validate=True)
    except ValueError:
        _refuse(f"data.{name} is not base64" if name == "images_archive_data" else f"data.{name} is not Unicode")
    with NamedTemporaryFile("wb", prefix="spill-", dir=folder, delete=False) as file:
        file.write(content)
    return Spilled(Path(file.name), len(content), sha256(content).hexdigest())


def _refuse(why: str) -> NoReturn:
    raise BadRequest("callback_payload_invalid", why=why)
