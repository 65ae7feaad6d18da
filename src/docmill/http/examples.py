"""What OpenAPI shows of errors: for every status of every route, the codes that can come with it, as they look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from string import Formatter
from typing import Any

from docmill.core.catalogue import Entry, entries
from docmill.core.errors import RETRYABLE, SENTENCES
from docmill.http.errors import next_step, problem_title, problem_type

EVERYWHERE = frozenset({"http", "auth", "system"})
AREAS = {
    "tasks": {"task", "rule", "table", "twin"},
    "docling-serve": {"task", "callback", "document", "stage"},
    "MinerU": {"task", "document", "stage"},
    "rules": {"rule", "task", "repository", "provider"},
    "tables": {"table"},
    "documents": {"repository"},
    "contracts": {"repository"},
    "jobs": {"callback"},
    "objects": {"callback", "repository"},
    "webhooks": {"webhook", "callback"},
}
"""By a route's tag: where in the catalogue its codes stand, besides those of every route."""
FACTS: dict[str, Any] = {
    "task": 7,
    "status": "completed",
    "stage": "mineru",
    "rule": 3,
    "table": 5,
    "limit": 2147483648,
    "retry_after": 12,
    "method": "PATCH",
    "user": "alice",
    "page": 9,
    "count": 1,
    "tries": 3,
    "seconds": 600,
    "pages": 12000,
}


def add_examples(schema: dict[str, Any]) -> None:
    """Put an example of each code under `components`, and point every error of every route to its own."""
    shown = [one for one in entries() if one.status is not None and one.code in SENTENCES]
    schema["components"]["examples"] = {
        one.code: {"summary": one.text["en"][0], "value": _problem(one)} for one in shown
    }
    by_place: dict[tuple[int, str], list[str]] = defaultdict(list)
    for one in shown:
        by_place[one.status or 0, one.area].append(one.code)
    for tags, status, content in _errors(schema):
        areas = EVERYWHERE.union(*(AREAS.get(tag, set()) for tag in tags))
        codes = sorted(code for area in areas for code in by_place[status, area])
        # A status without a code of its own there comes from what the task of the route ended with.
        codes = codes or [one.code for one in shown if one.status == status]
        content["examples"] = {code: {"$ref": f"#/components/examples/{code}"} for code in codes}


def _errors(schema: dict[str, Any]) -> Iterator[tuple[list[str], int, dict[str, Any]]]:
    for operations in schema["paths"].values():
        for operation in operations.values():
            for status, response in operation.get("responses", {}).items():
                content = response.get("content", {}).get("application/problem+json")
                if content is not None:
                    yield operation.get("tags", []), int(status), content


def _problem(one: Entry) -> dict[str, Any]:
    return {
        "type": problem_type(one.code),
        "title": problem_title(one.code),
        "status": one.status,
        "detail": _sentence(one.code),
        "code": one.code,
        "instance": "/api/v1/…",
        "request_id": "5f2c0a9be1d34c6f9a7d1c2b3e4f5a6b",
        "retryable": one.code in RETRYABLE,
        "next_step": next_step(one.code),
    }


def _sentence(code: str) -> str:
    names = [name for _, name, _, _ in Formatter().parse(SENTENCES[code]) if name]
    return SENTENCES[code].format(**{name: FACTS.get(name, "…") for name in names})
