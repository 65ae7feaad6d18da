"""What the dialects share: who calls, what is expected of the caller, and signatures over raw bytes.

A token is made for one job, sent to its worker, and kept as SHA-256 only. A signature is checked over the bytes as they
came, while they stream. The form of seed 001 carries no time: it is safe against replay only because the token beside
it belongs to one job, and a job ends once. Standard Webhooks (https://www.standardwebhooks.com) carry their time.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final, Literal, Protocol
from uuid import UUID

import msgspec
import pybase64

from docmill.core.errors import DocmillError, Forbidden, Unauthorized
from docmill.core.machine import MAX_ABSENCES, WIRE_STAGE
from docmill.core.reports import Cancelled, Failed, Progress
from docmill.core.reports import Final as FinalReport
from docmill.core.task import Fault, Stage, WorkerError
from docmill.core.tokens import digest, new_token
from docmill.dialects.spill import Spill

Signing = Literal["off", "legacy", "standard", "both"]
Outcome = Progress | FinalReport | Failed | Cancelled

TOLERANCE_S: Final = 300
WORKER_RESTARTED: Final = "WORKER_RESTARTED"
"""A failure that says nothing of the document: the worker lost the job when it was restarted. Worth another try."""
MAX_MESSAGE: Final = 1_000
MAX_ERROR: Final = 5_000
MAX_DETAILS: Final = 64 * 1024
"""Bytes of JSON that a worker may add to a report for us to keep."""
MAX_SHOWN_DETAILS_BYTES: Final = 8 * 1024
"""Of an error's details that every look at the task shows. Larger ones stand in its log alone."""

_BEARER: Final = re.compile(r"(?i:bearer) +([\x21-\x7e]{1,512})")
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,512}")
_MESSAGE_ID: Final = re.compile(r"[\x21-\x7e]{1,255}")
_SECONDS: Final = re.compile(r"[0-9]{1,15}")
_MAX_SIGNATURES: Final = 16
_SECRET: Final = re.compile(r"correlation|job_?id|authorization|password|api_?key|(\w+_)?(token|secret)", re.IGNORECASE)


@dataclass(slots=True)
class Claim:
    """What a callback says about itself before its body is read. A header that came twice is here twice."""

    job_id: UUID
    authorization: tuple[str, ...] = field(default=(), repr=False)
    x_callback_token: tuple[str, ...] = field(default=(), repr=False)
    x_kohakku_signature: tuple[str, ...] = field(default=(), repr=False)
    webhook_id: tuple[str, ...] = ()
    webhook_timestamp: tuple[str, ...] = ()
    webhook_signature: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, job_id: UUID, headers: Iterable[tuple[bytes, bytes]]) -> Claim:
        """From the headers as ASGI gives them."""
        found: dict[str, tuple[str, ...]] = {}
        for name, value in headers:
            known = _HEADERS.get(name.lower())
            if known is not None:
                found[known] = (*found.get(known, ()), value.decode("latin-1").strip(" \t"))
        return cls(job_id, **found)


_HEADERS: Final = {
    b"authorization": "authorization",
    b"x-callback-token": "x_callback_token",
    b"x-kohakku-signature": "x_kohakku_signature",
    b"webhook-id": "webhook_id",
    b"webhook-timestamp": "webhook_timestamp",
    b"webhook-signature": "webhook_signature",
}


@dataclass(frozen=True, slots=True)
class Expected:
    """What a job's callbacks must prove."""

    token_hash: str
    signing_keys: tuple[str, ...] = field(default=(), repr=False)
    signing: Signing = "off"


class Dialect(Protocol):
    name: str
    spills: tuple[Spill, ...]
    """The strings of its bodies that may be huge."""

    def authenticate(self, claim: Claim, expected: Expected) -> None:
        """Raises unless the claim carries the job's token."""
        ...

    def signature(self, claim: Claim, expected: Expected, *, now: float) -> Signature:
        """Checks the body's signature while the body arrives. *now* is in seconds since 1970."""
        ...

    def read(self, value: Any, folder: Path | None = None) -> Outcome:
        """What a body says. Raises BadRequest. Texts that are still strings become files in *folder*."""
        ...

    def outcome_hash(self, value: Any) -> str | None:
        """Identifies a terminal report, however it is spelled. None: by the bytes of the body."""
        ...

    def reply(self, report: Outcome, job_id: UUID, *, cancel_requested: bool = False) -> dict[str, Any]:
        """The body of our 200."""
        ...

    def refusal(self, error: DocmillError) -> dict[str, Any] | None:
        """The body for an error, if the dialect has a form of its own for it."""
        ...


def is_token(given: str | None, expected: Expected) -> bool:
    """Compares digests, and takes as long without a token as with one."""
    same = compare_digest(digest(given or "").encode(), expected.token_hash.encode("utf-8", "surrogatepass"))
    return same and given is not None


def bearer(claim: Claim) -> str | None:
    """The one bearer token of the claim. Two headers are none: a proxy may have looked at the other one."""
    if len(claim.authorization) != 1:
        return None
    match = _BEARER.fullmatch(claim.authorization[0])
    return match[1] if match else None


def header_token(claim: Claim) -> str | None:
    if len(claim.x_callback_token) != 1:
        return None
    match = _TOKEN.fullmatch(claim.x_callback_token[0])
    return match[0] if match else None


