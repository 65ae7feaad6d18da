"""Everything that a docmill holds, as records of an archive.

    manifest.json     format, origin, counts, the SHA-256 of every list
    rules.jsonl …     one record a line
    objects.jsonl     key, size and SHA-256 of every object
    objects/000000001 its bytes, not compressed: an archive never unpacks to more than it is

Numbers (of rules, tables, tasks) may be taken where the archive goes, and then others are given; what is named after
them (artifacts, the documents of tasks) is renamed with them. Ids that are unique in the world stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from uuid import UUID, uuid5

import msgspec

from docmill.core.assemble import document_id_of
from docmill.core.errors import BadRequest, Invalid
from docmill.core.keys import check_key

FORMAT: Final = 1
MAX_NUMBER: Final = 10**12
"""Of a task, rule or table: beyond it somebody wants to use up the numbers."""
MAX_LINE: Final = 128 * 1024**2
MAX_MANIFEST: Final = 1024**2
FINAL: Final = ("completed", "failed", "cancelled")
ENDED: Final = ("succeeded", "failed", "dropped", "given_back")
SCHEME: Final = "docmill://"

_ARTIFACT = re.compile(r"((?:^|/)users/[^/]+/etl_artifacts/[0-9]+/)([0-9]{1,19})(/)")
_BLOB = re.compile(r"(^tenants/[^/]+/documents/)([0-9a-f-]{36})(/)")


Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What a database can hold."""


