"""The two doors for callbacks of external workers. Bare ASGI: a worker reports often, and its final may be huge.

The order of the checks: rate and size, lookup, token, signature, payload, state. Whoever fails one learns nothing of
the next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid4

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from docmill.core.errors import (
    BadRequest,
    Conflict,
    DocmillError,
    Forbidden,
    Invalid,
    NotFound,
    StageFailed,
    TooLarge,
    TooMany,
    Unauthorized,
    Unavailable,
    unwrap,
)
from docmill.core.machine import Change, Verdict
from docmill.core.reports import Cancelled, Failed, Final, Progress
from docmill.core.task import Attempt, State, Task
from docmill.dialects.base import Claim, Dialect, Expected, Outcome, Signing, pretend
from docmill.dialects.body import Body
from docmill.dialects.dispatcher import Dispatcher
from docmill.dialects.secretary import Secretary
from docmill.dialects.spill import Spill
from docmill.dialects.spill import read as read_spilled
from docmill.http.errors import answer, retry_after, unexpected
from docmill.http.limits import Drain
from docmill.http.metrics import Metrics
from docmill.http.peers import Network, bucket_of, peer_of
from docmill.http.wire import Json, check_json, encode
from docmill.ports import Delivery, Ports
from docmill.work import jobs
from docmill.work.finish import finish
from docmill.work.receive import receive as take

log = structlog.get_logger("docmill.callbacks")

MINUTE_S = 60.0
PER_MINUTE = 100
PROGRESS_PER_MINUTE = 1200
OFF_LOOP_BYTES = 512 * 1024
"""Above this the body is read in a thread, so that other requests go on."""
SMALL_BYTES = 64 * 1024
"""Up to this a body stays in memory."""
IDLE_S = 30.0
"""A body that stops arriving for so long is given up."""
SECRETARY = "/api/external/jobs/"
DISPATCHER = "/api/v1/tasks/"
CALLBACK = "/callback"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
FINE = [
    (b"content-type", b"application/json"),
    *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()),
]
NO_JOB = UUID(int=0)


@dataclass(frozen=True, slots=True)
class CallbackOptions:
    signing_keys: tuple[str, ...] = ()
    """Of dispatchers; every active one counts."""
    trusted_proxies: tuple[Network, ...] = ()
    max_final_bytes: int = 1024**3
    max_report_bytes: int = 1024**2

    @property
    def signing(self) -> Signing:
        return "both" if self.signing_keys else "off"


Reply = tuple[Message, Message]
"""What is sent back: the head and the body."""


@dataclass(slots=True)
class _Call:
    """One callback on its way through the checks."""

    job_id: UUID | None
    """None: the path names no job."""
    scope: Scope
    proxies: tuple[Network, ...]
    attempt: Attempt | None = None
    kind: str = "unread"
    raw: bytes = b""
    """The whole body, if it is small."""
    streamed_bytes: int = 0
    streamed_hash: str = ""
    outcome: str | None = None
    """Identifies what a terminal report says, if the dialect has its own way for that."""
    reason: str | None = None

    @property
    def peer(self) -> str:
        return bucket_of(peer_of(self.scope, self.proxies))

    @property
    def size(self) -> int:
        return self.streamed_bytes or len(self.raw)

    @property
    def hash(self) -> str:
        return self.streamed_hash or (sha256(self.raw).hexdigest() if self.raw else "")

    @property
    def outcome_hash(self) -> str:
        return self.outcome or self.hash

    @property
    def declared(self) -> int | None:
        """The body's size, if the caller says it."""
        for name, value in self.scope["headers"]:
            if name == b"content-length":
                return int(value) if value.isdigit() else None
        return None