def pretend(dialect: Dialect, claim: Claim) -> None:
    """For a job that does not exist: spend the time that looking at its token would have taken."""
    try:
        dialect.authenticate(claim, NOBODY)
    except (Unauthorized, Forbidden):
        return


NOBODY: Final = Expected(digest(new_token()))


class Signature:
    """Checks a body's signature while the body arrives. Every active key is tried; no input makes it fail otherwise.

    With `both`, either form will do, and whichever form is there must be right.
    """

    def __init__(
        self, claim: Claim, expected: Expected, *, now: float, refusal: type[Unauthorized] | type[Forbidden] = Forbidden
    ) -> None:
        self._refusal = refusal
        self._forms: list[_Form] = []
        if expected.signing in ("legacy", "both") and claim.x_kohakku_signature:
            self._forms.append(_legacy(claim, expected.signing_keys))
        if expected.signing in ("standard", "both") and _is_standard(claim):
            self._forms.append(_standard(claim, expected.signing_keys, now))
        self._needed = expected.signing != "off"

    @property
    def hopeless(self) -> bool:
        """No body can make it right: refuse before reading it."""
        return self._needed and not (self._forms and all(form.given and form.macs for form in self._forms))

    def update(self, chunk: bytes) -> None:
        for form in self._forms:
            for mac in form.macs:
                mac.update(chunk)

    def check(self) -> None:
        if self.hopeless or not all(form.is_right() for form in self._forms):
            raise self._refusal("callback_signature_invalid")


@dataclass(frozen=True, slots=True)
class _Form:
    """Signatures that were given, and the authentication codes of which one must be among them."""

    given: tuple[str, ...]
    macs: tuple[hmac.HMAC, ...] = ()
    as_hex: bool = False

    def is_right(self) -> bool:
        right = False
        for mac in self.macs:
            code = mac.hexdigest().encode() if self.as_hex else b64encode(mac.digest())
            for given in self.given:
                right |= compare_digest(code, given.encode("utf-8", "surrogatepass"))
        return right


def legacy_mac(key: str, job_id: UUID) -> hmac.HMAC:
    """For `X-Kohakku-Signature: sha256=<hex>`: update it with the body."""
    return hmac.new(key.encode(), f"{job_id}:".encode(), sha256)


def standard_mac(key: str, message_id: str, timestamp: str) -> hmac.HMAC:
    """For `webhook-signature: v1,<base64>`: update it with the body. A key `whsec_…` is base64, any other is itself."""
    return hmac.new(_secret(key), f"{message_id}.{timestamp}.".encode(), sha256)


def _legacy(claim: Claim, keys: tuple[str, ...]) -> _Form:
    header = claim.x_kohakku_signature
    if len(header) != 1 or not header[0].startswith("sha256="):
        return _Form(())
    macs = tuple(legacy_mac(key, claim.job_id) for key in keys if key)
    return _Form((header[0].removeprefix("sha256="),), macs, as_hex=True)


def _is_standard(claim: Claim) -> bool:
    return bool(claim.webhook_id or claim.webhook_timestamp or claim.webhook_signature)


def _standard(claim: Claim, keys: tuple[str, ...], now: float) -> _Form:
    if not 1 == len(claim.webhook_id) == len(claim.webhook_timestamp) == len(claim.webhook_signature):
        return _Form(())
    message_id, timestamp = claim.webhook_id[0], claim.webhook_timestamp[0]
    if not (_MESSAGE_ID.fullmatch(message_id) and _SECONDS.fullmatch(timestamp)):
        return _Form(())
    if abs(now - int(timestamp)) > TOLERANCE_S:
        return _Form(())
    versions = [entry.partition(",") for entry in claim.webhook_signature[0].split(" ")]
    given = tuple(code for version, comma, code in versions if version == "v1" and comma)
    macs = tuple(standard_mac(key, message_id, timestamp) for key in keys if _usable(key))
    return _Form(given if len(given) <= _MAX_SIGNATURES else (), macs)


def _secret(key: str) -> bytes:
    if not key.startswith("whsec_"):
        return key.encode()
    return pybase64.b64decode(key.removeprefix("whsec_"), validate=True)


def _usable(key: str) -> bool:
    """A key that says nothing would let anybody sign."""
    try:
        return bool(_secret(key))
    except ValueError:
        return False


def worker_failed(why: str, restarted: bool, details: dict[str, Any], error: WorkerError | None) -> Failed:
    """A worker that was restarted counts as one that did not answer: the document had no part in it."""
    fault = Fault("worker_failed", why, WIRE_STAGE[Stage.PARSE], error)
    if restarted:
        return Failed(fault, retryable=True, tries=MAX_ABSENCES, details=details)
    return Failed(fault, details=details)


def worker_error(code: str | None, message: str, details: Any) -> WorkerError | None:
    """What the worker said of its error; None if it said nothing."""
    shown = kept_small(details, MAX_SHOWN_DETAILS_BYTES) if details is not None else None
    return WorkerError(code, message, shown) if code or message or shown is not None else None


def kept_small(value: Any, limit: int = MAX_DETAILS) -> Any:
    """A worker's own details without what we never keep; too many of them become their size."""
    size = len(msgspec.json.encode(value))
    return _without_secrets(value) if size <= limit else {"left_out_bytes": size}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(inner) for key, inner in value.items() if not _SECRET.fullmatch(key)}
    return [_without_secrets(inner) for inner in value] if isinstance(value, list) else value