class Record(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class RuleRecord(Record):
    id: Whole
    tenant: str | None
    owner: str | None
    is_default: Whole
    name: str
    description: str
    json_schema: str | None
    system_prompt: str | None
    mode: str
    strategy: str | None
    created_ms: Whole
    updated_ms: Whole


class TableRecord(Record):
    id: Whole
    tenant: str
    owner: str
    project_id: Whole
    name: str
    data: str
    version: Whole
    created_ms: Whole
    updated_ms: Whole
    mounts: list[tuple[str, str, Whole]]
    """Pointer, entry and the task that mounted it."""


class AssetRecord(Record):
    asset_id: str
    position: Whole
    body: str
    deleted_ms: Whole | None


class DocumentRecord(Record):
    tenant: str
    document_id: str
    version: str
    workflow_id: str
    collection_id: str | None
    created_at_us: Whole
    body: str
    digest: str
    """Of what the version said when it was stored; empty: its addresses changed on the way, so it is taken anew."""
    stored_ms: Whole
    deleted_ms: Whole | None
    assets: list[AssetRecord]


class AttemptRecord(Record):
    id: str
    number: Whole
    stage: str
    state: str
    priority: Whole
    owner: str | None
    due_ms: Whole
    started_ms: Whole | None
    ended_ms: Whole | None
    worker: str | None
    dialect: str | None
    process_id: str | None
    timeout_ms: Whole | None
    outcome_hash: str | None
    collected_ms: Whole | None
    deliveries: list[tuple[str, Whole, str | None, str, Whole, Whole]]
    """Callbacks: kind, status, reason, hash of the body, size, time."""
    failure: str | None = None
    """Why it failed, as JSON. This field and the next are missing in older backups."""
    job_status: str | None = None


class TaskRecord(Record):
    id: Whole
    tenant: str
    owner: str
    project_id: Whole
    filename: str
    source_key: str
    rule_id: Whole
    status: str
    stage: str
    attempt: Whole
    attempt_id: str | None
    version: Whole
    event_seq: Whole
    progress: Whole
    body: str
    created_ms: Whole
    updated_ms: Whole
    attempts: list[AttemptRecord]
    events: list[tuple[Whole, str, str, Whole]]
    """Number, kind, data, time."""
    parses: list[tuple[str, str, str, Whole]]
    """What an equal document may reuse: fingerprint, key of the Markdown, of the parse, time."""
    loans: list[str]
    """Keys of parses of other tasks that this one uses."""


class KeyRecord(Record):
    """An API key as the database holds it: the hash of its secret."""

    id: str
    digest: str
    name: str
    tenant: str
    user_id: str
    is_admin: Whole
    created_ms: Whole
    expires_ms: Whole | None
    revoked_ms: Whole | None
    is_operator: Whole = 0
    """Archives from before there were operators do not say."""


class WebhookRecord(Record):
    """Without its secrets."""

    id: str
    tenant: str
    owner: str
    url: str
    description: str
    kinds: str
    created_ms: Whole
    updated_ms: Whole


class ObjectRecord(Record, omit_defaults=True):
    key: str
    size: Whole
    sha256: str
    member: str
    filename: str = ""
    """The name that the object was uploaded under."""


KINDS: Final[Mapping[str, type[Record]]] = {
    "rules": RuleRecord,
    "tasks": TaskRecord,
    "tables": TableRecord,
    "documents": DocumentRecord,
    "keys": KeyRecord,
    "webhooks": WebhookRecord,
}
"""In the order in which they are exported."""
NUMBERED: Final = ("rules", "tasks", "tables")
OBJECTS: Final = "objects"


class Listed(msgspec.Struct, frozen=True):
    """A list in the archive."""

    count: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    docmill: str
    origin: str
    """The deployment that it came from."""
    bucket: str
    created_ms: int
    lists: dict[str, Listed]
    left_out: dict[str, int]


def damaged(why: str) -> Invalid:
    return Invalid("backup_damaged", why=why.removesuffix("."))


def read_manifest(data: bytes) -> Manifest:
    try:
        head = msgspec.json.decode(data, type=dict[str, Any])
        if head.get("format") != FORMAT:
            raise Invalid("backup_unknown", why=f"its format is {str(head.get('format'))[:20]}, not {FORMAT}")
        manifest = msgspec.convert(head, Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged(f"manifest.json: {error}") from error
    if set(manifest.lists) != {*KINDS, OBJECTS}:
        raise damaged("manifest.json does not name the lists that an archive has")
    return manifest


def check_record(record: Record) -> None:
    """What an archive of ours would never say."""
    if _has_nul(record):
        raise damaged("a text has a NUL character")
    if isinstance(record, ObjectRecord):
        _check_object(record)
    elif isinstance(record, (RuleRecord, TableRecord, TaskRecord)) and not 0 < record.id <= MAX_NUMBER:
        raise damaged(f"the number {record.id} is out of range")
    if isinstance(record, RuleRecord) and not record.is_default and (record.tenant is None or record.owner is None):
        raise damaged(f"rule {record.id} has no owner")
    if isinstance(record, TaskRecord):
        _check_task(record)


def _has_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, Record):
        return any(_has_nul(getattr(value, name)) for name in value.__struct_fields__)
    return isinstance(value, (list, tuple)) and any(_has_nul(one) for one in value)


def _check_object(record: ObjectRecord) -> None:
    try:
        check_key(record.key)
    except BadRequest as error:
        raise damaged(f"an object's key: {error.message}") from error
    if not record.key.startswith("tenants/"):
        raise damaged("an object lies outside of tenants/")


def _check_task(record: TaskRecord) -> None:
    if record.status not in FINAL:
        raise damaged(f"task {record.id} has not ended")
    if any(one.state not in ENDED for one in record.attempts):
        raise damaged(f"task {record.id} has an attempt that has not ended")


def task_of_key(key: str) -> int | None:
    """The task whose artifact this is."""
    found = _ARTIFACT.search(key)
    return int(found[2]) if found else None


@dataclass(frozen=True, slots=True)
class Moves:
    """What is called otherwise where the archive goes."""

    old_bucket: str
    new_bucket: str
    numbers: dict[str, dict[int, int]] = field(default_factory=lambda: {kind: {} for kind in NUMBERED})
    """By kind: the old number and the new one, where they differ."""
    documents: dict[str, str] = field(default_factory=dict)
    """A task's document is named after the task's number: where that changes, its id does."""

    def add(self, record: RuleRecord | TableRecord | TaskRecord, kind: str, number: int) -> None:
        if number == record.id:
            return
        self.numbers[kind][record.id] = number
        if isinstance(record, TaskRecord):
            old, new = (str(document_id_of(record.tenant, one)) for one in (record.id, number))
            self.documents[old] = new

    def number(self, kind: str, old: int) -> int:
        return self.numbers[kind].get(old, old)

    def key(self, key: str) -> str:
        """Artifacts lie below their task's number, blobs below their document's id."""
        key = _ARTIFACT.sub(lambda at: f"{at[1]}{self.number('tasks', int(at[2]))}{at[3]}", key, count=1)
        return _BLOB.sub(lambda at: f"{at[1]}{self.documents.get(at[2], at[2])}{at[3]}", key, count=1)

    def uri(self, uri: str) -> str:
        """The address of an object of ours, where it lies now; anybody else's as it is."""
        start = f"{SCHEME}{self.old_bucket}/"
        return f"{SCHEME}{self.new_bucket}/{self.key(uri.removeprefix(start))}" if uri.startswith(start) else uri

    def change(self, record: Record) -> None:
        """Let the record say what is right here."""
        if isinstance(record, ObjectRecord):
            record.key = self.key(record.key)
        elif isinstance(record, RuleRecord):
            record.id = self.number("rules", record.id)
        elif isinstance(record, TableRecord):
            record.id = self.number("tables", record.id)
            record.mounts = [(pointer, entry, self.number("tasks", task)) for pointer, entry, task in record.mounts]
        elif isinstance(record, TaskRecord):
            self._change_task(record)
        elif isinstance(record, DocumentRecord) and (self.old_bucket != self.new_bucket or self.documents):
            self._change_document(record)

    def _change_task(self, record: TaskRecord) -> None:
        record.id = self.number("tasks", record.id)
        record.rule_id = self.number("rules", record.rule_id)
        body = msgspec.json.decode(record.body)
        if "artifacts" in body:
            body["artifacts"] = {name: key and self.key(key) for name, key in body["artifacts"].items()}
        if mount := (body.get("wishes") or {}).get("mount"):
            mount["table_id"] = self.number("tables", mount["table_id"])
        if table := body.get("mount_table_id"):
            body["mount_table_id"] = self.number("tables", table)
        if old := body.get("document_id"):
            body["document_id"] = new = self.documents.get(old, old)
            record.events = [(seq, kind, data.replace(old, new), at) for seq, kind, data, at in record.events]
        record.body = msgspec.json.encode(body).decode()
        record.loans = [self.key(parsed) for parsed in record.loans]
        record.parses = [
            (name, self.key(markdown), self.key(parsed), at) for name, markdown, parsed, at in record.parses
        ]

    def _change_document(self, record: DocumentRecord) -> None:
        old = record.document_id
        record.document_id = self.documents.get(old, old)
        record.digest = ""
        record.body = self._changed(record.body, record.document_id)
        for asset in record.assets:
            if old != record.document_id:
                asset.asset_id = str(uuid5(UUID(record.document_id), asset.asset_id))
            asset.body = self._changed(asset.body, record.document_id, asset.asset_id)

    def _changed(self, text: str, document_id: str, asset_id: str | None = None) -> str:
        body = msgspec.json.decode(text)
        named = body["meta"].get("external_ref") if "meta" in body else None
        if body["ref"]["document_id"] != document_id and named and named.get("task_id", "").isdecimal():
            named["task_id"] = str(self.number("tasks", int(named["task_id"])))
        body["ref"]["document_id"] = document_id
        if asset_id is not None:
            body["ref"]["asset_id"] = asset_id
        if "uri" in body["blob"]:
            body["blob"]["uri"] = self.uri(body["blob"]["uri"])
        return msgspec.json.encode(body).decode()
