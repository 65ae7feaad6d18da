"""The JSON of both dialects. Big reports are written into a file piece by piece, and never held whole."""

from __future__ import annotations

import binascii
import json
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal

Dialect = Literal["secretary", "dispatcher"]
Status = Literal["completed", "failed", "timed_out", "cancelled"]
Images = Path | Iterable[tuple[str, bytes | Path]]
Pages = Iterable[str | tuple[int, str]]

PIECE = 3 * 64 * 1024
"""Divisible by three: the base64 of the pieces is the base64 of the whole."""
MAX_MESSAGE = 500
MAX_ERROR = 5_000
MAX_KEY = 500
MAX_LOG_STREAM = 1_000
STATUSES = ("completed", "failed", "timed_out", "cancelled")
PACKED_ALREADY = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".zip", ".jp2", ".avif"})


def encode(value: Any) -> bytes:
    # Lone surrogates have no UTF-8; they become question marks instead of an exception at the very end of the work.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace")


def progress(percent: float, phase: str, message: str | None, process_id: str | None) -> dict[str, Any]:
    clamped = min(100.0, max(0.0, float(percent)))
    body: dict[str, Any] = {"phase": phase, "progress": int(clamped) if clamped.is_integer() else round(clamped, 2)}
    if message:
        body["message"] = message[:MAX_MESSAGE]
    if process_id:
        body["process"] = {"id": process_id}
    return body


def failed(code: str, message: str, details: Mapping[str, Any] | None) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message[:MAX_ERROR]}
    if details:
        error["details"] = dict(details)
    return {"phase": "failed", "error": error}


def finished(
    job_id: str,
    status: Status,
    *,
    exit_code: int | None = None,
    result_key: str | None = None,
    result_metadata: Mapping[str, Any] | None = None,
    error_message: str | None = None,
    log_stream: str | None = None,
) -> dict[str, Any]:
    """The dispatcher's one report. Its schema refuses unknown fields, and whatever is too long."""
    if status not in STATUSES:
        raise ValueError(f"status is one of {', '.join(STATUSES)}, not {status!r}")
    if result_key is not None and len(result_key) > MAX_KEY:
        raise ValueError(f"result_key is longer than {MAX_KEY} characters")
    if log_stream is not None and len(log_stream) > MAX_LOG_STREAM:
        raise ValueError(f"log_stream is longer than {MAX_LOG_STREAM} characters")
    optional = {
        "result_key": result_key,
        "result_metadata": dict(result_metadata) if result_metadata else None,
        "error_message": error_message[:MAX_ERROR] if error_message else None,
        "log_stream": log_stream,
    }
    return {
        "status": status,
        "exit_code": exit_code,
        "task_id": job_id,
        "completed_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        **{name: value for name, value in optional.items() if value is not None},
    }


@dataclass(frozen=True, slots=True)
class Final:
    """The secretary's result. At least one of text, images and result_key."""

    text: str | Path | None = None
    images: Images | None = None
    pages: Pages = ()
    result_key: str | None = None
    message: str | None = None
    images_name: str = "images.zip"

    def write(self, out: BinaryIO) -> None:
        if self.text is None and self.images is None and self.result_key is None:
            raise ValueError("a result needs text, images or a result_key")
        out.write(b'{"phase":"completed",')
        if self.message:
            out.write(b'"message":%b,' % encode(self.message[:MAX_MESSAGE]))
        out.write(b'"data":{"metadata":{"text_contents":[')
        for number, piece in enumerate(_pages(self.pages)):
            out.write(b"," if number else b"")
            out.write(encode(piece))
        out.write(b"]}")
        if self.result_key is not None:
            out.write(b',"result_key":%b' % encode(self.result_key))
        if self.text is not None:
            out.write(b',"extracted_text":')
            _write_text(out, self.text)
        if self.images is not None:
            out.write(b',"images_archive_filename":%b,"images_archive_data":"' % encode(self.images_name))
            with zipped(self.images) as archive:
                _write_base64(out, archive)
            out.write(b'"')
        out.write(b"}}")


def _pages(pages: Pages) -> Iterator[dict[str, Any]]:
    for number, page in enumerate(pages, 1):
        at, content = (number, page) if isinstance(page, str) else page
        yield {"page": at, "content": content}


def _write_text(out: BinaryIO, text: str | Path) -> None:
    if isinstance(text, str):
        out.write(encode(text))
        return
    out.write(b'"')
    with text.open(encoding="utf-8", errors="replace", newline="") as file:
        while piece := file.read(PIECE):
            out.write(encode(piece)[1:-1])
    out.write(b'"')


def _write_base64(out: BinaryIO, data: BinaryIO) -> None:
    while piece := data.read(PIECE):
        out.write(binascii.b2a_base64(piece, newline=False))


def zipped(images: Images) -> BinaryIO:
    """An open ZIP of the images: the one that was given, or a new one that vanishes when it is closed."""
    if isinstance(images, Path) and not images.is_dir():
        if not zipfile.is_zipfile(images):
            raise ValueError(f"{images.name} is neither a folder nor a ZIP archive")
        return images.open("rb")
    # An unnamed file: whoever is killed half-way leaves nothing behind.
    out: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it  # type: ignore[assignment]
    try:
        pack(out, folder_items(images) if isinstance(images, Path) else images)
        out.seek(0)
    except BaseException:
        out.close()
        raise
    return out


def folder_items(folder: Path, below: str = "") -> Iterator[tuple[str, Path]]:
    """Every file below the folder, by its relative name."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield below + path.relative_to(folder).as_posix(), path


def pack(out: BinaryIO, items: Iterable[tuple[str, bytes | Path]]) -> None:
    """Write a ZIP, one item at a time."""
    seen: set[str] = set()
    with zipfile.ZipFile(out, "w", allowZip64=True) as archive:
        for raw, data in items:
            name = _entry_name(raw)
            if name in seen:
                raise ValueError(f"the archive would hold {name!r} twice")
            seen.add(name)
            packed = PurePosixPath(name).suffix.lower() in PACKED_ALREADY
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            if isinstance(data, Path):
                entry.file_size = data.stat().st_size
            with archive.open(entry, "w") as member:
                for piece in [data] if isinstance(data, bytes) else pieces(data):
                    member.write(piece)


def _entry_name(raw: str) -> str:
    name = PurePosixPath(raw.replace("\\", "/"))
    if not name.parts or name.is_absolute() or ".." in name.parts or "\0" in raw:
        raise ValueError(f"{raw!r} is no name for a file in an archive")
    return name.as_posix()


def pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
