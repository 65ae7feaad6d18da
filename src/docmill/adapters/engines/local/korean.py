"""Hangul Word Processor (HWP 5 and HWPX), by the optional package unhwp."""

from __future__ import annotations

import struct
import zipfile

from docmill.core.errors import DocumentError

from .. import sniff
from ..markdown import disarm, tidy
from . import xml
from .job import Job

ENCRYPTED_BIT, DISTRIBUTION_BIT = 2, 4
FLAGS_OFFSET = 36


def read(job: Job) -> None:
    try:
        import unhwp
    except ImportError:
        raise DocumentError(
            "document_needs_program",
            media_type=job.media_type,
            type=sniff.name_of(job.media_type),
            program="the package unhwp",
            advice="Install docmill[hwp], or save the file as DOCX or PDF.",
        ) from None
    if job.media_type == sniff.HWP:
        check_flags(job)
    try:
        markdown = str(unhwp.to_markdown(str(job.source)))
    except Exception as error:
        if "ncrypt" in str(error) or "assword" in str(error):
            raise DocumentError("document_encrypted") from error
        raise DocumentError("document_broken", why="not readable as a Hangul document") from error
    if not any(map(str.isalnum, markdown)) and job.media_type == sniff.HWPX:
        markdown = hwpx_text(job)
    job.add_page(0, tidy(disarm(markdown)))
    job.progress(1, 1)


def check_flags(job: Job) -> None:
    """Copies for distribution hold a notice instead of their text, and the reader does not say so."""
    import olefile

    try:
        with olefile.OleFileIO(str(job.source)) as container:
            header = container.openstream("FileHeader").read(256)
        flags = struct.unpack_from("<I", header, FLAGS_OFFSET)[0]
    except (OSError, struct.error, ValueError, IndexError) as error:
        raise DocumentError("document_broken", why="its header cannot be read") from error
    if flags & (ENCRYPTED_BIT | DISTRIBUTION_BIT):
        raise DocumentError("document_encrypted")


def hwpx_text(job: Job) -> str:
    with zipfile.ZipFile(job.source) as archive:
        parts = sorted(name for name in archive.namelist() if name.startswith("Contents/section"))
        return "\n\n".join(xml.text_of(xml.parse(archive.read(part))) for part in parts)
