"""The format of a backup: one ZIP archive with the rows of the database and the objects of the store.

manifest.json       format, schema, bucket; columns, count and SHA-256 of every table
tables/tasks.jsonl  one row per line: a JSON array of texts, integers and nulls
objects.jsonl       key, size and SHA-256 of every object
objects/000000001   its bytes, not compressed: an archive never unpacks to more than its size
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from docmill.core.errors import BadRequest, Invalid
from docmill.core.keys import check_key

FORMAT: Final = 2
MAX_LINE_BYTES: Final = 128 * 1024**2
MAX_MANIFEST_BYTES: Final = 1024**2
OBJECTS_PREFIX: Final = "tenants/"
SCHEME: Final = "docmill://"

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Value = Integer | str | None
Row = Sequence[Value]

_row_decoder: msgspec.json.Decoder[list[Value]] = msgspec.json.Decoder(list[Value])


class ObjectRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    key: str
    size: int
    sha256: str
    member: str
    filename: str = ""
    """The name that the object was uploaded under."""


class Listing(msgspec.Struct, frozen=True):
    """The lines of one member of the archive."""

    count: int
    sha256: str


class TableListing(Listing, frozen=True):
    columns: list[str]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    docmill: str
    schema: int
    """The number of the newest migration that the database had."""
    bucket: str
    created_ms: int
    tables: dict[str, TableListing]
    """In the order in which they can be inserted."""
    objects: Listing
    sequences: dict[str, int]
    """The last number that each numbered table gave out."""


def damaged(why: str) -> Invalid:
    return Invalid("backup_damaged", why=why.removesuffix("."))


def read_manifest(data: bytes) -> Manifest:
    try:
        head = msgspec.json.decode(data, type=dict[str, Any])
        if head.get("format") != FORMAT:
            raise Invalid("backup_unknown", why=f"its format is {str(head.get('format'))[:20]}, not {FORMAT}")
        return msgspec.convert(head, Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged(f"manifest.json: {error}") from error


def read_row(line: bytes, width: int) -> list[Value]:
    row = _row_decoder.decode(line)
    if len(row) != width:
        raise damaged(f"a row has {len(row)} values instead of {width}")
    if any(isinstance(value, str) and "\0" in value for value in row):
        raise damaged("a text contains a NUL character")
    return row


def check_object(record: ObjectRecord) -> None:
    try:
        check_key(record.key)
    except BadRequest as error:
        raise damaged(f"the key of an object: {error.message}") from error
    if not record.key.startswith(OBJECTS_PREFIX):
        raise damaged(f"an object lies outside of {OBJECTS_PREFIX}")


def move_uri(body: str, old_bucket: str, new_bucket: str) -> str:
    """The JSON of a document or asset with its blob's address in the new bucket."""
    value = msgspec.json.decode(body, type=dict[str, Any])
    old = f"{SCHEME}{old_bucket}/"
    uri = value["blob"].get("uri", "")
    if not uri.startswith(old):
        return body
    value["blob"]["uri"] = f"{SCHEME}{new_bucket}/{uri.removeprefix(old)}"
    return msgspec.json.encode(value).decode()
