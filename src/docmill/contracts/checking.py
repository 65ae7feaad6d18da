"""Checks data against a contract and says everything that is wrong with it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import SchemaValidator, ValidationError, from_json

from .asset import Asset, AssetRef
from .base import Enough, Finding, Judge, Violation, judged, plain_schema, safe
from .blob import BlobLocator, ByType
from .codes import CODES, RELATIONS, ascii_safe, shown
from .document import DocumentMeta, DocumentRef, NormalizedDocument
from .fields import MAX_FAULTS
from .keys import doubles, keys_kept, keys_written
from .mode import Mode, chosen

MAX_DEPTH: Final = 64

KINDS: Final[Mapping[str, Any]] = {
    "document-ref": DocumentRef,
    "document-meta": DocumentMeta,
    "blob": BlobLocator,
    "asset-ref": AssetRef,
    "asset": Asset,
    "document": NormalizedDocument,
}
ADAPTERS: Final[Mapping[str, TypeAdapter[Any]]] = {kind: TypeAdapter(contract) for kind, contract in KINDS.items()}
JUDGES: Final[Mapping[str, Judge]] = {
    kind: ByType().judge if contract is BlobLocator else partial(judged, contract) for kind, contract in KINDS.items()
}


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check: a value with everything in its normal form, or the reasons why there is none."""

    value: Any
    errors: tuple[Violation, ...] = ()

    @property
    def valid(self) -> bool:
        return not self.errors


def check(
    kind: str,
    data: bytes | bytearray | memoryview | str | object,
    *,
    strict: bool | None = None,
    media_guard: tuple[str, ...] = (),
) -> Checked:
    """Judge *data*, JSON text or an already parsed value, as a contract of this *kind*.

    Whatever *data* is, the answer is a `Checked`. What is left out of *strict* and *media_guard* is taken from the
    ambient mode. In strict mode a key that comes twice is an error; otherwise its last value counts.
    """
    mode = chosen(strict, media_guard)
    if isinstance(data, str):
        try:
            data = data.encode()
        except UnicodeEncodeError:
            return _refused("json_invalid", reason="it has a lone surrogate")
    if isinstance(data, bytes | bytearray | memoryview):
        return _check_text(kind, bytes(data), mode)
    return _explained(kind, data, mode)


def check_value(kind: str, value: object, *, strict: bool | None = None, media_guard: tuple[str, ...] = ()) -> Checked:
    """Like `check` for an already parsed *value*, even if that is a string."""
    return _explained(kind, value, chosen(strict, media_guard))


@cache
def _validator(kind: str) -> SchemaValidator:
    contract = KINDS[kind]
    schema = ByType().core if contract is BlobLocator else plain_schema(contract)
    # Pydantic would put the models' own validators, which explain errors, back in place of ours.
    return SchemaValidator(schema, _use_prebuilt=False)


def _check_text(kind: str, data: bytes, mode: Mode) -> Checked:
    written = keys_written(data) if mode.strict else 0  # before parsing: each takes a copy of the text
    try:
        value = from_json(data, allow_inf_nan=True, cache_strings="keys")
    except ValueError as fault:
        if "recursion limit" in str(fault):
            return _refused("json_too_deep", limit=MAX_DEPTH)
        return _refused("json_invalid", reason=ascii_safe(str(fault)))
    doubtful = mode.strict and written != keys_kept(value)
    if not doubtful:
        with suppress(ValidationError):
            return Checked(_validator(kind).validate_python(value, context=mode))
    return _explained(kind, value, mode, data if doubtful else None)


def _explained(kind: str, value: object, mode: Mode, doubtful: bytes | None = None) -> Checked:
    """*doubtful* is the text of *value* if keys may come twice in it."""
    if _too_deep(value):
        return _refused("json_too_deep", limit=MAX_DEPTH)
    finding = Finding(mode)
    truncated: tuple[Violation, ...] = ()
    judged_value = None
    try:
        for loc, key in sorted(doubles(doubtful)) if doubtful else ():
            finding.add("json_duplicate_key", safe(loc), CODES["json_duplicate_key"].format(key=shown(key)))
        judged_value = JUDGES[kind](value, (), finding)
    except Enough:
        truncated = _refused("errors_truncated", limit=MAX_FAULTS).errors
    if not finding.found:
        return Checked(judged_value)
    errors = finding.found
    errors.sort(key=lambda violation: violation.code in RELATIONS)
    return Checked(None, (*errors, *truncated))


def _refused(code: str, **context: object) -> Checked:
    return Checked(None, (Violation(code, (), CODES[code].format(**context)),))


def _too_deep(value: object) -> bool:
    """Level by level, and each value once per level: a value may contain itself."""
    level: list[Any] = [value] if isinstance(value, dict | list | tuple) else []
    for _ in range(MAX_DEPTH):
        nested = {
            id(child): child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list, tuple))
        }
        level = list(nested.values())
        if not level:
            return False
    return True