class CallbackDoor:
    """One dialect's door."""

    def __init__(self, dialect: Dialect, ports: Ports, options: CallbackOptions) -> None:
        self._dialect = dialect
        self._ports = ports
        self._options = options
        is_dispatcher = dialect.name == "dispatcher"
        self._limit = options.max_report_bytes if is_dispatcher else options.max_final_bytes
        self._counts_every_request = is_dispatcher
        self._keys = options.signing_keys if is_dispatcher else ()

    @property
    def name(self) -> str:
        return self._dialect.name

    async def take(self, job: str, scope: Scope, receive: Receive, send: Send) -> int:
        """Receive one callback and answer it; the status of the answer."""
        call = _Call(_uuid(job), scope, self._options.trusted_proxies)
        try:
            reply = await self._judge(call, receive)
            if call.kind != "progress" or call.reason is not None:
                await self._keep(call, 200)
        except ClientDisconnect:
            return 499
        except Exception as error:
            fault = unwrap(error)
            if isinstance(fault, OSError):
                fault = StageFailed("storage_failed", why=type(fault).__name__)
            if not isinstance(fault, DocmillError):
                raise
            return await self._refuse(call, fault, scope, receive, send)
        head, body = reply
        await send(head)
        await send(body)
        return 200

    async def _judge(self, call: _Call, receive: Receive) -> Reply:
        if self._counts_every_request:
            await self._count(f"callback:{call.peer}", PER_MINUTE)
        declared = call.declared
        if declared is not None and declared > self._limit:
            raise TooLarge("body_too_large", limit=self._limit)
        claim = Claim.of(call.job_id or NO_JOB, call.scope["headers"])
        attempt = await self._admit(call, claim)
        # A dialect without huge texts has small bodies only: its limit keeps them in memory.
        if self._dialect.spills and (declared is None or declared > SMALL_BYTES):
            return await self._judge_large(call, claim, attempt, receive)
        return await self._judge_small(call, claim, attempt, receive)

    async def _judge_large(self, call: _Call, claim: Claim, attempt: Attempt, receive: Receive) -> Reply:
        # Loaded blocks of a huge body are files; they go with the folder, whatever happens.
        with self._folder() as name:
            value = await self._read(call, claim, attempt, receive, Path(name), self._dialect.spills)
            return await self._apply(call, claim, attempt, self._dialect.read(value, Path(name)))

    async def _judge_small(self, call: _Call, claim: Claim, attempt: Attempt, receive: Receive) -> Reply:
        raw = await self._receive_small(call, claim, self._expected(attempt), receive)
        try:
            value = await _read_small(raw)
            call.outcome = self._dialect.outcome_hash(value)
        except BadRequest:
            if not self._dialect.spills:
                raise
            value = None
        # Only `data` can hold texts that become files.
        if value is not None and not (isinstance(value, dict) and value.get("data")):
            return await self._apply(call, claim, attempt, self._dialect.read(value))
        with self._folder() as name:
            if value is None:
                # The texts of a document may hold NUL and lone surrogates; the streaming reader removes them.
                value = read_spilled(raw, Path(name), self._dialect.spills)
            return await self._apply(call, claim, attempt, self._dialect.read(value, Path(name)))

    def _folder(self) -> TemporaryDirectory[str]:
        return TemporaryDirectory(dir=self._ports.scratch, prefix="callback-")

    async def _admit(self, call: _Call, claim: Claim) -> Attempt:
        try:
            if call.job_id is None:
                raise NotFound("job_not_found", job="of this name")
            attempt = await jobs.find_attempt(self._ports, call.job_id)
            if attempt.dialect != self._dialect.name:
                raise NotFound("job_not_found", job=attempt.id)
        except NotFound:
            pretend(self._dialect, claim)
            if not self._counts_every_request:
                await self._count(f"unknown-job:{call.peer}", PER_MINUTE)
            raise
        call.attempt = attempt
        await self._authenticate(call, claim, self._expected(attempt))
        return attempt

    async def _authenticate(self, call: _Call, claim: Claim, expected: Expected) -> None:
        try:
            self._dialect.authenticate(claim, expected)
        except DocmillError:
            if not self._counts_every_request:
                await self._count(f"bad-token:{call.peer}", PER_MINUTE)
            raise

    async def _receive_small(self, call: _Call, claim: Claim, expected: Expected, receive: Receive) -> bytes:
        """A body that fits into memory, once its signature is right."""
        signature = None
        if expected.signing != "off":
            signature = self._dialect.signature(claim, expected, now=time.time())
            if signature.hopeless:
                signature.check()
        call.raw = raw = await _whole(receive, self._limit)
        if signature is not None:
            signature.update(raw)
            signature.check()
        return raw

    async def _read(
        self,
        call: _Call,
        claim: Claim,
        attempt: Attempt,
        receive: Receive,
        folder: Path,
        spills: tuple[Spill, ...],
    ) -> dict[str, Any]:
        signature = self._dialect.signature(claim, self._expected(attempt), now=time.time())
        if signature.hopeless:
            signature.check()
        body = Body(signature, folder, spills)
        hashed = sha256()

        def feed(chunk: bytes) -> None:
            hashed.update(chunk)
            body.feed(chunk)

        try:
            async for chunk in _chunks(receive):
                call.streamed_bytes += len(chunk)
                if call.streamed_bytes > self._limit:
                    raise TooLarge("body_too_large", limit=self._limit)
                if call.streamed_bytes > OFF_LOOP_BYTES:
                    await asyncio.to_thread(feed, chunk)
                else:
                    feed(chunk)
        except BaseException:
            body.discard()
            raise
        call.streamed_hash = hashed.hexdigest()
        return body.close()

    async def _apply(self, call: _Call, claim: Claim, attempt: Attempt, report: Outcome) -> Reply:
        call.kind = _kind(report)
        if isinstance(report, Progress) or (isinstance(report, Failed) and not report.is_final):
            # Workers send one of the latter for each error line of their log.
            await self._count(f"progress:{attempt.id}", PROGRESS_PER_MINUTE)
        if isinstance(report, Progress):
            return await self._note_progress(call, attempt, report)
        # The body may have arrived slowly: whatever ends a job is judged by how the job stands now.
        task, attempt = await jobs.find(self._ports, attempt.id)
        await self._authenticate(call, claim, self._expected(attempt))
        change = await self._end(call, task, attempt, report)
        call.reason = self._too_late(change, attempt, report)
        return _reply(self._dialect.reply(report, attempt.id))

    async def _note_progress(self, call: _Call, attempt: Attempt, report: Progress) -> Reply:
        try:
            change = await take(self._ports, attempt.task_id, attempt.id, report, token_hash=attempt.token_hash)
        except NotFound as error:  # the task was deleted meanwhile
            raise NotFound("job_not_found", job=attempt.id) from error
        if change.verdict is Verdict.REPLACED:
            raise Unauthorized("callback_token_invalid")
        if change.verdict is not Verdict.APPLIED:
            call.reason = "ignored: the job is over"
        is_dropped = change.verdict is Verdict.SUPERSEDED
        return _reply(self._dialect.reply(report, attempt.id, cancel_requested=is_dropped))

    async def _end(self, call: _Call, task: Task, attempt: Attempt, report: Final | Failed | Cancelled) -> Change:
        with self._ports.tracer.span("callback", parent=task.wishes.trace, task=task.id, kind=call.kind):
            return await self._end_traced(call, task, attempt, report)

    async def _end_traced(
        self, call: _Call, task: Task, attempt: Attempt, report: Final | Failed | Cancelled
    ) -> Change:
        if isinstance(report, Final) and attempt.state is State.HANDED_OVER:
            return await finish(self._ports, task, attempt, report, outcome_hash=call.outcome_hash)
        if isinstance(report, Final):
            # Over already: only the ledger's word on it is needed, not the contents.
            same = attempt.has_ended and attempt.outcome_hash == call.outcome_hash
            verdict = Verdict.DUPLICATE if same else Verdict.CONFLICT if attempt.has_ended else Verdict.SUPERSEDED
            return Change(verdict, task)
        return await take(
            self._ports, task.id, attempt.id, report, token_hash=attempt.token_hash, outcome_hash=call.outcome_hash
        )

    def _too_late(self, change: Change, attempt: Attempt, report: Outcome) -> str | None:
        """Why a report had no effect. Dispatchers are told with 409, secretaries know no such answer."""
        if change.verdict is Verdict.APPLIED:
            return None
        if change.verdict is Verdict.DUPLICATE:
            return "duplicate"
        if change.verdict is Verdict.REPLACED:
            raise Unauthorized("callback_token_invalid")
        agreed = isinstance(report, Cancelled) and attempt.state is State.DROPPED
        if self._dialect.name == "dispatcher" and not agreed:
            raise Conflict("callback_conflict")
        return f"ignored: {change.verdict.value}"

    def _expected(self, attempt: Attempt) -> Expected:
        return Expected(attempt.token_hash or "", self._keys, self._options.signing if self._keys else "off")

    async def _count(self, bucket: str, limit: int) -> None:
        if self._ports.limiter is None:
            return
        wait = await self._ports.limiter.hit(bucket, limit=limit, window_s=MINUTE_S)
        if wait is not None:
            raise TooMany("rate_limited", retry_after=max(1, round(wait)))

    async def _keep(self, call: _Call, status: int) -> None:
        """A line for the people who look at the job. Progress that counted has its line in the task's log."""
        if call.attempt is None:
            return
        line = Delivery(call.kind, status, call.reason, call.hash, call.size)
        try:
            await self._ports.ledger.record_delivery(call.attempt, line)
        except DocmillError as error:
            log.warning("delivery_not_kept", job=str(call.job_id), code=error.code)

    async def _refuse(self, call: _Call, error: DocmillError, scope: Scope, receive: Receive, send: Send) -> int:
        scope.setdefault("state", {})["request_id"] = uuid4().hex
        if error.status == Invalid.status:
            # Workers know 400 for a payload that they have to correct, and no 422.
            error = BadRequest(error.code, **error.facts)
        call.reason = f"{error.code}: {error.message}"[:500]
        # A stranger must not tell a job that exists by the time that its line takes: the answer goes first.
        is_stranger = isinstance(error, Unauthorized | Forbidden)
        if error.status != 429 and not is_stranger:
            await self._keep(call, error.status)
        log.info("callback_refused", job=str(call.job_id), code=error.code, status=error.status, peer=call.peer)
        own = self._dialect.refusal(error)
        if own is None:
            await answer(scope, error, HEADERS)(scope, receive, send)
        else:
            await Json(own, status_code=error.status, headers=HEADERS | retry_after(error))(scope, receive, send)
        if is_stranger:
            await self._keep(call, error.status)
        return error.status


