"""Checks data against a contract and says everything that is wrong with it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from .asset import Asset, AssetRef
from .base import Contract, Loc
from .blob import BlobLocator
from .codes import CODES, RELATIONS, ascii_safe, shown
from .document import DocumentMeta, DocumentRef, NormalizedDocument
from .mode import Mode, chosen, use
from .swift import accepted, keys_kept, keys_written

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


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong: a stable code, the place in the data, and a sentence for people."""

    code: str
    loc: Loc
    message: str

    @property
    def pointer(self) -> str:
        """The place as a JSON Pointer (RFC 6901)."""
        return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in self.loc)

    def as_dict(self) -> dict[str, object]:
        return {"code": self.code, "loc": list(self.loc), "message": self.message}


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check: a value, or the reasons why there is none."""

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
    return _explained(ADAPTERS[kind], data, mode)


def check_value(kind: str, value: object, *, strict: bool | None = None, media_guard: tuple[str, ...] = ()) -> Checked:
    """Like `check` for an already parsed *value*, even if that is a string."""
    return _explained(ADAPTERS[kind], value, chosen(strict, media_guard))


def _check_text(kind: str, data: bytes, mode: Mode) -> Checked:
    if (accepted_value := accepted(kind, data, mode)) is not None:
        return Checked(accepted_value)
    try:
        value = from_json(data, allow_inf_nan=True, cache_strings="keys")
    except ValueError as fault:
        if "recursion limit" in str(fault):
            return _refused("json_too_deep", limit=MAX_DEPTH)
        return _refused("json_invalid", reason=ascii_safe(str(fault)))
    twice = _doubles(data) if mode.strict and keys_written(data) != keys_kept(value) else ()
    return _explained(ADAPTERS[kind], value, mode, twice)


def _explained(adapter: TypeAdapter[Any], value: object, mode: Mode, before: tuple[Violation, ...] = ()) -> Checked:
    if _too_deep(value):
        return _refused("json_too_deep", limit=MAX_DEPTH)
    try:
        with use(mode):
            judged: Contract = adapter.validate_python(value)
    except ValidationError as found:
        lines = found.errors(include_url=False, include_input=False, include_context=False)
        errors = [Violation(line["type"], _place(line["loc"]), ascii_safe(line["msg"])) for line in lines]
        errors.sort(key=lambda violation: violation.code in RELATIONS)
        return Checked(None, (*before, *errors))
    return Checked(None, before) if before else Checked(judged)


def _refused(code: str, **context: object) -> Checked:
    return Checked(None, (Violation(code, (), CODES[code].format(**context)),))


def _place(loc: tuple[str | int, ...]) -> Loc:
    return tuple(ascii_safe(step) if isinstance(step, str) else step for step in loc)


def _too_deep(value: object) -> bool:
    """Level by level, and each value once per level: a value may contain itself."""
    level = [value]
    for _ in range(MAX_DEPTH):
        nested = {id(child): child for parent in level for child in _children(parent)}
        level = list(nested.values())
        if not level:
            return False
    return True


def _children(value: object) -> list[object]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [child for child in inside if isinstance(child, dict | list | tuple)]


def _doubles(data: bytes) -> tuple[Violation, ...]:
    """Every key that occurs twice in its object; *data* is valid JSON of modest depth."""
    doubled: dict[int, list[str]] = {}
    objects: list[dict[str, Any]] = []

    def gather(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        seen: set[str] = set()
        twice = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
        if twice:
            doubled[id(result)] = list(dict.fromkeys(twice))
            objects.append(result)  # keeps its id in use
        return result

    root = json.loads(data.decode(), object_pairs_hook=gather, parse_int=len, parse_float=len, parse_constant=len)
    found: list[Violation] = []
    stack: list[tuple[Loc, Any]] = [((), root)]
    while stack:
        loc, value = stack.pop()
        found += [_double(loc, key) for key in doubled.get(id(value), ())] if isinstance(value, dict) else []
        steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        stack += [((*loc, step), child) for step, child in steps]
    return tuple(sorted(found, key=lambda violation: violation.pointer))


def _double(loc: Loc, key: str) -> Violation:
    return Violation("json_duplicate_key", _place((*loc, key)), CODES["json_duplicate_key"].format(key=shown(key)))
