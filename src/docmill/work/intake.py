"""Documents come in: uploads, submissions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from urllib.parse import quote
from uuid import uuid4

from docmill.core.access import Principal
from docmill.core.errors import BadRequest, DocmillError, Invalid, NotFound
from docmill.core.keys import own_raw_key, raw_key, raw_prefix
from docmill.core.options import check_options
from docmill.core.pointer import parse
from docmill.core.task import Task, Wishes
from docmill.ports import NewTask, Once, Ports, Stored
from docmill.work.objects import objects
from docmill.work.receive import tell
from docmill.work.turns import line_up

MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class Submission:
    """A request to process a document that is in the store."""

    s3_key: str | None = None
    project_id: int | None = None
    filename: str | None = None
    rule_id: int | None = None
    wishes: Wishes = field(default_factory=Wishes)


async def upload(ports: Ports, who: Principal, project_id: int, filename: str, chunks: AsyncIterable[bytes]) -> Stored:
    """Stream a file into the store under a key of the caller's own."""
    key = raw_key(who.user, project_id, uuid4(), extension(filename))
    limit = ports.limits.upload_bytes
    return await objects(ports, who.tenant).put(key, chunks, limit=limit, filename=clean_name(filename))


async def submit(ports: Ports, who: Principal, wanted: Submission, *, once: Once | None = None) -> tuple[Task, bool]:
    """Open a task. False: the Idempotency-Key was seen before, and this is the task of then."""
    with ports.tracer.span("submit", parent=wanted.wishes.trace) as trace:
        new = await _checked(ports, who, wanted)
        new = replace(new, wishes=replace(new.wishes, trace=trace))
        attempt_id = uuid4()
        task, is_new = await ports.ledger.open(new, attempt_id=attempt_id, once=once)
        if is_new:
            tell(ports, task)
            # The task is committed; if we die here, the sweeper rings instead.
            await line_up(ports, task, attempt_id, task.stage)
    return task, is_new


async def record_failed_upload(
    ports: Ports,
    who: Principal,
    project_id: int,
    filename: str,
    error: DocmillError,
    wanted: Submission,
    *,
    once: Once | None = None,
) -> tuple[Task, bool]:
    """A file that could not be stored is a failed task that people can see, not a line in a log.

    False: the Idempotency-Key was seen before, and this is the task of then.
    """
    rule = await check_wishes(ports, who, wanted)
    new = NewTask(
        tenant=who.tenant,
        owner=who.user,
        project_id=project_id,
        filename=clean_name(filename),
        source_key="",
        rule_id=rule,
        wishes=wanted.wishes,
        upload_fault=f"{error.code}: {error.message}",
    )
    task, is_new = await ports.ledger.open(new, attempt_id=uuid4(), once=once)
    if is_new:
        tell(ports, task)
    return task, is_new


async def check_wishes(ports: Ports, who: Principal, wanted: Submission) -> int:
    """Check everything that a submission names besides its file, before anything is created; the id of its rule."""
    engine, mount = wanted.wishes.engine, wanted.wishes.mount
    if engine is not None and engine not in ports.engines | ports.workers:
        raise Invalid("engine_unknown", engine=engine[:64], known=", ".join(sorted(ports.engines | ports.workers)))
    worker = ports.workers.get(engine or "")
    check_options(wanted.wishes.parse, engine=engine or "local", dialect=worker.dialect if worker else None)
    if mount is not None:
        parse(mount.json_path)
        if not await ports.tables.exists(mount.table_id, who.owner):
            raise NotFound("table_not_found", table=mount.table_id)
    return await _rule_id(ports, who, wanted.rule_id)


async def _checked(ports: Ports, who: Principal, wanted: Submission) -> NewTask:
    rule_id = await check_wishes(ports, who, wanted)
    key = wanted.s3_key or _key_of_name(who, wanted)
    raw = own_raw_key(key, who.user)
    stored = await objects(ports, who.tenant).stat(key)
    if stored is None:
        raise NotFound("object_not_found", key=key)
    project_id = wanted.project_id if wanted.project_id is not None else raw.project_id
    if project_id is None:
        raise Invalid("project_required")
    if raw.project_id is not None and project_id != raw.project_id:
        raise BadRequest("project_mismatch", project=project_id, key_project=raw.project_id)
    return NewTask(
        tenant=who.tenant,
        owner=who.user,
        project_id=project_id,
        filename=clean_name(wanted.filename or stored.filename or raw.filename),
        source_key=key,
        rule_id=rule_id,
        wishes=wanted.wishes,
        source_size=stored.size,
        source_sha256=stored.sha256 or None,
    )


def _key_of_name(who: Principal, wanted: Submission) -> str:
    """Older clients name only project and file: their key is made of both."""
    if wanted.project_id is None or not wanted.filename:
        raise BadRequest("request_invalid", why="s3_key is missing, and so is project_id or filename.")
    return f"{raw_prefix(who.user)}{wanted.project_id}/{wanted.filename}"


async def _rule_id(ports: Ports, who: Principal, rule_id: int | None) -> int:
    if rule_id is None:
        return (await ports.rules.default()).id
    rule = await ports.rules.get(rule_id, who.owner)
    if rule is None:
        raise NotFound("rule_not_found", rule=rule_id)
    return rule.id


def extension(filename: str) -> str:
    return PurePosixPath(filename.replace("\\", "/")).suffix


def clean_name(filename: str) -> str:
    """The last part of what the client called the file, without anything that a terminal or a database dislikes."""
    name = filename.replace("\\", "/").rsplit("/", 1)[-1]
    name = "".join(ch for ch in name if ch.isprintable() and not 0xD800 <= ord(ch) <= 0xDFFF).strip()
    return name[:MAX_NAME] or "document"


def attachment(filename: str) -> str:
    """Content-Disposition with the name in ASCII for old clients and in full for all others (RFC 6266)."""
    name = clean_name(filename)
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
