"""OpenAPI of the callbacks of external workers. They are answered in front of FastAPI, which never sees them."""

from __future__ import annotations

from typing import Any, Final

from docmill.dialects.dispatcher import CALLBACK_SCHEMA
from docmill.http.errors import SENTENCE_OF_STATUS, problems

STATUSES: Final = (400, 404, 413, 429, 500, 503, 507)
JOB_ID: Final = {"name": "job_id", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}
TEXT: Final = {"type": ["string", "null"]}
SECRETARY_REPORT: Final[dict[str, Any]] = {
    "title": "SecretaryReport",
    "description": "What a worker of the dialect `secretary` reports. At least one of phase, progress, message, data "
    "and error is needed; other fields are ignored.",
    "type": "object",
    "properties": {
        "phase": {**TEXT, "description": "What the worker does; `completed` and `failed` end the job."},
        "progress": {"type": ["number", "null"], "minimum": 0, "maximum": 100, "description": "In per cent."},
        "message": {**TEXT, "description": "For people."},
        "process": {"type": ["object", "null"], "properties": {"id": {"type": ["string", "integer", "null"]}}},
        "data": {
            "type": ["object", "null"],
            "description": "The result, which ends the job: text, archive, addresses of both, or the key of an object.",
            "properties": {
                "extracted_text": {**TEXT, "description": "Markdown."},
                "images_archive_data": {**TEXT, "description": "A ZIP file in Base64."},
                "images_archive_url": TEXT,
                "markdown_url": TEXT,
                "result_key": TEXT,
                "metadata": {"type": ["object", "null"], "description": "`text_contents`: the text by page."},
            },
        },
        "error": {
            "type": ["object", "string", "null"],
            "description": "Why the job failed, which ends it.",
            "properties": {"code": {"type": ["string", "integer", "null"]}, "message": TEXT, "details": {}},
        },
    },
}
SECRETARY_ACK: Final[dict[str, Any]] = {
    "title": "SecretaryAck",
    "type": "object",
    "required": ["status", "kind", "jobId"],
    "properties": {
        "status": {"const": "ok"},
        "kind": {"type": "string", "enum": ["progress", "final", "failed"]},
        "jobId": {"type": "string", "format": "uuid"},
        "cancel_requested": {"type": "boolean", "description": "The job is over: stop."},
    },
}
DISPATCHER_ACK: Final[dict[str, Any]] = {
    "title": "DispatcherAck",
    "type": "object",
    "required": ["status", "task_guid"],
    "properties": {"status": {"const": "ok"}, "task_guid": {"type": "string", "format": "uuid"}},
}
DISPATCHER_REFUSAL: Final[dict[str, Any]] = {
    "title": "DispatcherRefusal",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "string"},
        "validation_errors": {"type": "array", "items": {"type": "string"}},
    },
}
SIGNATURE_HEADERS: Final = {
    "X-Kohakku-Signature": "`sha256=` and the HMAC of the job's id and the body, if a signing key is configured.",
    "webhook-id": "Standard Webhooks, instead of the header above.",
    "webhook-timestamp": "Standard Webhooks: seconds since 1970.",
    "webhook-signature": "Standard Webhooks: `v1,` and the HMAC in Base64.",
}


def add_callbacks(schema: dict[str, Any]) -> None:
    schemas = schema["components"]["schemas"]
    dispatcher_report = {name: value for name, value in CALLBACK_SCHEMA.items() if not name.startswith("$")}
    for one in (SECRETARY_REPORT, SECRETARY_ACK, DISPATCHER_ACK, DISPATCHER_REFUSAL):
        schemas[one["title"]] = one
    schemas["DispatcherReport"] = {**dispatcher_report, "title": "DispatcherReport"}
    refused = problems(*STATUSES)
    schema["paths"].setdefault("/api/external/jobs/{job_id}", {})["post"] = {
        "tags": ["jobs"],
        "operationId": "report_to_job",
        "summary": "Report progress, a result or a failure (dialect secretary)",
        "description": "The callback of an external worker that was started with this address and the job's token.",
        "parameters": [JOB_ID],
        "requestBody": _body("SecretaryReport"),
        "responses": {"200": _answer("SecretaryAck")} | {str(one): refused[one] for one in (401, *STATUSES)},
    }
    own = {str(status): _refusal(status) for status in (403, 409, *STATUSES)}
    for status in (500, 503):
        own[str(status)]["content"] |= refused[status]["content"]
    schema["paths"]["/api/v1/tasks/{job_id}/callback"] = {
        "post": {
            "tags": ["jobs"],
            "operationId": "report_end_of_job",
            "summary": "Report the end of a job (dialect dispatcher)",
            "description": "The callback of a dispatcher. With a signing key configured the body must be signed.",
            "parameters": [JOB_ID, *(_header(name, text) for name, text in SIGNATURE_HEADERS.items())],
            "requestBody": _body("DispatcherReport"),
            "responses": {"200": _answer("DispatcherAck")} | own,
        }
    }


def _body(model: str) -> dict[str, Any]:
    return {"required": True, "content": _json(model)}


def _answer(model: str) -> dict[str, Any]:
    return {"description": "", "content": _json(model)}


def _refusal(status: int) -> dict[str, Any]:
    return {"description": SENTENCE_OF_STATUS[status], "content": _json("DispatcherRefusal")}


def _json(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
