"""The dialect of seed 001: one report when a task has ended, checked against a schema that knows every field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import jsonschema_rs
import msgspec

from docmill.core.errors import BadRequest, DocmillError, Forbidden
from docmill.core.reports import Cancelled, Failed
from docmill.core.reports import Final as FinalReport
from docmill.core.task import Fault, WorkerError
from docmill.dialects.base import (
    WORKER_RESTARTED,
    Claim,
    Expected,
    Outcome,
    Signature,
    bearer,
    is_token,
    kept_small,
    worker_error,
    worker_failed,
)
from docmill.dialects.spill import Spill

CALLBACK_SCHEMA: Final[dict[str, Any]] = json.loads(
    files("docmill.dialects").joinpath("callback_schema.json").read_text("utf-8")
)
MAX_SHOWN: Final = 6_000
"""Characters of a wrong value that we repeat: those just over their limit are shown whole."""

_MOMENT: Final = re.compile(r"[0-9]{4}[0-9W-]*[T ][0-9:.,]+(?:Z|[+-][0-9:]+)?", re.ASCII)


class Dispatcher:
    name = "dispatcher"
    spills: tuple[Spill, ...] = ()

    def authenticate(self, claim: Claim, expected: Expected) -> None:
        if not is_token(bearer(claim), expected):
            raise Forbidden("callback_token_invalid")

    def signature(self, claim: Claim, expected: Expected, *, now: float) -> Signature:
        return Signature(claim, expected, now=now, refusal=Forbidden)

    def read(self, value: Any, folder: Path | None = None) -> Outcome:  # noqa: ARG002 - nothing here is huge
        if errors := validation_errors(value):
            why = errors[0] if len(errors) == 1 else f"{errors[0]} (and {len(errors) - 1} more)"
            raise BadRequest("callback_payload_invalid", why=why, validation_errors=errors)
        why = value.get("error_message") or value.get("error") or ""
        match value["status"]:
            case "completed":
                return FinalReport(result_key=value.get("result_key") or None, message=why, facts=_details(value))
            case "cancelled":
                return Cancelled(why)
            case "timed_out":
                why = why or "The worker reported that its time was up."
                return Failed(Fault("task_timeout", why, "timeout", _error(value)), details=_details(value))
            case _:
                why = why or "The worker reported a failure and gave no reason."
                restarted = why.startswith(f"[{WORKER_RESTARTED}]")
                return worker_failed(why, restarted, _details(value), _error(value))

    def outcome_hash(self, value: Any) -> str | None:
        """Of the value: white space, the order of the keys and escapes make no other report."""
        return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()

    def reply(self, report: Outcome, job_id: UUID, *, cancel_requested: bool = False) -> dict[str, Any]:  # noqa: ARG002
        return {"status": "ok", "task_guid": str(job_id)}

    def refusal(self, error: DocmillError) -> dict[str, Any] | None:
        if error.code == "callback_payload_invalid":
            errors = error.facts.get("validation_errors") or [f"(root): {error.facts['why']}"]
            return {"error": "Invalid callback payload.", "validation_errors": errors}
        return {"error": error.message, "code": error.code}


def validation_errors(value: Any) -> list[str]:
    """Everything that is wrong with a payload, in the words of seed 001: the object first, then field by field."""
    found = sorted(_VALIDATOR.iter_errors(value), key=_place)
    return [f"{_where(error)}: {_sentence(error, value)}" for error in found]


def _details(value: dict[str, Any]) -> dict[str, Any]:
    details = {name: value[name] for name in ("exit_code", "log_stream", "completed_at") if value.get(name) is not None}
    if "exit_code" in details:
        details["exit_code"] = int(details["exit_code"])  # 137.0 is an integer in JSON Schema
    if metadata := value.get("result_metadata"):
        details["result_metadata"] = kept_small(metadata)
    return details


def _error(value: dict[str, Any]) -> WorkerError | None:
    """The contract knows no error code: what it says beside the message are details."""
    return worker_error(None, value.get("error_message") or value.get("error") or "", _details(value) or None)


def _is_moment(text: str) -> bool:
    """ISO 8601, with or without a zone: RFC 3339 alone would refuse what many clocks print."""
    try:
        return bool(_MOMENT.fullmatch(text) and datetime.fromisoformat(text))
    except ValueError:
        return False


_VALIDATOR: Final = jsonschema_rs.Draft202012Validator(
    CALLBACK_SCHEMA, validate_formats=True, formats={"date-time": _is_moment}
)
_ORDER: Final = ("type", "required", "additionalProperties", "enum", "maxLength", "format")


def _place(error: jsonschema_rs.ValidationError) -> tuple[list[str], int]:
    name = error.kind.name
    return [str(step) for step in error.instance_path], _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _where(error: jsonschema_rs.ValidationError) -> str:
    return ".".join(str(step) for step in error.instance_path) or "(root)"


def _sentence(error: jsonschema_rs.ValidationError, value: Any) -> str:
    """As Python's jsonschema words it, which the seed's own receiver uses."""
    for step in error.instance_path:
        value = value[step]
    schema = CALLBACK_SCHEMA
    for key in error.schema_path[:-1]:
        schema = schema[str(key)]
    match error.kind.name:
        case "required":
            return f"{error.kind.value!r} is a required property"
        case "additionalProperties":
            unexpected = sorted(error.kind.value)
            verb = "was" if len(unexpected) == 1 else "were"
            return f"Additional properties are not allowed ({_listed(unexpected)} {verb} unexpected)"
        case "enum":
            return f"{_shown(value)} is not one of {schema['enum']!r}"
        case "type":
            types = schema["type"]
            return f"{_shown(value)} is not of type {_listed([types] if isinstance(types, str) else types)}"
        case "maxLength":
            return f"{_shown(value)} is too long"
        case "format":
            return f"{_shown(value)} is not a {schema['format']!r}"
        case _:
            return error.message


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(_few(names))


def _few(names: Iterable[str]) -> Iterator[str]:
    room = MAX_SHOWN
    for name in names:
        shown = _shown(name)
        room -= len(shown)
        if room < 0:
            yield "…"
            return
        yield shown
