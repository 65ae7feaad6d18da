"""A JSON Schema as somebody types it: what is wrong with it, on which line; and what kind of form it describes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from docmill.console.words import noop
from docmill.core.errors import DocmillError
from docmill.core.rules import Draft
from docmill.work import rulebook

MAX_FLAWS = 20
MAX_FIELDS = 200
MAX_DEPTH = 8
DRAFT = "https://json-schema.org/draft/2020-12/schema"

_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Flaw:
    line: int
    column: int
    message: str


def read(text: str) -> tuple[dict[str, Any] | None, list[Flaw]]:
    """The schema, if it is one a rule can have; and everything that keeps it from being one."""
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        return None, [Flaw(error.lineno, error.colno, error.msg)]
    except RecursionError:
        return None, [Flaw(1, 1, noop("The schema is nested too deeply."))]
    if not isinstance(schema, dict):
        return None, [Flaw(1, 1, noop("A schema must be a JSON object."))]
    flaws = [*_against_meta_schema(text, schema)]
    if not flaws:
        try:
            rulebook.checked(Draft(name="check", json_schema=schema))
        except DocmillError as error:
            flaws = [Flaw(1, 1, str(error.facts.get("why", error.message)))]
    return (None if flaws else schema), flaws


def _against_meta_schema(text: str, schema: dict[str, Any]) -> Iterator[Flaw]:
    draft = schema.get("$schema", DRAFT)
    try:
        judge = jsonschema_rs.validator_for({"$ref": draft if isinstance(draft, str) else DRAFT}, retriever=_known_only)
        for number, error in enumerate(judge.iter_errors(schema)):
            if number >= MAX_FLAWS:
                return
            line, column = place_of(text, list(error.instance_path))
            yield Flaw(line, column, error.message[:300])
    except (jsonschema_rs.ReferencingError, ValueError):
        yield Flaw(*place_of(text, ["$schema"]), noop("This draft of JSON Schema is not supported."))


def _known_only(uri: str) -> Any:
    raise ValueError(uri)


def place_of(text: str, path: Sequence[str | int]) -> tuple[int, int]:
    """Line and column of the value at *path* in a JSON text, or of the deepest part of the path that is there."""
    at = _space(text, 0)
    for step in path:
        inner = _child(text, at, step)
        if inner is None:
            break
        at = inner
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _child(text: str, at: int, step: str | int) -> int | None:
    """Where the value of a key or index begins within the object or array that begins at *at*."""
    opening, number = text[at : at + 1], 0
    if opening not in ("{", "["):
        return None
    at = _space(text, at + 1)
    while at < len(text) and text[at] not in "}]":
        key: str | int = number
        if opening == "{":
            key, at = _decoder.raw_decode(text, at)
            at = _space(text, _space(text, at) + 1)
        if key == step:
            return at
        _, at = _decoder.raw_decode(text, at)
        at = _space(text, at)
        if text[at : at + 1] == ",":
            at = _space(text, at + 1)
        number += 1
    return None


def _space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


@dataclass(slots=True)
class Field:
    """A field of the form that a schema describes."""

    name: str
    label: str
    kind: str
    """text, number, checkbox, choice, group, list"""
    hint: str = ""
    required: bool = False
    choices: list[str] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)


def form_of(schema: dict[str, Any]) -> list[Field]:
    budget = [MAX_FIELDS]
    return _fields(schema, schema, budget, 0)


def _fields(schema: dict[str, Any], root: dict[str, Any], budget: list[int], depth: int) -> list[Field]:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or depth > MAX_DEPTH:
        return []
    wanted = schema.get("required")
    required = set(wanted) if isinstance(wanted, list) else set()
    found = []
    for name, value in properties.items():
        budget[0] -= 1
        if budget[0] < 0:
            break
        found.append(_field(name, value, root, budget, depth, required=name in required))
    return found


def _field(name: str, value: Any, root: dict[str, Any], budget: list[int], depth: int, *, required: bool) -> Field:
    schema = _resolved(value, root)
    kinds = schema.get("type", "object" if "properties" in schema else "string")
    kind = next((one for one in kinds if one != "null"), "string") if isinstance(kinds, list) else kinds
    made = Field(name, str(schema.get("title") or name), "text", str(schema.get("description") or ""), required)
    if isinstance(schema.get("enum"), list):
        made.kind, made.choices = "choice", [str(one) for one in schema["enum"][:50]]
    elif kind in ("number", "integer"):
        made.kind = "number"
    elif kind == "boolean":
        made.kind = "checkbox"
    elif kind == "object":
        made.kind, made.fields = "group", _fields(schema, root, budget, depth + 1)
    elif kind == "array":
        items = _resolved(schema.get("items"), root)
        made.kind = "list"
        made.fields = _fields(items, root, budget, depth + 1) or [Field("", "", "text")]
    return made


def _resolved(value: Any, root: dict[str, Any]) -> dict[str, Any]:
    """The schema itself, behind references within the document."""
    for _ in range(MAX_DEPTH):
        if not isinstance(value, dict):
            return {}
        target = value.get("$ref")
        if not isinstance(target, str) or not target.startswith("#/"):
            return value
        found: Any = root
        for step in target[2:].split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        value = found
    return {}
