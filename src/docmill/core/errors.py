"""What can go wrong, as a tree. Every error has a stable code, an HTTP status and a verdict on retrying.

    DocmillError
    ├── BadRequest        400
    ├── Unauthorized      401
    ├── Forbidden         403
    ├── NotFound          404   (also what belongs to somebody else)
    ├── Conflict          409
    ├── Gone              410
    ├── TooLarge          413
    ├── UnsupportedMedia  415
    ├── Invalid           422
    ├── TooMany           429   retryable
    ├── DocumentError     422   the document itself cannot be processed
    ├── StageFailed       500   a stage broke down; retryable if its code says so
    ├── Unavailable       503   retryable
    ├── TimedOut          504
    └── StorageFull       507   retryable

The sentence of a code is its message; facts fill its gaps. The catalogue explains each code in three languages.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any, ClassVar

SENTENCES: dict[str, str] = {
    # requests
    "request_invalid": "The request is not valid: {why}",
    "body_too_large": "The body is larger than {limit} bytes.",
    "upload_too_large": "The file is larger than {limit} bytes.",
    "upload_incomplete": "The upload ended before the file was complete.",
    "upload_missing_file": "The form has no part named 'file'.",
    "project_required": "project_id is missing, and the key does not carry one.",
    "project_invalid": "project_id must be a whole number from 0 to 9223372036854775807.",
    "project_mismatch": "project_id is {project}, but the file was uploaded to project {key_project}.",
    "task_ids_invalid": "task_ids must be 1 to 100 whole numbers, separated by commas.",
    "cursor_invalid": "The cursor is not one that this list gave out.",
    "idempotency_mismatch": "The Idempotency-Key was used before with another request.",
    "idempotency_key_invalid": "An Idempotency-Key has 1 to 255 visible ASCII characters.",
    "route_not_found": "There is nothing at this address.",
    "code_unknown": "There is no code '{name}'. Similar codes: {close}.",
    "method_not_allowed": "This address does not take {method}.",
    "media_type_unsupported": "This address takes {expected}, not {given}.",
    "rate_limited": "Too many requests. Try again in {retry_after} seconds.",
    "too_many_streams": "This caller has {limit} event streams open, which is as many as it may.",
    "internal_error": "Something broke on our side. The request id helps to find it in the log.",
    "host_not_allowed": "The Host header '{host}' is not one of this service's names.",
    # who may
    "unauthenticated": "No credential was sent. Send an API key or a token; commands take it from DOCMILL_API_KEY.",
    "credential_invalid": "The credential is not valid, expired or revoked.",
    "form_expired": "The form is not one that this browser was given.",
    "forbidden": "The credential does not allow this.",
    "key_not_yours": "The key does not lie under users/{user}/raw/.",
    # tasks
    "task_not_found": "There is no task {task}.",
    "task_expired": "Task {task} was kept for as long as this service keeps tasks, and then removed.",
    "task_running": "Task {task} is running ({stage}). Cancel it with force=true.",
    "task_finished": "Task {task} is already {status}.",
    "task_busy": "Task {task} is {status}: only a finished task can be retried. Cancel it first.",
    "task_not_completed": "Task {task} is {status}: only a completed task can be mounted.",
    "stage_unknown": "There is no stage '{stage}'. Stages: mineru, postprocess.",
    "artifact_missing": "Cannot retry from '{stage}': there is no {needs}. Retry from 'mineru' instead.",
    "object_not_found": "There is no stored file under the key '{key}'.",
    "object_damaged": "The stored file under the key '{key}' is damaged or incomplete.",
    "key_invalid": "The key is not valid: {why}",
    "engine_unknown": "There is no engine '{engine}'. Configured: {known}.",
    "option_unknown": "The engine '{engine}' does not know these options: {options}. Known: {known}.",
    "ledger_busy": "Task {task} changes too fast to decide. Try again.",
    "conversion_pending": "The conversion takes longer than a caller may wait. Ask for it: /v1/status/poll/{task}",
    "attempt_superseded": "This attempt is no longer the current one.",
    # rules
    "rule_not_found": "There is no rule {rule}.",
    "rule_schema_required": "A rule of mode 'llm' needs a json_schema.",
    "rule_schema_invalid": "json_schema is not a valid JSON Schema: {why}",
    "rule_mode_unknown": "There is no mode '{mode}'. Modes: llm, skip.",
    "rule_strategy_unknown": "There is no strategy '{strategy}'. Strategies: direct-json, chunked-summarize.",
    "rule_global": "The global default rule cannot be changed or deleted.",
    "rule_name_taken": "A rule named '{name}' exists already.",
    "llm_not_configured": "The rule needs a language model, and none is configured.",
    "llm_forbidden": "The document must not leave the house, and the language model stands outside.",
    "llm_rate_limit": "The language model is asked too often: {why}",
    "llm_unreachable": "The language model's server does not answer as it should: {why}",
    "llm_refused": "The language model's server refused: {why}",
    "llm_answer_invalid": "The language model gave no valid answer in {tries} tries. The last one: {why}",
    "llm_budget": "The extraction needs more than its budget: {why}",
    "extraction_not_found": "No language model worked on task {task}.",
    # tables and mounting
    "table_not_found": "There is no table {table}.",
    "table_too_large": "A table's JSON may have at most {limit} bytes.",
    "pointer_invalid": "'{pointer}' is not a JSON Pointer (RFC 6901).",
    "pointer_not_found": "The table has nothing at '{pointer}'.",
    "pointer_not_container": "The value at '{pointer}' is neither an object nor an array.",
    "mount_conflict": "The key '{key}' at '{pointer}' belongs to something else.",
    # documents and assets in the repository
    "document_not_found": "There is no such document.",
    "document_exists": "This version of the document exists already with other content.",
    "document_missing": "The asset's document does not exist.",
    "asset_not_found": "There is no such asset.",
    "asset_conflict": "The asset id belongs to another document.",
    "blob_not_found": "The stored bytes are not there.",
    "page_not_found": "The document has no page {page}.",
    "page_images_unavailable": "Documents of this type ({media_type}) have no page images.",
    "contract_violated": "The value breaks its contract in {count} place(s).",
    "contract_kind_unknown": "There is no contract '{kind}'. Contracts: {known}.",
    # documents that cannot be processed
    "document_empty": "The file is empty.",
    "document_unsupported": "{type}: this type of file cannot be processed. {advice}",
    "document_needs_program": "{type}: reading this type of file needs {program}. {advice}",
    "document_mislabelled": "The name says {claimed}, the bytes say {found}, and neither can be read.",
    "document_encrypted": "The document is encrypted and needs a password.",
    "document_broken": "The document is damaged and cannot be read: {why}",
    "document_bomb": "The document would unpack to far more than it should: {why}",
    "document_too_many_pages": "The document has {pages} pages; the limit is {limit}.",
    "document_too_many_pixels": "The image has {pixels} pixels; the limit is {limit}.",
    "document_no_text": "No text was found in the document.",
    # stages that broke down
    "parse_timeout": "Parsing took longer than {seconds} s and was stopped.",
    "parse_memory": "Parsing needed more than {limit_mb} MB of memory and was stopped.",
    "parse_crashed": "The parser died ({how}) on this document.",
    "parse_output_too_large": "Parsing produced more than {limit_mb} MB.",
    "worker_lost": "The worker died {times} times on this task.",
    "task_stale": "There was no sign of life for longer than the time limit.",
    "task_timeout": "The stage took longer than {seconds} s.",
    "storage_failed": "Storing the result failed: {why}",
    "upload_failed": "The file could not be stored: {why}",
    "stage_failed": "The stage broke down: {why}",
    # external workers and their callbacks
    "job_not_found": "There is no job {job}.",
    "callback_token_invalid": "The callback token is missing or wrong.",
    "callback_signature_invalid": "The callback's signature is missing or wrong.",
    "callback_payload_invalid": "The callback's payload is not valid: {why}",
    "callback_conflict": "The job has already ended with another report.",
    "result_key_invalid": "The result key is not valid: {why}",
    "result_missing": "The worker reported success, but there is no result under '{key}'.",
    "result_unreadable": "The worker's result cannot be used: {why}",
    "archive_invalid": "The archive is not usable: {why}",
    "archive_bomb": "The archive would unpack to far more than it should: {why}",
    "address_refused": "The address may not be called: {why}",
    "fetch_failed": "Fetching the address failed: {why}",
    "worker_unreachable": "The worker '{worker}' does not answer: {why}",
    "worker_refused": "The worker '{worker}' refused the job: {why}",
    "worker_failed": "The worker failed: {why}",
    "worker_timeout": "The worker gave no sign of life by its deadline.",
    "worker_cancelled": "The worker cancelled the job: {why}",
    "link_invalid": "The link is not valid or has expired.",
    # providers
    "provider_unreachable": "The provider '{provider}' does not answer: {why}",
    "provider_busy": "The provider '{provider}' is asked too often: {why}",
    "provider_refused": "The provider '{provider}' refused: {why}",
    "provider_quota": "The quota at the provider '{provider}' is used up: {why}",
    "provider_forbidden": "The document may not go to the provider '{provider}': {why}",
    "provider_failed": "The provider '{provider}' could not process the document: {why}",
    "provider_lost": "The provider '{provider}' lost the job: {why}",
    "provider_answer_invalid": "The answer of the provider '{provider}' cannot be used: {why}",
    # twins
    "twin_drift": "Somebody edited the twin since it was written: {path}. It was kept.",
    "twin_failed": "The twin could not be written: {why}",
    "twin_unavailable": "The place of the twin does not answer: {why}",
    "twin_not_ready": "Task {task} is {status}: only a completed task has a twin.",
    "twin_target_invalid": "The twin's folder is not allowed: {why}",
    # what a client meets on its side of the wire
    "service_unreachable": "The service does not answer: {why}",
    "file_unreadable": "The file cannot be read: {why}",
    "answer_unexpected": "The answer is not docmill's: {why}",
    "wait_timeout": "Task {task} is still {status} after {seconds} s; it goes on.",
    "task_cancelled": "Task {task} was cancelled.",
    # webhooks
    "webhook_not_found": "There is no webhook {webhook}.",
    "webhook_delivery_not_found": "There is no delivery {delivery}.",
    "webhook_kind_unknown": "There is no event '{kind}'. Events: {known}.",
    "webhook_limit": "There are {limit} webhooks already; that is the most that one user may have.",
    "webhook_disabled": "Webhook {webhook} is disabled. Enable it first.",
    "webhook_gone": "The receiver answered 410: it wants no more messages.",
    "webhook_redirected": "The receiver redirects, which is not followed.",
    "webhook_refused": "The receiver did not answer with a success.",
    "webhook_timeout": "The receiver did not answer in time.",
    "webhook_unreachable": "The receiver cannot be reached.",
    "webhook_secret_unreadable": "The webhook's secret cannot be decrypted: the deployment has another secret now.",
    # our own state
    "database_unavailable": "The database does not answer. Try again in a moment.",
    "database_busy": "The database is busy with something that this has to wait for. Try again in a moment.",
    "storage_unavailable": "The object store does not answer. Try again in a moment.",
    "database_newer": "The database was written by a newer docmill ({found} > {known}). Upgrade docmill.",
    "backup_damaged": "The archive is damaged: {why}. Nothing was changed.",
    "restore_not_empty": "A backup is restored into an empty deployment, and this one has rows in {table}.",
    "backup_unknown": "The archive is not one that this docmill can read: {why}.",
    "migration_changed": "Migration {name} differs from the one that was applied.",
    "data_locked": "Another docmill uses the data folder {folder}.",
    "storage_full": "The disk is full. Nothing was stored.",
    "sandbox_insufficient": "The parsers' sandbox is {level}, and the setting sandbox asks for full ({why}).",
    "shutting_down": "docmill is shutting down. Try again in a moment.",
    "setting_invalid": "The setting {name} is not valid: {why}",
    "setting_unknown": "There is no setting {name}.{hint}",
    "settings_file_invalid": "{file} cannot be read: {why}",
    "address_taken": "Something else serves on {address} already.",
    "keys_unavailable": "The published keys for tokens cannot be read. Try again in a moment.",
    "bind_refused": "docmill serves only loopback addresses without credentials. Create a key with "
    "'docmill keys create' in the same data folder, or set DOCMILL_JWT_SECRET, before binding to {host}.",
}

RETRYABLE = frozenset(
    {
        "rate_limited",
        "too_many_streams",
        "ledger_busy",
        "parse_crashed",
        "storage_failed",
        "database_unavailable",
        "database_busy",
        "storage_unavailable",
        "storage_full",
        "shutting_down",
        "upload_incomplete",
        "internal_error",
        "worker_unreachable",
        "provider_unreachable",
        "provider_busy",
        "provider_lost",
        "provider_answer_invalid",
        "llm_rate_limit",
        "llm_unreachable",
        "fetch_failed",
        "twin_unavailable",
        "keys_unavailable",
        "service_unreachable",
        "wait_timeout",
        "webhook_redirected",
        "webhook_refused",
        "webhook_timeout",
        "webhook_unreachable",
        "webhook_secret_unreadable",
    }
)


def all_codes() -> frozenset[str]:
    """Every code that an error of ours can carry (contract codes live in `docmill.contracts`)."""
    return frozenset(SENTENCES)


class DocmillError(Exception):
    """Base of all errors that a person or a program may see."""

    status: ClassVar[int] = 500

    def __init__(self, code: str, **facts: Any) -> None:
        self.code = code
        self.facts = facts
        self.message = SENTENCES[code].format(**facts)
        super().__init__(self.message)

    @property
    def retryable(self) -> bool:
        return self.code in RETRYABLE

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.code, self.facts))


def _rebuild(kind: type[DocmillError], code: str, facts: dict[str, Any]) -> DocmillError:
    return kind(code, **facts)


class BadRequest(DocmillError):
    status = 400


class Unauthorized(DocmillError):
    status = 401


class Forbidden(DocmillError):
    status = 403


class NotFound(DocmillError):
    status = 404


class NotAllowed(DocmillError):
    status = 405


class Conflict(DocmillError):
    status = 409


class Gone(DocmillError):
    status = 410


class TooLarge(DocmillError):
    status = 413


class UnsupportedMedia(DocmillError):
    status = 415


class Invalid(DocmillError):
    status = 422


class TooMany(DocmillError):
    status = 429


class DocumentError(DocmillError):
    """The document itself cannot be processed; another try would end the same way."""

    status = 422


class StageFailed(DocmillError):
    """A stage broke down through no fault of the document."""

    status = 500


class Unavailable(DocmillError):
    status = 503


class TimedOut(DocmillError):
    status = 504


class StorageFull(DocmillError):
    """There is no room now. Later there is: a stage that meets it is postponed and never fails because of it."""

    status = 507


FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says when a disk, a quota or a limit of the size of files is exhausted."""


def unwrap(error: Exception) -> Exception:
    """The one error to act upon. All callers that turn an unexpected exception into an answer or a verdict use this.

    A task group wraps what its tasks raise, and an adapter raises its own error from the one it met. Full storage is
    found wherever it is hidden; else a group is represented by its first error of ours, or by its first error.
    """
    if full := next((full for one in _reachable(error) if (full := _as_storage_full(one))), None):
        return full
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = list(_leaves(error))
    first = next((leaf for leaf in leaves if isinstance(leaf, DocmillError)), leaves[0])
    return first if isinstance(first, Exception) else error


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _reachable(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from and what it groups. An error raised from its own group makes a cycle."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if one.__cause__ is not None:
            waiting.append(one.__cause__)
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(one.exceptions)


def _as_storage_full(error: BaseException) -> StorageFull | None:
    if isinstance(error, StorageFull):
        return error
    is_full = isinstance(error, DocmillError) and error.code == "storage_full"
    if is_full or (isinstance(error, OSError) and error.errno in FULL_ERRNOS):
        return StorageFull("storage_full")
    return None
