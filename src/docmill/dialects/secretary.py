"""The dialect of seed 000: progress, a final report that may be huge, and failures. Read leniently.

`correlation`, `jobId` and tokens in a body are never kept: only the fields named here leave this module.
"""

from __future__ import annotations

import re
from hashlib import sha256
from math import isfinite
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, NoReturn
from uuid import UUID

import pybase64

from docmill.core.errors import BadRequest, DocmillError, Unauthorized
from docmill.core.reports import Cancelled, Failed, Progress
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
    worker_failed,
)
from docmill.dialects.spill import Spill, Spilled

DATA_SPILLS: Final = (Spill(("extracted_text",), "text"), Spill(("images_archive_data",), "base64"))
"""For a file that holds the `data` of a final report alone."""
SPILLS: Final = tuple(Spill(("data", *spill.path), spill.kind) for spill in DATA_SPILLS)

MAX_PHASE: Final = 200
MAX_PROCESS_ID: Final = 200
MAX_NAME: Final = 255
MAX_ADDRESS: Final = 2_000
MAX_PAGE: Final = 1_000_000

_RESULTS: Final = ("extracted_text", "images_archive_data", "images_archive_url", "result_key")
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
    return worker_failed(why, details.get("code") == WORKER_RESTARTED, details)


def _final(
    data: dict[str, Any], folder: Path | None, *, process_id: str | None = None, message: str = ""
) -> FinalReport:
    text = _file(data, "extracted_text", folder)
    archive = _file(data, "images_archive_data", folder)
    if archive is not None and not archive.size:
        archive = None
    archive_url = _text(data, "images_archive_url", MAX_ADDRESS, "data.", cut=False) or None
    result_key = _text(data, "result_key", MAX_ADDRESS, "data.", cut=False) or None
    if text is None and archive is None and archive_url is None and result_key is None:
        _refuse(f"a final report needs one of {', '.join(f'data.{name}' for name in _RESULTS)}")
    pages, ignored = _pages(data.get("metadata"))
    return FinalReport(
        text=text.path if text else None,
        pages=pages,
        archive=archive.path if archive else None,
        archive_url=archive_url,
        result_key=result_key,
        process_id=process_id,
        message=message,
        facts=_facts(data, text, archive) | ({"pages_ignored": ignored} if ignored else {}),
    )


def _facts(data: dict[str, Any], text: Spilled | None, archive: Spilled | None) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, file in (("text", text), ("archive", archive)):
        if file is not None:
            facts |= {f"{name}_size": file.size, f"{name}_sha256": file.sha256}
    if filename := _text(data, "images_archive_filename", MAX_NAME, "data."):
        facts["archive_filename"] = filename
    return facts


def _pages(metadata: Any) -> tuple[tuple[tuple[int, str], ...], int]:
    """The text by page, and how many entries made no sense: the whole text is there without them."""
    entries = metadata.get("text_contents") if isinstance(metadata, dict) else None
    if entries is None:
        return (), 0
    if not isinstance(entries, list):
        return (), 1
    pages = [page for entry in entries if (page := _page(entry)) is not None]
    return tuple(sorted(pages, key=lambda page: page[0])), len(entries) - len(pages)


def _page(entry: Any) -> tuple[int, str] | None:
    if not isinstance(entry, dict):
        return None
    number, content = entry.get("page"), entry.get("content")
    if isinstance(number, str) and _WHOLE.fullmatch(number):
        number = int(number)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_PAGE:
        return None
    return (number, content) if isinstance(content, str) else None


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
    return float(min(max(given, 0), 100))


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