class CallbackFront:
    """Stands before everything else: workers report more often than all other callers together.

    What the layers behind it do for other requests (routing, host names, an access log of every line) is not needed
    here, and cost several times the report itself. Refusals are logged, all are counted.
    """

    def __init__(self, *, ports: Ports, options: CallbackOptions, drain: Drain, metrics: Metrics) -> None:
        self._drain = drain
        self._metrics = metrics
        self._secretary = CallbackDoor(Secretary(), ports, options)
        self._dispatcher = CallbackDoor(Dispatcher(), ports, options)

    async def take(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer a callback. False: it is none."""
        found = self._door(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is None:
            return False
        door, job = found
        self._metrics.began()
        began = time.perf_counter()
        try:
            if self._drain.begun:
                status = 503
                scope.setdefault("state", {})["request_id"] = uuid4().hex
                await answer(scope, Unavailable("shutting_down"))(scope, receive, send)
            else:
                status = await door.take(job, scope, receive, send)
        except Exception as error:
            status = 500
            scope.setdefault("state", {})["request_id"] = uuid4().hex
            await unexpected(error, scope)(scope, receive, send)
        self._metrics.ended(f"callback/{door.name}", "POST", status, time.perf_counter() - began)
        return True

    def _door(self, path: str) -> tuple[CallbackDoor, str] | None:
        if path.startswith(SECRETARY) and "/" not in (job := path[len(SECRETARY) :]):
            return self._secretary, job
        if path.startswith(DISPATCHER) and (job := path[len(DISPATCHER) :].rstrip("/")).endswith(CALLBACK):
            return self._dispatcher, job.removesuffix(CALLBACK)
        return None


async def _read_small(raw: bytes) -> Any:
    """A body that is all here is read at once: as strict as the streaming reader, and cheaper."""
    try:
        return check_json(raw) if len(raw) <= SMALL_BYTES else await asyncio.to_thread(check_json, raw)
    except DocmillError as error:
        raise BadRequest("callback_payload_invalid", why=str(error.facts["why"])) from error


def _reply(value: dict[str, Any]) -> Reply:
    body = encode(value)
    headers = [*FINE, (b"content-length", str(len(body)).encode())]
    head = {"type": "http.response.start", "status": 200, "headers": headers}
    return head, {"type": "http.response.body", "body": body}


def _uuid(text: str) -> UUID | None:
    try:
        found = UUID(text)
    except ValueError:
        return None
    # Only the usual spelling: the signature covers the id as it stands in the path.
    return found if str(found) == text.lower() else None


def _kind(report: Outcome) -> str:
    match report:
        case Progress():
            return "progress"
        case Final():
            return "final"
        case Cancelled():
            return "cancelled"
        case _:
            return "failed"


async def _next_message(receive: Receive) -> Message:
    try:
        async with asyncio.timeout(IDLE_S):
            return await receive()
    except TimeoutError:
        raise BadRequest("request_invalid", why="the body stopped arriving.") from None


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await _next_message(receive)
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if chunk := message.get("body"):
            yield chunk
        if not message.get("more_body"):
            return


async def _whole(receive: Receive, limit: int) -> bytes:
    message = await _next_message(receive)
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")  # nearly always: a small body arrives with its head
        return body
    messages = [message]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    whole = bytearray()
    async for chunk in _chunks(next_message):
        whole += chunk
        if len(whole) > limit:
            raise TooLarge("body_too_large", limit=limit)
    return bytes(whole)
