"""Documents inside a document: each is read by its own reader, and a failed one does not fail the others.

The pages of all members follow those of the document that holds them; a manifest says what became of each. Limits hold
for the whole tree. Names of members are labels, never paths.
"""

from __future__ import annotations

import contextlib
import hashlib
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from docmill.core.errors import DocmillError, DocumentError

from .. import sniff
from ..markdown import cell, clean, escape
from .job import Job, OutputTooLarge

MB = 1 << 20
MAX_NAME_CHARACTERS = 200
MAX_MANIFEST_FACTS = 200
"""Members that the facts of the document list; the manifest in the text has all."""


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the manifest."""

    name: str
    type: str
    size: int
    result: str
    pages: tuple[int, int] | None = None
    sha256: str = ""
    code: str = ""


def read_members(job: Job, members: Iterable[Member | Row], *, after: int) -> list[Row]:
    """Read all members; their pages follow the first *after* pages of the job. Rows that come are kept as they are."""
    rows: list[Row] = []
    known: dict[str, Row] = {}
    following = after
    for member in members:
        if isinstance(member, Row):
            rows.append(member)
            continue
        job.tree.members += 1
        job.tree.unpacked += len(member.data)
        if job.tree.unpacked > job.limits.zip_mb * MB:
            raise DocumentError("document_bomb", why=f"more than {job.limits.zip_mb} MB in all")
        digest = hashlib.sha256(member.data).hexdigest()
        if digest in known:  # equal bytes are read once
            first = known[digest]
            rows.append(
                Row(label_of(member.name), first.type, first.size, f"same as {escape(first.name)}", sha256=digest)
            )
            continue
        if job.tree.members > job.limits.members:
            result = failure("document_bomb", f"more than {job.limits.members} members")
            rows.append(Row(label_of(member.name), "", len(member.data), result, code="document_bomb"))
            continue
        row, pages = read_member(job, member, following, digest)
        following += pages
        known[digest] = row
        rows.append(row)
        job.progress(following, None)
    facts = [facts_of(row) for row in rows[:MAX_MANIFEST_FACTS]]
    job.facts["members"] = job.facts.get("members", []) + facts
    return rows


def read_member(job: Job, member: Member, first_page: int, digest: str) -> tuple[Row, int]:
    from .reading import read

    label = label_of(member.name)
    folder = job.folder / "members"
    folder.mkdir(exist_ok=True)
    source = folder / f"{digest[:32]}-{job.depth}"
    source.write_bytes(member.data)
    draft = job.draft(
        source=source,
        filename=label,
        first_page=job.first_page + first_page,
        depth=job.depth + 1,
        media_type="",
        progress=lambda _done, _total: None,
    )
    kind = sniff.name_of(sniff.sniff(source, label))
    try:
        with within(job.limits.member_seconds):
            read(draft)
    except (MemoryError, OutputTooLarge):
        raise
    except (DocmillError, TooSlow, RecursionError) as error:
        code = error.code if isinstance(error, DocmillError) else "parse_timeout"
        message = error.message if isinstance(error, DocmillError) else "it takes too long"
        return Row(label, kind, len(member.data), failure(code, message), sha256=digest, code=code), 0
    except Exception as error:
        message = f"its content cannot be read ({type(error).__name__})"
        result = failure("document_broken", message)
        return Row(label, kind, len(member.data), result, sha256=digest, code="document_broken"), 0
    finally:
        source.unlink(missing_ok=True)
    with_title(draft, label)
    pages = draft.pages
    draft.title = draft.language = None
    job.adopt(draft, label=label)
    first = job.first_page + first_page + 1
    span = (first, first + pages - 1)
    shown = f"page {span[0]}" if pages == 1 else f"pages {span[0]}–{span[1]}"
    return Row(label, kind, len(member.data), shown if pages else "no pages", span, digest), pages


def with_title(draft: Job, label: str) -> None:
    """The member's first page begins with its name."""
    if draft.kept:
        page, figures = draft.kept[0]
        draft.kept[0] = (replace(page, markdown=f"# {escape(label)}\n\n{page.markdown}".rstrip(), blocks=()), figures)


class TooSlow(Exception):
    """A member took longer than one member may."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the time of one member, as far as Python is asked; the document's own limit ends the process."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    left = signal.setitimer(signal.ITIMER_REAL, seconds)[0]
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, before)


def failure(code: str, message: str) -> str:
    """What the manifest says of a member that could not be read."""
    return f"`{code}`: {escape(message)}"


def label_of(name: str) -> str:
    """A name to show: no control characters, no path that leads anywhere."""
    parts = [part for part in clean(name).replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return " ".join("/".join(parts).split())[:MAX_NAME_CHARACTERS] or "unnamed"


def manifest(rows: list[Row]) -> str:
    """A table of all members and what became of them."""
    lines = ["| Name | Type | Bytes | Result |", "| --- | --- | --- | --- |"]
    lines += [f"| {cell(escape(row.name))} | {cell(row.type)} | {row.size} | {cell(row.result)} |" for row in rows]
    return "\n".join(line.replace("<", "&lt;") for line in lines)


def facts_of(row: Row) -> dict[str, Any]:
    said: dict[str, Any] = {"name": row.name, "type": row.type, "size": row.size, "sha256": row.sha256}
    if row.pages:
        said["pages"] = list(row.pages)
    if row.code:
        said["code"] = row.code
    return said
