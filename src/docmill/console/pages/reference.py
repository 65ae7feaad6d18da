"""The API reference, rendered here from our own OpenAPI: it works without any network."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from docmill.console.visit import Visit

if TYPE_CHECKING:
    from docmill.console.app import Console

METHODS = ("get", "post", "put", "delete", "patch")


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    anchor: str
    summary: str
    description: str
    parameters: list[dict[str, Any]]
    bodies: list[tuple[str, str]]
    """Media type, and the name or outline of what it holds."""
    responses: list[tuple[str, str, str]]
    curl: str


@dataclass(slots=True)
class Chapter:
    name: str
    operations: list[Operation] = field(default_factory=list)


async def show(console: Console, visit: Visit) -> Response:
    schema = await asyncio.to_thread(console.options.openapi)
    origin = visit.ports.app_url or str(visit.request.base_url).rstrip("/")
    models = {
        name: [(key, type_of(value), str(value.get("description", ""))) for key, value in _properties(model).items()]
        for name, model in sorted(schema.get("components", {}).get("schemas", {}).items())
    }
    return console.render(
        visit, "reference.html", page="reference", chapters=chapters(schema, origin), models=models, origin=origin
    )


def chapters(schema: dict[str, Any], origin: str) -> list[Chapter]:
    found: dict[str, Chapter] = {}
    for path, item in schema.get("paths", {}).items():
        for method in METHODS:
            if method in item:
                name = (item[method].get("tags") or ["other"])[0]
                found.setdefault(name, Chapter(name)).operations.append(_operation(path, method, item[method], origin))
    return list(found.values())


def _operation(path: str, method: str, given: dict[str, Any], origin: str) -> Operation:
    content = given.get("requestBody", {}).get("content", {})
    return Operation(
        method=method.upper(),
        path=path,
        anchor=given.get("operationId", f"{method}-{path}"),
        summary=given.get("summary", ""),
        description=given.get("description", ""),
        parameters=[
            {
                "name": one["name"],
                "where": one["in"],
                "required": one.get("required", False),
                "type": type_of(one.get("schema", {})),
                "description": one.get("description") or one.get("schema", {}).get("description", ""),
            }
            for one in given.get("parameters", [])
        ],
        bodies=[(media, type_of(one.get("schema", {}))) for media, one in content.items()],
        responses=[
            (
                status,
                one.get("description", ""),
                ", ".join(filter(None, (_named(c) for c in one.get("content", {}).values()))),
            )
            for status, one in given.get("responses", {}).items()
        ],
        curl=_curl(path, method, content, origin),
    )


def _curl(path: str, method: str, content: dict[str, Any], origin: str) -> str:
    parts = ["curl"] + ([f"-X {method.upper()}"] if method != "get" else [])
    if "multipart/form-data" in content:
        parts = ["curl", "-F project_id=0", "-F file=@report.pdf"]
    elif "application/json" in content:
        parts += ["-H 'Content-Type: application/json'", "-d '{…}'"]
    return " ".join([*parts, f"'{origin}{path}'"])


def type_of(schema: Any) -> str:
    """A schema in a few words: `integer | null`, `array of TaskOut`."""
    if not isinstance(schema, dict) or not schema:
        return "any"
    if ref := schema.get("$ref"):
        return str(ref).rpartition("/")[2]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " | ".join(dict.fromkeys(type_of(one) for one in schema[key]))
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(one) for one in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"array of {type_of(schema.get('items'))}"
    if schema.get("type") == "object" and schema.get("properties"):
        return "{" + ", ".join(schema["properties"]) + "}"
    form = f" ({schema['format']})" if "format" in schema else ""
    return f"{schema.get('type', 'any')}{form}"


def _named(content: dict[str, Any]) -> str:
    name = type_of(content.get("schema", {}))
    return "" if name == "any" else name


def _properties(model: dict[str, Any]) -> dict[str, Any]:
    found = model.get("properties", {})
    return found if isinstance(found, dict) else {}
