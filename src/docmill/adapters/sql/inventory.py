"""The inventory in SQL: rows out as records, and records in as rows. What is there already is never changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import msgspec

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.documents import digest_of
from docmill.adapters.sql.rows import TASK_COLUMNS, encode, task_of
from docmill.adapters.sql.statement import Op, Row, Statement
from docmill.core.conform import conform
from docmill.core.errors import Conflict, Invalid
from docmill.core.face import face_of
from docmill.core.machine import JOB_STATUSES, job_status
from docmill.core.moving import (
    AssetRecord,
    AttemptRecord,
    DocumentRecord,
    KeyRecord,
    Record,
    RuleRecord,
    TableRecord,
    TaskRecord,
    WebhookRecord,
    damaged,
)
from docmill.core.task import Fault, Stage, State, Task

Numbered = RuleRecord | TableRecord | TaskRecord

PAGE = 20
BIG_PAGE = 4
"""Of tables, each of which may be many megabytes."""
ENDED = "status IN ('completed', 'failed', 'cancelled')"
NESTED = {"mounts", "assets", "attempts", "deliveries", "events", "parses", "loans"}
TABLE_OF: Mapping[type[Record], str] = {
    RuleRecord: "rules",
    TableRecord: "json_tables",
    TaskRecord: "tasks",
    KeyRecord: "api_keys",
    WebhookRecord: "webhooks",
    DocumentRecord: "documents",
}


def columns(kind: type[Record]) -> str:
    return ", ".join(name for name in kind.__struct_fields__ if name not in NESTED)


def _pages(kind: type[Record], *, where: str = "1 = 1") -> Statement:
    return Statement(
        f"SELECT {columns(kind)} FROM {TABLE_OF[kind]} WHERE id > :after AND {where} ORDER BY id LIMIT :limit"
    )


def _insert(kind: type[Record], *extra: str) -> Statement:
    names = [*columns(kind).split(", "), *extra]
    values = ", ".join(f":{name}" for name in names)
    table = TABLE_OF[kind]
    return Statement(
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values}) ON CONFLICT DO NOTHING RETURNING tenant"
    )


RULES = _pages(RuleRecord)
TABLES = _pages(TableRecord)
TASKS = _pages(TaskRecord, where=ENDED)
KEYS = _pages(KeyRecord)
WEBHOOKS = _pages(WebhookRecord)
DOCUMENTS = Statement(
    f"SELECT {columns(DocumentRecord)} FROM documents WHERE (tenant, document_id, version)"
    " > (CAST(:tenant AS TEXT), CAST(:document_id AS TEXT), CAST(:version AS TEXT))"
    " ORDER BY tenant, document_id, version LIMIT :limit"
)
ASSETS = Statement(
    f"SELECT {columns(AssetRecord)} FROM document_assets"
    " WHERE tenant = :tenant AND document_id = :document_id AND version = :version ORDER BY position"
)
MOUNTS = Statement("SELECT pointer, entry, task_id FROM mounts WHERE table_id = :id ORDER BY pointer, entry")
RANGE = "task_id >= :first AND task_id <= :last"
ATTEMPTS = Statement(
    f"SELECT task_id, {columns(AttemptRecord)} FROM attempts WHERE {RANGE} ORDER BY task_id, number, due_ms, id"
)
DELIVERIES = Statement(
    "SELECT d.attempt_id, d.kind, d.status, d.reason, d.body_hash, d.size, d.at_ms FROM deliveries d"
    " JOIN attempts a ON a.id = d.attempt_id WHERE a.task_id >= :first AND a.task_id <= :last ORDER BY d.id"
)
EVENTS = Statement(f"SELECT task_id, seq, kind, data, at_ms FROM events WHERE {RANGE} ORDER BY task_id, seq")
PARSES = Statement(
    f"SELECT task_id, fingerprint, markdown_key, parsed_key, created_ms FROM parses WHERE {RANGE} ORDER BY fingerprint"
)
UNFINISHED = Statement(f"SELECT id FROM tasks WHERE NOT ({ENDED})")
BURIED = Statement("SELECT 1 FROM tombstones WHERE task_id = :id")
LOANS = Statement(f"SELECT task_id, parsed_key FROM loans WHERE {RANGE} ORDER BY task_id, parsed_key")
BORROW = Statement("INSERT INTO loans (task_id, parsed_key) VALUES (:task_id, :parsed_key) ON CONFLICT DO NOTHING")

IDENTIFY = Statement("INSERT INTO identity (one, id) VALUES (1, :id) ON CONFLICT (one) DO NOTHING")
IDENTITY = Statement("SELECT id FROM identity WHERE one = 1")
SEEN = Statement("SELECT new_id FROM imports WHERE origin = :origin AND kind = :kind AND old_id = :old_id")
REMEMBER = Statement(
    "INSERT INTO imports (origin, kind, old_id, new_id) VALUES (:origin, :kind, :old_id, :new_id)"
    " ON CONFLICT (origin, kind, old_id) DO UPDATE SET new_id = excluded.new_id"
)
RESERVED = Statement("SELECT 1 FROM imports WHERE kind = :kind AND new_id = :id LIMIT 1")
DEFAULT_RULE = Statement("SELECT id FROM rules WHERE is_default = 1")
ATTEMPT_OWNER = Statement("SELECT task_id FROM attempts WHERE id = :id")

ADD_RULE = _insert(RuleRecord)
ADD_TABLE = _insert(TableRecord)
ADD_TASK = _insert(TaskRecord, "face")
ADD_KEY = _insert(KeyRecord)
ADD_WEBHOOK = _insert(WebhookRecord, "secrets", "disabled_ms")
ADD_DOCUMENT = _insert(DocumentRecord)
ADD_MOUNT = Statement(
    "INSERT INTO mounts (table_id, pointer, entry, task_id) VALUES (:table_id, :pointer, :entry, :task_id)"
)
ADD_ATTEMPT = Statement(
    f"INSERT INTO attempts (task_id, job_tenant, job_user, {columns(AttemptRecord)})"
    f" VALUES (:task_id, :job_tenant, :job_user,"
    f" {', '.join(f':{name}' for name in columns(AttemptRecord).split(', '))})"
    " ON CONFLICT DO NOTHING RETURNING id"
)
ADD_DELIVERY = Statement(
    "INSERT INTO deliveries (attempt_id, task_id, kind, status, reason, body_hash, size, at_ms)"
    " VALUES (:attempt_id, :task_id, :kind, :status, :reason, :body_hash, :size, :at_ms)"
)
ADD_EVENT = Statement(
    "INSERT INTO events (task_id, seq, kind, data, at_ms) VALUES (:task_id, :seq, :kind, :data, :at_ms)"
)
ADD_PARSE = Statement(
    "INSERT INTO parses (tenant, fingerprint, task_id, markdown_key, parsed_key, created_ms)"
    " VALUES (:tenant, :fingerprint, :task_id, :markdown_key, :parsed_key, :created_ms) ON CONFLICT DO NOTHING"
)
COUNT_TASK = Statement(
    "INSERT INTO task_counts (tenant, owner, project_id, status, n) VALUES (:tenant, :owner, :project_id, :status, 1)"
    " ON CONFLICT (tenant, owner, project_id, status) DO UPDATE SET n = task_counts.n + 1"
)
OWN_ASSET = Statement(
    "INSERT INTO assets (tenant, asset_id, document_id) VALUES (:tenant, :asset_id, :document_id)"
    " ON CONFLICT (tenant, asset_id) DO UPDATE SET asset_id = excluded.asset_id RETURNING document_id"
)
ADD_ASSET = Statement(
    "INSERT INTO document_assets (tenant, document_id, version, asset_id, position, body, deleted_ms)"
    " VALUES (:tenant, :document_id, :version, :asset_id, :position, :body, :deleted_ms)"
)
HAS_DOCUMENT = Statement(
    "SELECT digest, body FROM documents WHERE tenant = :tenant AND document_id = :document_id AND version = :version"
)
HAS_KEY = Statement("SELECT 1 FROM api_keys WHERE id = :id OR digest = :digest")
HAS_WEBHOOK = Statement("SELECT 1 FROM webhooks WHERE id = :id")


class _Numbering:
    """How a table gives out its numbers."""

    def __init__(self, table: str) -> None:
        sequence = f"pg_get_serial_sequence('{table}', 'id')"
        self.at = Statement(f"SELECT tenant, owner, created_ms FROM {table} WHERE id = :id")
        self.lock = Statement(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        self.drawn = Statement(f"SELECT pg_sequence_last_value(CAST({sequence} AS regclass))")
        self.next = Statement(f"SELECT nextval({sequence})")
        self.set = Statement(f"SELECT setval({sequence}, CAST(:number AS BIGINT))")
        self.last = Statement(f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'")
        self.first = Statement(f"INSERT INTO sqlite_sequence (name, seq) VALUES ('{table}', :number)")
        self.move = Statement(f"UPDATE sqlite_sequence SET seq = :number WHERE name = '{table}' RETURNING seq")

    def draw(self, dialect: str) -> Op[int]:
        """A number that nobody has or gets."""
        if dialect == "postgres":
            return int((yield self.next())[0][0])
        number = (yield from self.floor(dialect)) + 1
        yield from self._move(number)
        return number

    def floor(self, dialect: str) -> Op[int]:
        """The last number that was given out."""
        rows = yield (self.drawn if dialect == "postgres" else self.last)()
        return int(rows[0][0] or 0) if rows else 0

    def reserve(self, dialect: str, highest: int) -> Op[int]:
        """Give out only numbers above this one from now on; the last that was given out before."""
        if dialect == "postgres":
            # Whoever inserts waits: else a number that was drawn just now could be given out again.
            yield self.lock()
        floor = yield from self.floor(dialect)
        if floor < highest:
            if dialect == "postgres":
                yield self.set(number=highest)
            else:
                yield from self._move(highest)
        return floor

    def _move(self, number: int) -> Op[None]:
        moved = yield self.move(number=number)
        if not moved:
            yield self.first(number=number)


NUMBERING: Mapping[str, _Numbering] = {
    "rules": _Numbering("rules"),
    "tables": _Numbering("json_tables"),
    "tasks": _Numbering("tasks"),
}
KIND_OF: Mapping[type[Record], str] = {RuleRecord: "rules", TableRecord: "tables", TaskRecord: "tasks"}


class SqlInventory:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def identity(self) -> str:
        def op() -> Op[str]:
            yield IDENTIFY(id=uuid4().hex)
            return str((yield IDENTITY())[0][0])

        return await self._database.write(op())

    async def records(self, kind: str) -> AsyncIterator[Record]:
        page, after = READERS[kind], None
        while True:
            found, after = await self._database.read(page(after), snapshot=True)
            for record in found:
                yield record
            if after is None:
                return

    async def unfinished(self) -> set[int]:
        def op() -> Op[set[int]]:
            return {row[0] for row in (yield UNFINISHED())}

        return await self._database.read(op())

    async def reserve(self, highest: Mapping[str, int], *, keep: bool = True) -> dict[str, int]:
        dialect = self._database.dialect
        if keep:
            ops = {kind: NUMBERING[kind].reserve(dialect, number) for kind, number in highest.items()}
            return {kind: await self._database.write(op) for kind, op in ops.items()}
        return {kind: await self._database.read(NUMBERING[kind].floor(dialect)) for kind in highest}

    async def number(self, origin: str, record: Numbered, *, floor: int, keep: bool = True) -> int | None:
        op = _number(self._database.dialect, origin, record, floor, keep=keep)
        return await (self._database.write(op) if keep else self._database.read(op, snapshot=True))

    def check(self, record: Record) -> None:
        try:
            if isinstance(record, TaskRecord):
                _check_task(record)
            elif isinstance(record, DocumentRecord):
                _check_document(record)
            elif isinstance(record, TableRecord):
                _check_table(record)
            elif isinstance(record, RuleRecord) and record.json_schema is not None:
                msgspec.json.decode(record.json_schema, type=dict[str, Any])
        except Invalid as error:
            raise damaged(f"{_name(record)}: {error.message}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(f"{_name(record)}: {type(error).__name__}") from error

    async def has(self, record: Record) -> bool:
        return await self._database.read(_has(record))

    async def take(self, record: Record) -> bool:
        return await self._database.write(WRITERS[type(record)](record))


def _name(record: Record) -> str:
    which = record.document_id if isinstance(record, DocumentRecord) else getattr(record, "id", "")
    return f"{TABLE_OF[type(record)]} {which}"[:100]


def _check_task(record: TaskRecord) -> None:
    _face(record)
    for attempt in record.attempts:
        UUID(attempt.id)
        Stage(attempt.stage)
        State(attempt.state)
        if attempt.failure is not None:
            msgspec.json.decode(attempt.failure, type=Fault)
        if attempt.job_status not in (None, *JOB_STATUSES):
            raise ValueError("a job has a status that does not exist")
    if len({seq for seq, *_ in record.events}) < len(record.events):
        raise ValueError("two events have the same number")
    for _, _, data, _ in record.events:
        msgspec.json.decode(data, type=dict[str, Any])


def _check_table(record: TableRecord) -> None:
    msgspec.json.decode(record.data)
    if len({(pointer, entry) for pointer, entry, _ in record.mounts}) < len(record.mounts):
        raise ValueError("two tasks mounted the same entry")


def _check_document(record: DocumentRecord) -> None:
    _conformed(record)
    if len({asset.asset_id for asset in record.assets}) < len(record.assets):
        raise ValueError("two assets have the same id")
    for asset in record.assets:
        if str(conform("asset", asset.body, strict=False).ref.asset_id) != asset.asset_id:
            raise ValueError("an asset is not the one that its row names")


def _face(record: TaskRecord) -> str:
    return encode(face_of(_task(record)))


def _task(record: TaskRecord) -> Task:
    return task_of([getattr(record, name.strip()) for name in TASK_COLUMNS.split(",")])


def _conformed(record: DocumentRecord) -> Any:
    """The version as the contract reads it. What was deleted from it need no longer agree with it."""
    assets = [msgspec.Raw(asset.body.encode()) for asset in record.assets if asset.deleted_ms is None]
    whole = msgspec.json.encode({**msgspec.json.decode(record.body, type=dict[str, Any]), "assets": assets})
    document = conform("document", whole)
    said = (document.ref.tenant_id, str(document.ref.document_id), document.ref.version or "")
    if said != (record.tenant, record.document_id, record.version):
        raise ValueError("the document is not the one that its row names")
    return document


# --- out


def _plain(statement: Statement, kind: type[Record], start: Any) -> Callable[[Any], Op[tuple[list[Record], Any]]]:
    def page(after: Any) -> Op[tuple[list[Record], Any]]:
        rows = yield statement(after=start if after is None else after, limit=PAGE)
        found = [_record(kind, row) for row in rows]
        return found, rows[-1][0] if len(rows) == PAGE else None

    return page


def _record(kind: type[Record], row: Row, **nested: Any) -> Any:
    return kind(**dict(zip(columns(kind).split(", "), row, strict=True)), **nested)


def _tables(after: Any) -> Op[tuple[list[Record], Any]]:
    rows = yield TABLES(after=after or 0, limit=BIG_PAGE)
    found: list[Record] = []
    for row in rows:
        mounts = yield MOUNTS(id=row[0])
        found.append(_record(TableRecord, row, mounts=[tuple(one) for one in mounts]))
    return found, rows[-1][0] if len(rows) == BIG_PAGE else None


def _documents(after: Any) -> Op[tuple[list[Record], Any]]:
    tenant, document_id, version = after or ("", "", "")
    rows = yield DOCUMENTS(tenant=tenant, document_id=document_id, version=version, limit=PAGE)
    found: list[Record] = []
    for row in rows:
        assets = yield ASSETS(tenant=row[0], document_id=row[1], version=row[2])
        found.append(_record(DocumentRecord, row, assets=[_record(AssetRecord, one) for one in assets]))
    return found, tuple(rows[-1][:3]) if len(rows) == PAGE else None


def _tasks(after: Any) -> Op[tuple[list[Record], Any]]:
    rows = yield TASKS(after=after or 0, limit=PAGE)
    if not rows:
        return [], None
    within = {"first": rows[0][0], "last": rows[-1][0]}
    events = _grouped((yield EVENTS(**within)))
    parses = _grouped((yield PARSES(**within)))
    loans = _grouped((yield LOANS(**within)))
    deliveries = _grouped((yield DELIVERIES(**within)))
    attempts = _grouped((yield ATTEMPTS(**within)))
    found: list[Record] = [
        _record(
            TaskRecord,
            row,
            attempts=[_record(AttemptRecord, one, deliveries=deliveries[one[0]]) for one in attempts[row[0]]],
            events=events[row[0]],
            parses=parses[row[0]],
            loans=[parsed_key for (parsed_key,) in loans[row[0]]],
        )
        for row in rows
    ]
    return found, rows[-1][0] if len(rows) == PAGE else None


def _grouped(rows: Sequence[Row]) -> Mapping[Any, list[Any]]:
    """By their first column."""
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        groups[row[0]].append(tuple(row[1:]))
    return groups


READERS: Mapping[str, Callable[[Any], Op[tuple[list[Record], Any]]]] = {
    "rules": _plain(RULES, RuleRecord, 0),
    "tables": _tables,
    "tasks": _tasks,
    "documents": _documents,
    "keys": _plain(KEYS, KeyRecord, ""),
    "webhooks": _plain(WEBHOOKS, WebhookRecord, ""),
}


# --- in


def _number(dialect: str, origin: str, record: Numbered, floor: int, *, keep: bool) -> Op[int | None]:
    kind = KIND_OF[type(record)]
    if isinstance(record, RuleRecord) and record.is_default:
        return int((yield DEFAULT_RULE())[0][0])
    known = yield SEEN(origin=origin, kind=kind, old_id=record.id)
    number: int | None = known[0][0] if known else (yield from _same(kind, record))
    if number is not None and (yield from _is_buried(kind, number)):
        # It was kept long enough once, and its objects may be on their way out: it comes back as another one.
        number = None
    if number is None and (yield from _is_free(kind, origin, record.id, floor)):
        number = record.id
    if number is None and keep:
        number = yield from NUMBERING[kind].draw(dialect)
    if keep and (not known or known[0][0] != number):
        yield REMEMBER(origin=origin, kind=kind, old_id=record.id, new_id=number)
    return number


def _is_free(kind: str, origin: str, number: int, floor: int) -> Op[bool]:
    """A number that was given out here may still be known, to documents for one, even when its row is gone: only what
    comes home gets it back."""
    if number <= floor:
        me = yield IDENTITY()
        if not me or me[0][0] != origin:
            return False
    at = yield NUMBERING[kind].at(id=number)
    reserved = yield RESERVED(kind=kind, id=number)
    buried = yield from _is_buried(kind, number)
    return not (at or reserved or buried)


def _is_buried(kind: str, number: int) -> Op[bool]:
    return kind == "tasks" and bool((yield BURIED(id=number)))


def _same(kind: str, record: Numbered) -> Op[int | None]:
    """The number under which the very same thing is here, by whichever way it came."""
    if isinstance(record, TaskRecord) and record.attempts:
        rows = yield ATTEMPT_OWNER(id=record.attempts[0].id)
        if rows:
            return int(rows[0][0])
    rows = yield NUMBERING[kind].at(id=record.id)
    is_same = bool(rows) and tuple(rows[0]) == (record.tenant, record.owner, record.created_ms)
    return record.id if is_same else None


def _has(record: Record) -> Op[bool]:
    if isinstance(record, (RuleRecord, TableRecord, TaskRecord)):
        return bool((yield NUMBERING[KIND_OF[type(record)]].at(id=record.id)))
    if isinstance(record, DocumentRecord):
        key = {"tenant": record.tenant, "document_id": record.document_id, "version": record.version}
        rows = yield HAS_DOCUMENT(**key)
        if rows and not _is_same_document(record, *rows[0]):
            raise Conflict("document_exists")
        return bool(rows)
    if isinstance(record, KeyRecord):
        return bool((yield HAS_KEY(id=record.id, digest=record.digest)))
    assert isinstance(record, WebhookRecord)  # noqa: S101 - there are no others
    return bool((yield HAS_WEBHOOK(id=record.id)))


def _is_same_document(record: DocumentRecord, digest: str, body: str) -> bool:
    return record.digest == digest or msgspec.json.decode(record.body) == msgspec.json.decode(body)


def _values(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in columns(type(record)).split(", ")}


def _take_rule(record: Any) -> Op[bool]:
    if record.is_default:
        return False
    return bool((yield ADD_RULE(**_values(record))))


def _take_table(record: Any) -> Op[bool]:
    added = yield ADD_TABLE(**_values(record))
    if added:
        for pointer, entry, task_id in record.mounts:
            yield ADD_MOUNT(table_id=record.id, pointer=pointer, entry=entry, task_id=task_id)
    return bool(added)


def _take_task(record: Any) -> Op[bool]:
    added = yield ADD_TASK(**_values(record), face=_face(record))
    if not added:
        return False
    owner = {"tenant": record.tenant, "owner": record.owner, "project_id": record.project_id}
    yield COUNT_TASK(**owner, status=record.status)
    for attempt in record.attempts:
        if not (yield ADD_ATTEMPT(task_id=record.id, **(_values(attempt) | _of_job(record, attempt)))):
            raise Conflict("backup_conflict", what=f"attempt {attempt.id}")
        for kind, status, reason, body_hash, size, at_ms in attempt.deliveries:
            yield ADD_DELIVERY(
                attempt_id=attempt.id,
                task_id=record.id,
                kind=kind,
                status=status,
                reason=reason,
                body_hash=body_hash,
                size=size,
                at_ms=at_ms,
            )
    for parsed_key in record.loans:
        yield BORROW(task_id=record.id, parsed_key=parsed_key)
    yield ADD_EVENT.many([(record.id, *event) for event in record.events])
    for fingerprint, markdown_key, parsed_key, created_ms in record.parses:
        yield ADD_PARSE(
            tenant=record.tenant,
            fingerprint=fingerprint,
            task_id=record.id,
            markdown_key=markdown_key,
            parsed_key=parsed_key,
            created_ms=created_ms,
        )
    return True


def _of_job(record: TaskRecord, attempt: AttemptRecord) -> dict[str, Any]:
    """What lists of jobs filter by."""
    if attempt.dialect is None:
        return {"job_tenant": None, "job_user": None, "job_status": None}
    status = attempt.job_status or job_status(_task(record), State(attempt.state), None)
    return {"job_tenant": record.tenant, "job_user": record.owner, "job_status": status}


def _take_document(record: Any) -> Op[bool]:
    values = _values(record)
    if not record.digest:
        values["digest"] = digest_of(_conformed(record))
    if not (yield ADD_DOCUMENT(**values)):
        return not (yield from _has(record))
    key = {"tenant": record.tenant, "document_id": record.document_id}
    # In the order of their ids: two writers then wait for one another instead of locking each other out.
    for asset in sorted(record.assets, key=lambda one: one.asset_id):
        owners = yield OWN_ASSET(**key, asset_id=asset.asset_id)
        if owners[0][0] != record.document_id:
            raise Conflict("asset_conflict")
        yield ADD_ASSET(**key, version=record.version, **_values(asset))
    return True


def _take_key(record: Any) -> Op[bool]:
    return bool((yield ADD_KEY(**_values(record))))


def _take_webhook(record: Any) -> Op[bool]:
    # Archives hold no secrets: the webhook has none and stays disabled until its owner rotates its secret.
    return bool((yield ADD_WEBHOOK(**_values(record), secrets="[]", disabled_ms=record.updated_ms)))


WRITERS: Mapping[type[Record], Callable[[Any], Op[bool]]] = {
    RuleRecord: _take_rule,
    TableRecord: _take_table,
    TaskRecord: _take_task,
    DocumentRecord: _take_document,
    KeyRecord: _take_key,
    WebhookRecord: _take_webhook,
}
