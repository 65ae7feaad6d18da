"""What OpenAPI shows of requests and good answers: a sentence and a value for each, by operation id.

A test validates every value against the schema of its place, and that none is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

AT: Final = "2026-11-18T09:30:00.000Z"
LATER: Final = "2026-11-18T09:30:02.618Z"
DOCUMENT_ID: Final = "9682c6c9-7b4f-51cc-86a1-5b59af820a2b"
ASSET_ID: Final = "2919eed4-d61c-55d2-8471-8567f985dc23"
JOB_ID: Final = "5d0c8a7e-2f5b-4f0e-9a56-0c1a4b6d9e21"
BATCH_ID: Final = "265fbaab-1aea-4e7a-b877-4087e946f69f"
WEBHOOK_ID: Final = "wh_cc0d2079da275783d6343737d1559e8d"
MESSAGE_ID: Final = "msg_c8445b3cb11f9fc9f1687b05ce6e8852"
SHA256: Final = "185f8db32271fe25f561a6fc938b2e264306ec304eda518007d1764826381969"
KEY: Final = "users/alice/raw/1/96de7e04-c5c9-4b57-8b84-ed2fe8972b98.pdf"
TOKEN: Final = "token-of-the-link"  # noqa: S105 - an example
CONVERSION_ID: Final = "7.m.e.1-0.i"
PARSE_ID: Final = "7.m.0-99999.auto.pipeline"
TRACE_ID: Final = "5f2c0a9be1d34c6f9a7d1c2b3e4f5a6b"


@dataclass(frozen=True, slots=True)
class Sample:
    """*says* describes the good answer, *answer* is its value by media type; *asks* and *body* are the request's."""

    says: str
    answer: Any = None
    body: Any = None
    asks: str = ""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Values of further media types of the good answer."""


TASK: Final = {
    "task_id": 7,
    "user_id": "alice",
    "project_id": 1,
    "filename": "report.en.pdf",
    "rule_id": 1,
    "status": "completed",
    "progress": 100,
    "created_at": AT,
    "updated_at": LATER,
    "result": {"report.en": {"filename": "report.en.pdf", "content": "# River Monitoring 2025\n\nAnnual report …"}},
    "error": None,
    "metadata": {
        "s3_key": KEY,
        "provider_task_id": None,
        "artifact_mineru_markdown_key": "users/alice/etl_artifacts/1/7/070d8323356d/mineru.md",
        "artifact_extraction_key": None,
        "error_stage": None,
        "error_code": None,
        "worker_error": None,
        "stage": "postprocess",
        "attempt": 1,
        "job_id": None,
        "engine": "local",
        "pages_done": 2,
        "pages_total": 2,
        "damaged_pages": [],
        "missing_archives": [],
        "cache_hit": False,
        "document_id": DOCUMENT_ID,
        "twin_path": None,
        "result_omitted": False,
        "result_error": None,
        "mount_table_id": None,
        "mounted_path": None,
    },
}
EVENT: Final = {
    "seq": 3,
    "kind": "progress",
    "data": {"progress": 55, "pages_done": 2, "pages_total": 2},
    "at": LATER,
}
RULE_BODY: Final = {
    "name": "invoices",
    "json_schema": {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]},
    "system_prompt": "Extract the total.",
    "postprocess_mode": "llm",
}
RULE: Final = {
    "id": 3,
    "rule_id": 3,
    "description": "",
    "postprocess_strategy": "direct-json",
    "is_default": False,
    "created_at": AT,
    "updated_at": AT,
    **RULE_BODY,
}
EXTRACTION: Final = {
    "strategy": "direct-json",
    "value": {"total": 119.0},
    "valid": True,
    "provenance": [{"pointer": "/total", "found": "normalised", "page": 1, "text": "119.00 €"}],
    "model": "qwen3",
    "tries": 1,
    "pieces": 1,
    "tokens": 812,
    "answer": '{"total": 119.0}',
    "errors": [],
}
TABLE_ENTRY: Final = {"id": 5, "project_id": 1, "name": "invoices", "created_at": AT, "updated_at": AT}
TABLE: Final = {**TABLE_ENTRY, "data": {"2026": []}}
ASSET: Final = {
    "ref": {
        "tenant_id": "acme",
        "workflow_id": "etl",
        "asset_id": ASSET_ID,
        "document_id": DOCUMENT_ID,
        "collection_id": None,
    },
    "media_type": "text/plain",
    "blob": {"type": "inline", "media_type": "text/plain", "base64": "SGVsbG8=", "sha256": SHA256, "size": 5},
    "page_index": 1,
    "bbox": [0.214, 0.152, 0.786, 0.377],
    "text_description": "Nitrate load, mean of twelve stations.",
    "caption_method": "manual",
    "created_at": "2026-11-18T09:30:00Z",
    "checksum": SHA256,
}
DOCUMENT: Final = {
    "ref": {
        "tenant_id": "acme",
        "workflow_id": "etl",
        "document_id": DOCUMENT_ID,
        "collection_id": None,
        "version": "1",
    },
    "meta": {"tenant_id": "acme", "workflow_id": "etl", "title": "River Monitoring 2025", "language": "en"},
    "blob": {"type": "inline", "media_type": "text/plain", "base64": "SGVsbG8=", "sha256": SHA256, "size": 5},
    "checksum": SHA256,
    "created_at": "2026-11-18T09:30:00Z",
    "source": "upload",
    "assets": [ASSET],
}
JOB_LINE: Final = {
    "jobId": JOB_ID,
    "status": "running",
    "state": "handed_over",
    "fileName": "report.en.pdf",
    "processId": "p-12",
    "task_id": 7,
    "worker": "scans",
    "dialect": "secretary",
    "attempt": 1,
    "created_at": AT,
    "ended_at": None,
    "updated_at": LATER,
    "createdAt": AT,
    "updatedAt": LATER,
}
LISTED_JOB: Final = {**JOB_LINE, "lastMessage": "page 3 of 8", "lastProgress": 37.5}
WEBHOOK: Final = {
    "id": WEBHOOK_ID,
    "url": "https://hooks.example.org/docmill",
    "description": "the archive",
    "events": ["task.completed", "task.failed"],
    "enabled": True,
    "disabled_at": None,
    "disabled_code": None,
    "secrets": 1,
    "created_at": AT,
    "updated_at": AT,
}
WEBHOOK_BODY: Final = {
    "url": "https://hooks.example.org/docmill",
    "description": "the archive",
    "events": ["task.completed", "task.failed"],
}
WEBHOOK_MADE: Final = {**WEBHOOK, "secret": "whsec_c2VjcmV0LW9mLXRoZS13ZWJob29rLTEyMzQ1Njc4OTA="}
DELIVERY: Final = {
    "id": 12,
    "message_id": MESSAGE_ID,
    "webhook_id": WEBHOOK_ID,
    "event": "task.completed",
    "task_id": 7,
    "state": "delivered",
    "tries": 1,
    "status": 204,
    "error_code": None,
    "next_try_at": None,
    "created_at": AT,
    "ended_at": LATER,
}
MESSAGE: Final = {
    "type": "task.completed",
    "timestamp": LATER,
    "data": {
        "task_id": 7,
        "project_id": 1,
        "status": "completed",
        "attempt": 1,
        "document_id": DOCUMENT_ID,
        "error_code": None,
        "error_stage": None,
    },
}
WHOLE_DELIVERY: Final = {
    **DELIVERY,
    "payload": '{"type":"task.completed","timestamp":"2026-11-18T09:30:02.618Z","data":{"task_id":7}}',
    "attempts": [{"number": 1, "at": LATER, "status": 204, "error_code": None, "error": None, "ms": 31}],
}
READY: Final = {
    "status": "ready",
    "checks": {"database": "ok", "store": "ok", "disk": "ok", "worker": "ok"},
    "sandbox": "full",
}
NOT_READY: Final = {**READY, "status": "unavailable", "checks": {**READY["checks"], "disk": "storage_full"}}  # type: ignore[dict-item]
CONVERTED: Final = {
    "document": {
        "filename": "report.en.pdf",
        "md_content": "# River Monitoring 2025",
        "json_content": None,
        "html_content": None,
        "text_content": None,
        "doctags_content": None,
    },
    "status": "success",
    "errors": [],
    "processing_time": 1.87,
    "timings": {},
}
CONVERSION: Final = {
    "task_id": CONVERSION_ID,
    "task_type": "convert",
    "task_status": "pending",
    "task_position": None,
    "task_meta": {"num_docs": 1, "num_processed": 0, "num_succeeded": 0, "num_failed": 0},
    "error_message": None,
}
SOURCES: Final = {
    "sources": [{"kind": "http", "url": "https://www.example.org/report.pdf"}],
    "options": {"to_formats": ["md"]},
}
PARSE_STATUS: Final = {
    "task_id": PARSE_ID,
    "status": "processing",
    "backend": "pipeline",
    "file_names": ["report.en"],
    "created_at": AT,
    "started_at": AT,
    "completed_at": None,
    "error": None,
    "status_url": f"https://docmill.example.org/tasks/{PARSE_ID}",
    "result_url": f"https://docmill.example.org/tasks/{PARSE_ID}/result",
    "message": None,
}
PARSED: Final = {
    "backend": "pipeline",
    "version": "0.1.0",
    "results": {"report.en": {"md_content": "# River Monitoring 2025"}},
}
CLOUD_FILE: Final = {
    "file_name": "report.en.pdf",
    "state": "done",
    "err_msg": "",
    "full_zip_url": f"https://docmill.example.org/api/v4/results/{TOKEN}.zip",
}
FILES: Final = {"files": ["the bytes of report.en.pdf"]}


def _cloud(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"code": 0, "data": data, "msg": "ok", "trace_id": TRACE_ID}


def _ack(status: str, message: str) -> dict[str, Any]:
    return {"task_id": 7, "status": status, "message": message}


STREAM: Final = (
    "retry: 2000\n\n"
    "id: 3\nevent: progress\n"
    'data: {"seq":3,"kind":"progress","data":{"progress":55},"at":"2026-11-18T09:30:02.618Z"}\n\n'
    'event: end\ndata: {"task_id":7,"status":"completed"}\n\n'
)
CHANGES_STREAM: Final = (
    "retry: 2000\n\n"
    "id: 1794994202618\nevent: task\n"
    'data: {"task_id":7,"status":"completed","progress":100,"version":5}\n\n'
)

SAMPLES: Final[Mapping[str, Sample]] = {
    "explain_code": Sample(
        "The page of the code.",
        "<!doctype html><html lang=en><title>task_not_found · docmill</title><h1>Task not found</h1></html>",
    ),
    # tasks
    "submit_task": Sample(
        "The task that was opened; with an `Idempotency-Key` seen before, the task of then.",
        _ack("pending", "Task submitted successfully"),
        {
            "s3_key": KEY,
            "project_id": 1,
            "filename": "report.en.pdf",
            "rule_id": 3,
            "options": {"language": "en"},
            "twin": {"folder": "reports"},
            "mount": {"table_id": 5, "json_path": "/2026"},
        },
        "The key of an uploaded file, and what to do with it.",
    ),
    "upload_file": Sample(
        "The key of the stored file.",
        {
            "key": KEY,
            "bucket": "docmill",
            "size": 54747,
            "etag": SHA256,
            "content_type": "application/pdf",
            "sha256": SHA256,
        },
        {"project_id": 1, "file": "the bytes of report.en.pdf"},
        "A form with `project_id` before `file`.",
    ),
    "upload_and_submit": Sample(
        "A line for each file, in their order.",
        {
            "items": [
                {"filename": "report.en.pdf", "task_id": 7, "status": "pending", "s3_key": KEY, "error": None},
            ],
            "total": 1,
        },
        {"project_id": 1, "engine": "local", **FILES},
        "A form with the wishes of `submit_task` as fields before `files`.",
    ),
    "list_tasks": Sample(
        "A page of tasks.", {"tasks": [TASK], "total": 1, "limit": 50, "offset": 0, "next_cursor": None}
    ),
    "list_tasks_by_id": Sample("The tasks that were found.", {"tasks": [TASK], "total": 1}),
    "get_task": Sample("The task. `ETag` changes with every change of the task.", TASK),
    "cancel_task": Sample("The task is cancelled.", _ack("cancelled", "Task cancelled successfully")),
    "retry_task": Sample(
        "The task waits again.",
        _ack("pending", "Task retry submitted successfully"),
        {"from_stage": "postprocess"},
        "The stage to start from.",
    ),
    "mount_task": Sample(
        "Where the output stands in the table.",
        {"success": True, "message": "Task result mounted successfully", "mounted_path": "/2026/report.en"},
        {"table_id": 5, "json_path": "/2026"},
        "The table, and the place in it.",
    ),
    "download_twin": Sample("The archive."),
    "follow_task": Sample(
        "The events, as they happen or as a page.",
        {"events": [EVENT], "next": 3},
        others={"text/event-stream": STREAM},
    ),
    "follow_tasks": Sample(
        "The tasks as they are after each change.",
        {"tasks": [{**TASK, "version": 5}], "next": 1794994202618},
        others={"text/event-stream": CHANGES_STREAM},
    ),
    # rules
    "list_rules": Sample("A page of rules.", {"rules": [RULE], "total": 1, "limit": 100, "offset": 0}),
    "create_rule": Sample("The rule.", RULE, RULE_BODY, "The rule."),
    "try_rule": Sample(
        "The output that a task with this rule would have, or why it would fail.",
        {
            "task_id": 7,
            "valid": True,
            "output": {"total": 119.0},
            "extraction": EXTRACTION,
            "error_code": None,
            "error": None,
        },
        {"rule": RULE_BODY, "task_id": 7},
        "A rule or its id, and a task or a document.",
    ),
    "get_rule": Sample("The rule.", RULE),
    "replace_rule": Sample("The rule as it is now.", RULE, RULE_BODY, "The whole rule."),
    "delete_rule": Sample("The rule is deleted."),
    "get_extraction": Sample("The extraction.", EXTRACTION),
    # tables
    "create_table": Sample("The table.", TABLE, {"name": "invoices", "data": {"2026": []}}, "Name and data."),
    "list_tables": Sample("The tables.", {"tables": [TABLE_ENTRY], "total": 1}),
    "get_table": Sample("The table.", TABLE),
    "replace_table": Sample("The table as it is now.", TABLE, {"data": {"2026": []}}, "The new data."),
    "delete_table": Sample("The table is deleted."),
    "get_table_value": Sample("The value.", {"2026": []}),
    # documents
    "store_document": Sample("The document as it is stored.", DOCUMENT, DOCUMENT, "A document with its assets."),
    "list_documents": Sample("A page of documents.", {"documents": [DOCUMENT], "next_cursor": None}),
    "get_document": Sample("The document.", DOCUMENT),
    "list_document_versions": Sample("The versions.", {"versions": [DOCUMENT], "next_cursor": None}),
    "delete_document": Sample("The document is hidden or removed."),
    "download_document": Sample("The bytes, as an attachment."),
    "get_page_image": Sample("The picture."),
    "list_document_assets": Sample("A page of assets.", {"assets": [ASSET], "next_cursor": None}),
    "store_asset": Sample("The asset as it is stored.", ASSET, ASSET, "An asset; its `ref` names the document."),
    "get_asset": Sample("The asset.", ASSET),
    "delete_asset": Sample("The asset is hidden or removed."),
    "download_asset": Sample("The bytes, as an attachment."),
    # contracts
    "list_contracts": Sample(
        "The names.", {"kinds": ["document-ref", "document-meta", "blob", "asset-ref", "asset", "document"]}
    ),
    "check_contract": Sample(
        "The violations, or the value as it would be stored.",
        {
            "valid": False,
            "errors": [{"code": "missing", "loc": ["document_id"], "message": "Field required"}],
            "value": None,
        },
        {"tenant_id": "acme", "workflow_id": "etl"},
        "Any JSON value.",
    ),
    "get_contract_schema": Sample("The schema.", {"$schema": "https://json-schema.org/draft/2020-12/schema"}),
    # jobs
    "list_jobs": Sample(
        "A page of jobs.",
        {"items": [LISTED_JOB], "jobs": [LISTED_JOB], "page": 1, "limit": 50, "total": 1, "next": None},
    ),
    "get_job": Sample(
        "The job.",
        {
            **JOB_LINE,
            "logs": [
                {**EVENT, "timestamp": LATER, "phase": "ocr", "progress": 37.5, "message": "page 3 of 8"},
            ],
            "deliveries": [
                {"kind": "final", "status": 200, "reason": None, "size": 1024, "sha256": SHA256, "at": LATER}
            ],
            "result": None,
            "error": None,
        },
    ),
    "take_over_job": Sample(
        "Where to report, and the token for it. The token is shown this once.",
        {
            "callback_url": f"https://docmill.example.org/api/external/jobs/{JOB_ID}",
            "callback_token": "token-of-the-job",
            "dialect": "secretary",
        },
    ),
    "report_to_job": Sample(
        "The report was received. `cancel_requested` asks the worker to stop.",
        {"status": "ok", "kind": "progress", "jobId": JOB_ID},
        {"phase": "ocr", "progress": 37.5, "message": "page 3 of 8", "process": {"id": "p-12"}},
        "Progress, a final report with `data`, or a failure with `error`. Unknown fields are ignored.",
    ),
    "report_end_of_job": Sample(
        "The report was received; the same report again has no further effect.",
        {"status": "ok", "task_guid": JOB_ID},
        {"status": "completed", "exit_code": 0, "result_key": "tenants/acme/jobs/result.zip", "completed_at": LATER},
        "How the job ended. Unknown fields are refused.",
    ),
    # webhooks
    "list_webhooks": Sample("The webhooks.", {"webhooks": [WEBHOOK], "total": 1}),
    "create_webhook": Sample("The webhook with its secret.", WEBHOOK_MADE, WEBHOOK_BODY, "Address and events."),
    "list_webhook_deliveries": Sample("A page of messages.", {"deliveries": [DELIVERY], "next_cursor": None}),
    "get_webhook_delivery": Sample("The message.", WHOLE_DELIVERY),
    "redeliver_message": Sample(
        "The message waits to be sent.",
        {**DELIVERY, "state": "pending", "next_try_at": LATER, "ended_at": None},
    ),
    "get_webhook": Sample("The webhook.", WEBHOOK),
    "replace_webhook": Sample("The webhook as it is now.", WEBHOOK, WEBHOOK_BODY, "The whole webhook."),
    "delete_webhook": Sample("The webhook is deleted."),
    "rotate_webhook_secret": Sample(
        "The webhook with its new secret.",
        {**WEBHOOK_MADE, "secrets": 2},
        {"overlap_hours": 24},
        "How long the old secret stays in use; without a body a day.",
    ),
    "send_test_message": Sample("The message, and what the receiver answered.", WHOLE_DELIVERY),
    "redeliver_dead_messages": Sample("How many messages are sent again.", {"redelivered": 3}),
    # objects
    "download_object": Sample("The bytes."),
    "upload_object": Sample(
        "The stored object.",
        {"key": "jobs/result.zip", "size": 5, "sha256": SHA256},
        "the bytes",
        "The bytes of the object.",
    ),
    # operations
    "get_health": Sample("The process runs.", {"status": "ok", "version": "1.0.0"}),
    "get_ready": Sample("Every part works.", READY),
    "get_metrics": Sample("The metrics.", 'docmill_tasks{status="running"} 2.0\n'),
    # docling-serve
    "docling_get_version": Sample("The versions.", {"docmill": "1.0.0", "docling-serve": "1.0.0"}),
    "docling_get_livez": Sample("The process runs.", {"status": "ok"}),
    "docling_get_readyz": Sample("Every part works.", {"status": "ok"}),
    "docling_convert_files": Sample(
        "The document, or a ZIP file of several.", CONVERTED, {**FILES, "to_formats": ["md"]}, "Files and options."
    ),
    "docling_submit_files": Sample(
        "The submission.", CONVERSION, {**FILES, "to_formats": ["md"]}, "Files and options."
    ),
    "docling_convert_sources": Sample(
        "The document, or a ZIP file of several.", CONVERTED, SOURCES, "Sources and options."
    ),
    "docling_submit_sources": Sample("The submission.", CONVERSION, SOURCES, "Sources and options."),
    "docling_get_status": Sample("The submission.", {**CONVERSION, "task_status": "started"}),
    "docling_get_result": Sample("The document, or a ZIP file of several.", CONVERTED),
    "docling_clear_results": Sample("The conversions are removed.", {"status": "ok"}),
    "docling_clear_converters": Sample("Nothing was done.", {"status": "ok"}),
    # MinerU
    "mineru_parse_files": Sample("The result, or a ZIP file.", PARSED, FILES, "Files and options."),
    "mineru_submit_files": Sample(
        "The submission.", {**PARSE_STATUS, "message": "Task submitted successfully"}, FILES, "Files and options."
    ),
    "mineru_get_status": Sample("The submission.", PARSE_STATUS),
    "mineru_get_result": Sample("The result, or a ZIP file.", PARSED),
    "mineru_cloud_announce_files": Sample(
        "The batch, and an address for each file.",
        _cloud(
            {"batch_id": BATCH_ID, "file_urls": [f"https://docmill.example.org/api/v4/uploads/{TOKEN}"]},
        ),
        {"files": [{"name": "report.en.pdf"}]},
        "The names of the files.",
    ),
    "mineru_cloud_upload_file": Sample("The file is stored, and its task is open.", None, "the bytes", "The file."),
    "mineru_cloud_get_batch": Sample("The files.", _cloud({"batch_id": BATCH_ID, "extract_result": [CLOUD_FILE]})),
    "mineru_cloud_submit_url": Sample(
        "The id of the task.",
        _cloud({"task_id": BATCH_ID}),
        {"url": "https://www.example.org/report.pdf"},
        "The address of the file.",
    ),
    "mineru_cloud_get_task": Sample("The file.", _cloud({"task_id": BATCH_ID, **CLOUD_FILE})),
    "mineru_cloud_download_result": Sample("The archive."),
}

ANSWERS: Final[Mapping[str, Any]] = {
    "Answer": {"code": -60012, "data": None, "msg": "task_not_found: There is no task 7.", "trace_id": TRACE_ID},
    "Readiness": NOT_READY,
    "ParseStatus": PARSE_STATUS,
    "DispatcherRefusal": {"error": "The callback token is missing or wrong.", "code": "callback_token_invalid"},
    "NormalizedDocument": DOCUMENT,
    "Asset": ASSET,
}
"""Of answers besides the good one, by the name of their model."""

PARAMETERS: Final[Mapping[str, tuple[str, Any]]] = {
    "task_id": ("The id of a task.", 7),
    "rule_id": ("The id of a rule.", 3),
    "table_id": ("The id of a table.", 5),
    "project_id": ("The number of a project.", 1),
    "document_id": ("The id of a document.", DOCUMENT_ID),
    "asset_id": ("The id of an asset.", ASSET_ID),
    "webhook_id": ("The id of a webhook.", WEBHOOK_ID),
    "delivery_id": ("The id of a message to a webhook.", 12),
    "job_id": ("The id of a job.", JOB_ID),
    "batch_id": ("The id of a batch.", BATCH_ID),
    "conversion_id": ("The id of a submission.", CONVERSION_ID),
    "parse_id": ("The id of a submission.", PARSE_ID),
    "collection_id": ("Only documents of this collection.", None),
    "token": ("The signed part of a link.", TOKEN),
    "kind": ("The name of a contract.", "document"),
    "code": ("The code of a problem.", "task_not_found"),
    "page": ("The number of a page, counted from 1.", 1),
    "task_ids": ("Ids of tasks.", "7,8"),
    "pointer": ("A JSON Pointer.", "/2026"),
    "limit": ("How many at most.", None),
    "offset": ("How many to skip.", None),
    "cursor": ("Where to go on: `next_cursor` of the page before.", None),
    "status": ("Only those in this state.", None),
    "state": ("Only those in this state.", None),
    "include": ("`result`: with results of any size.", None),
    "force": ("Also what is running.", None),
    "hard": ("Remove it with its bytes, instead of hiding it.", None),
    "layout": ("How the files are arranged.", None),
    "strict": ("Also compare checksums with the bytes.", None),
    "before": ("Only older ones: `next` of the page before.", None),
    "wait": ("Seconds to wait.", None),
}
"""By their names: what they mean, unless their route says more, and an example for those in the path."""
