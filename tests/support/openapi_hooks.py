"""What Schemathesis is told besides the schema: ids that exist, and that no door stands open."""

from __future__ import annotations

import json
import os
from typing import Any
from zlib import crc32

import schemathesis

REAL: dict[str, Any] = json.loads(os.environ.get("DOCMILL_REAL_IDS", "{}"))
HUGE = 99_999_999_999_999_999_999
EXAMPLE_ADDRESS = "https://www.example.org/report.pdf"
REFUSED_ADDRESS = "https://127.0.0.1/report.pdf"
OPEN = {"/health", "/ready", "/livez", "/readyz", "/metrics", "/docs/codes/{code}"}


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Every other time something that is there, so that the answer is more than a 404."""
    if path_parameters and str(path_parameters.get("parse_id", "")).isdigit():
        return {**path_parameters, "parse_id": f"{path_parameters['parse_id']}.m"}  # digits alone: the console's page
    if path_parameters and crc32(repr(path_parameters).encode()) % 2:
        return {name: REAL.get(name, value) for name, value in path_parameters.items()}
    return path_parameters


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """A minute is a good time to wait for a task, and a bad one to wait for a test. Every other time one whole number
    is larger than a database takes: generated ones hardly ever are."""
    if not query:
        return query
    if isinstance(query.get("wait"), int | float) and query["wait"] > 1:
        query = {**query, "wait": 1}
    numbers = [name for name, value in query.items() if _is_whole(value)]
    chance = crc32(repr(query).encode())
    return {**query, numbers[chance // 2 % len(numbers)]: HUGE} if numbers and chance % 2 else query


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """The addresses of the examples cannot be fetched in a test; one of this machine is refused."""
    case.body = with_refused_address(case.body)


def with_refused_address(body: Any) -> Any:
    if isinstance(body, dict) and body.get("url") == EXAMPLE_ADDRESS:
        return {**body, "url": REFUSED_ADDRESS}
    if isinstance(body, dict) and isinstance(body.get("sources"), list):
        return {**body, "sources": [with_refused_address(one) for one in body["sources"]]}
    return body


@schemathesis.check
def no_open_door(ctx: Any, response: Any, case: Any) -> None:
    """Without a credential nothing is given out or done."""
    if "DOCMILL_NO_CREDENTIAL" in os.environ and case.operation.path not in OPEN:
        assert not 200 <= response.status_code < 400, f"{response.status_code} without a credential"
