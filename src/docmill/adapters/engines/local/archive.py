"""ZIP, TAR and GZIP: a manifest on the first page, and every member as a document of its own behind it."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath

from docmill.core.errors import DocumentError

from .. import sniff
from .guards import RATIO_FROM, bomb, check_overlap
from .job import Job
from .members import MB, Member, Row, failure, label_of, manifest, read_members

HIDDEN = ("__MACOSX/", ".DS_Store", "Thumbs.db", "desktop.ini")
"""What systems put into archives for themselves."""
TAR_BLOCK_BYTES = 512
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    tarfile.TarError,
    OSError,
    ValueError,
)


def read(job: Job) -> None:
    if job.depth >= job.limits.member_depth:
        raise bomb(f"archives inside archives, more than {job.limits.member_depth} deep")
    job.title = None
    rows = read_members(job, members_of(job), after=1)
    job.add_page(0, manifest(rows) if rows else "The archive is empty.")


def members_of(job: Job) -> Iterator[Member | Row]:
    if job.media_type == sniff.ZIP:
        yield from zip_members(job)
    elif job.media_type == sniff.TAR:
        yield from tar_members(job, job.source.read_bytes())
    else:
        yield from gzip_members(job)


def zip_members(job: Job) -> Iterator[Member | Row]:
    try:
        with zipfile.ZipFile(job.source) as archive:
            entries = archive.infolist()
            if len(entries) > job.limits.zip_entries:
                raise bomb(f"{len(entries)} entries")
            check_overlap(job.source, entries)
            shown = [one for one in entries if not one.is_dir() and not is_hidden(one.filename)]
            if shown and all(one.flag_bits & 1 for one in shown):
                raise DocumentError("document_encrypted")
            for entry in shown:
                yield zip_member(job, archive, entry)
    except (zipfile.BadZipFile, zlib.error, OverflowError, ValueError) as error:
        raise DocumentError("document_broken", why="the archive is damaged or a part of a split one") from error


def zip_member(job: Job, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Member | Row:
    label = label_of(entry.filename)
    if entry.flag_bits & 1:
        return refused(label, entry.file_size, "document_encrypted", "it is encrypted")
    if stat.S_ISLNK(entry.external_attr >> 16):
        return refused(label, entry.file_size, "document_unsupported", "it is a link")
    try:
        with archive.open(entry) as stream:
            data = stream.read(left(job) + 1)
    except DAMAGED:
        return refused(label, entry.file_size, "document_broken", "its data is damaged")
    check_size(job, len(data), entry.compress_size)
    return Member(label, data)


def tar_members(job: Job, data: bytes) -> Iterator[Member | Row]:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for count, entry in enumerate(archive):
                if count > job.limits.zip_entries:
                    raise bomb(f"more than {job.limits.zip_entries} entries")
                if entry.isdir() or is_hidden(entry.name):
                    continue
                label = label_of(entry.name)
                if not entry.isfile():
                    yield refused(label, 0, "document_unsupported", "it is a link or a device")
                    continue
                stream = archive.extractfile(entry)
                yield Member(label, stream.read(left(job) + 1) if stream else b"")
    except (tarfile.TarError, EOFError, ValueError, OSError) as error:
        raise DocumentError("document_broken", why="the archive is damaged") from error


def gzip_members(job: Job) -> Iterator[Member | Row]:
    """One file, or a TAR archive, that is not a level of its own."""
    packed = job.source.stat().st_size
    try:
        with gzip.open(job.source) as stream:
            data = stream.read(left(job) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DocumentError("document_broken", why="its packed data is damaged") from error
    check_size(job, len(data), packed)
    if data[257:262] == b"ustar" and sniff.is_tar_header(data[:TAR_BLOCK_BYTES]):
        yield from tar_members(job, data)
        return
    name = label_of(job.filename)
    yield Member(name[:-3] if name.lower().endswith(".gz") else name, data)


def left(job: Job) -> int:
    """Bytes that the tree may still unpack to."""
    return min(job.limits.zip_entry_mb, job.limits.zip_mb) * MB - job.tree.unpacked


def check_size(job: Job, size: int, packed: int) -> None:
    if size > left(job):
        raise bomb(f"more than {job.limits.zip_mb} MB in all")
    if size > RATIO_FROM and size > job.limits.zip_ratio * max(1, packed):
        raise bomb(f"a member packed more than {job.limits.zip_ratio} times")


def is_hidden(name: str) -> bool:
    return name.startswith(HIDDEN[0]) or PurePosixPath(name).name in HIDDEN[1:]


def refused(label: str, size: int, code: str, why: str) -> Row:
    return Row(label, "", size, failure(code, why), code=code)
