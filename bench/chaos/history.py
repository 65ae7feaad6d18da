"""Check a run by what clients saw through the API alone: pure functions over recorded observations.

Each check yields a `Violation` for everything that no correct service could have shown. Nothing here looks into the
database, the object store or a log file. `bench.chaos.collect` records the observations.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

ENDS = frozenset({"completed", "failed", "cancelled"})
AFTER_END = frozenset({"mounted"})
"""Events that a client may cause after a task's end, without a new run."""
NEW_ATTEMPT = frozenset({"worker_lost", "retry_scheduled", "retried"})
"""Events after which progress starts again."""
STAGES = ("parse", "postprocess", "publish")


@dataclass(frozen=True)
class Violation:
    fault: str
    """lost, stuck, doubled, wrong or unreadable."""
    task_id: int
    why: str


@dataclass(frozen=True)
class Line:
    """One event of a task's log, from the JSON list or from a stream."""

    seq: int
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """What one watcher got of a task, over all its connections, in the order of arrival."""

    task_id: int
    lines: tuple[Line, ...]
    has_ended: bool
    """It saw `event: end`."""
    connections: int = 1


@dataclass(frozen=True)
class Reading:
    """A task as `GET /tasks/{id}` showed it. The readings of one task are in the order of one client's clock."""

    attempt: int
    status: str
    progress: int


@dataclass(frozen=True)
class StoredBytes:
    """A document's or asset's bytes as the API served them."""

    name: str
    status: int
    promised_sha256: str
    """The checksum that the document states."""
    sha256: str


@dataclass(frozen=True)
class Final:
    """A final report that the external worker sent, and every answer to it."""

    job_id: str
    tag: str
    """Occurs in the text and in every picture of this report, and in no other report."""
    pictures: tuple[str, ...] = ()
    """SHA-256 of each."""
    fails: bool = False
    answers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Message:
    """A webhook's message as the list of deliveries shows it."""

    message_id: str
    task_id: int
    kind: str
    state: str


@dataclass(frozen=True)
class Received:
    """All copies of one message that arrived at the receiver."""

    message_id: str
    accepted: int
    """Copies that were answered with 200."""
    bodies: int = 1
    """Different bodies among them."""


@dataclass(frozen=True)
class Twin:
    """A twin as files: SHA-256 by path. The manifest is left out."""

    files: Mapping[str, str]
    pictures: tuple[str, ...] = ()
    """SHA-256 of each file that is not Markdown."""
    has_marker: bool = True
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Expected:
    """What the client asked for, and which ends it may see."""

    marker: str
    ends: frozenset[str] = frozenset({"completed"})
    retries_sent: int = 0
    retries_confirmed: int = 0
    is_external: bool = False
    is_mounted: bool = False
    has_twin: bool = False


@dataclass(frozen=True)
class Record:
    """Everything that the API shows of one accepted task after the run."""

    task_id: int
    expected: Expected
    status: str | None
    """None: the task is unknown."""
    log: tuple[Line, ...] = ()
    has_marker: bool = True
    """The result holds the marker of the submitted document."""
    job_id: str | None = None
    tags: frozenset[str] = frozenset()
    """Of final reports: in the result, the text and the pictures."""
    stored: tuple[StoredBytes, ...] = ()
    pictures: tuple[str, ...] = ()
    """SHA-256 of the document's pictures."""
    versions: int = 1
    mounts: int = 0
    """Entries of the table that hold the marker."""
    packed_twin: Twin | None = None
    """GET /tasks/{id}/twin."""
    library_twin: Twin | None = None
    """As it lies in the folder that the task names."""
    problem: str = ""
    """A read that failed, with its answer."""


@dataclass
class History:
    records: list[Record] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    readings: dict[int, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    finals: list[Final] = field(default_factory=list)
    messages: list[Message] | None = None
    """None: there was no webhook."""
    received: list[Received] = field(default_factory=list)
    listed: list[tuple[int, str]] | None = None
    """Id and file name of every task in the list; None: it was not read."""


def check(history: History) -> list[Violation]:
    """All violations, in the order of the checks."""
    found: list[Violation] = []
    logs = {record.task_id: record.log for record in history.records}
    by_job: dict[str, list[Final]] = defaultdict(list)
    for final in history.finals:
        by_job[final.job_id].append(final)
    for record in history.records:
        found += check_outcome(record)
        found += check_log(record.task_id, record.log)
        found += check_bytes(record)
        found += check_mount(record)
        found += check_twin(record)
        found += check_report(record, by_job)
    for stream in history.streams:
        found += check_stream(stream, logs.get(stream.task_id, ()))
    for task_id, readings in history.readings.items():
        found += check_readings(task_id, readings)
    found += check_answers(history.finals)
    if history.messages is not None:
        found += check_webhooks(logs, history.messages, history.received)
    if history.listed is not None:
        found += check_list([record.task_id for record in history.records], history.listed)
    return found


def runs_of(log: Sequence[Line]) -> list[list[Line]]:
    """The log, cut before each retry by hand."""
    runs: list[list[Line]] = [[]]
    for line in log:
        if line.kind == "retried":
            runs.append([])
        runs[-1].append(line)
    return runs


def check_outcome(record: Record) -> Iterator[Violation]:
    """The task is known, has ended, and has ended in a way that its client can expect."""
    if record.status is None:
        yield Violation("lost", record.task_id, record.problem or "accepted, and now unknown")
        return
    if record.status not in ENDS:
        yield Violation("stuck", record.task_id, f"{record.status}: {[line.kind for line in record.log][-4:]}")
        return
    expected = record.expected
    if record.status not in expected.ends:
        wanted = "/".join(sorted(expected.ends))
        yield Violation("wrong", record.task_id, f"{record.status} instead of {wanted}: {_last(record.log)}")
    if record.problem:
        yield Violation("unreadable", record.task_id, record.problem)
    if record.status == "completed" and not record.has_marker:
        yield Violation("wrong", record.task_id, "the result is of another document")
    retries = sum(line.kind == "retried" for line in record.log)
    if not expected.retries_confirmed <= retries <= expected.retries_sent:
        why = f"{retries} retries in the log, {expected.retries_confirmed} confirmed, {expected.retries_sent} sent"
        yield Violation("doubled" if retries > expected.retries_sent else "lost", record.task_id, why)


def check_log(task_id: int, log: Sequence[Line]) -> Iterator[Violation]:
    """Numbers without gaps; per run one end, nothing after it, each stage once and in order; progress only rises."""
    if [line.seq for line in log] != list(range(1, len(log) + 1)):
        yield Violation("wrong", task_id, f"the numbers of its log have gaps: {[line.seq for line in log][:20]}")
    for run in runs_of(log):
        kinds = [line.kind for line in run]
        ends = [kind for kind in kinds if kind in ENDS]
        if len(ends) > 1:
            yield Violation("doubled", task_id, f"ends {ends} in one run")
        elif not ends:
            yield Violation("stuck", task_id, f"a run without an end: {kinds[-4:]}")
        else:
            after = [kind for kind in kinds[kinds.index(ends[0]) + 1 :] if kind not in AFTER_END]
            if after:
                yield Violation("wrong", task_id, f"{after} after its end")
        yield from _check_stages(task_id, run, ends)
    yield from _check_progress(task_id, log)


def _check_stages(task_id: int, run: Sequence[Line], ends: Sequence[str]) -> Iterator[Violation]:
    done = [line.data.get("stage") for line in run if line.kind == "stage_succeeded"]
    first = STAGES.index("postprocess") if _starts_at_postprocess(run) else 0
    if len(set(done)) != len(done):
        yield Violation("doubled", task_id, f"stages {done} in one run")
    elif done != list(STAGES[first : first + len(done)]):
        yield Violation("wrong", task_id, f"stages {done}")
    elif ends[:1] == ["completed"] and done != list(STAGES[first:]):
        yield Violation("wrong", task_id, f"completed after {done}")


def _starts_at_postprocess(run: Sequence[Line]) -> bool:
    return bool(run) and run[0].kind == "retried" and run[0].data.get("from_stage") == "postprocess"


def _check_progress(task_id: int, log: Sequence[Line]) -> Iterator[Violation]:
    reached = 0
    for line in log:
        if line.kind in NEW_ATTEMPT:
            reached = 0
        elif line.kind == "progress":
            progress = int(line.data.get("progress", 0))
            if progress < reached:
                yield Violation("wrong", task_id, f"progress went back from {reached} to {progress} at {line.seq}")
            reached = max(reached, progress)


def check_stream(stream: Stream, log: Sequence[Line]) -> Iterator[Violation]:
    """The stream is the beginning of the log: no gap, no repeat, never back, and it ends with an end of the task."""
    got, numbers = stream.lines, [line.seq for line in stream.lines]
    where = f"watcher with {stream.connections} connections"
    if len(set(numbers)) != len(numbers):
        repeated = [seq for seq, times in Counter(numbers).items() if times > 1]
        yield Violation("doubled", stream.task_id, f"{where} got {repeated[:5]} again")
    elif numbers != sorted(numbers):
        yield Violation("wrong", stream.task_id, f"{where} went back: {numbers}")
    elif numbers != list(range(1, len(numbers) + 1)):
        yield Violation("lost", stream.task_id, f"{where} has a gap: {numbers}")
    elif list(got) != list(log[: len(got)]):
        at = next((n for n, (one, other) in enumerate(zip(got, log, strict=False)) if one != other), len(log))
        yield Violation("wrong", stream.task_id, f"{where} saw something else than the log at {at + 1}")
    elif stream.has_ended and (not got or got[-1].kind not in ENDS | AFTER_END):
        yield Violation("lost", stream.task_id, f"{where} was told the end after {got[-1].kind if got else 'nothing'}")
    elif not stream.has_ended:
        yield Violation("stuck", stream.task_id, f"{where} never saw the end")


def check_readings(task_id: int, readings: Sequence[Reading]) -> Iterator[Violation]:
    """A client that reads one task again and again never sees it go back, whichever process answers.

    The attempt's number never falls; with the same number an end stays as it is and progress only rises. A worker that
    stops in an orderly way gives its attempt back under the same number and with its progress.
    """
    for before, after in pairwise(readings):
        if after.attempt < before.attempt:
            yield Violation("wrong", task_id, f"attempt {after.attempt} was shown after {before.attempt}")
        elif after.attempt == before.attempt and before.status in ENDS and after.status != before.status:
            yield Violation("wrong", task_id, f"{after.status} was shown after {before.status}")
        elif after.attempt == before.attempt and after.progress < before.progress:
            yield Violation("wrong", task_id, f"progress {after.progress} was shown after {before.progress}")


def check_bytes(record: Record) -> Iterator[Violation]:
    """Every stored object can be fetched and is what the document says; one version per completed run at most."""
    for one in record.stored:
        if not 200 <= one.status < 300:
            yield Violation("unreadable", record.task_id, f"{one.name}: {one.status}")
        elif one.sha256 != one.promised_sha256:
            yield Violation("unreadable", record.task_id, f"{one.name}: SHA-256 differs from the document's")
    runs = len(runs_of(record.log))
    if record.status == "completed" and not 1 <= record.versions <= runs:
        yield Violation("doubled", record.task_id, f"{record.versions} versions of the document after {runs} runs")


def check_mount(record: Record) -> Iterator[Violation]:
    """Exactly one entry for a completed task that wanted one, however often its stage ran; else at most one."""
    if not record.expected.is_mounted:
        if record.mounts:
            yield Violation("wrong", record.task_id, "mounted, although nobody asked for it")
    elif record.mounts > 1:
        yield Violation("doubled", record.task_id, f"mounted {record.mounts} times")
    elif record.status == "completed" and record.mounts == 0:
        yield Violation("lost", record.task_id, "its mount is missing")


def check_twin(record: Record) -> Iterator[Violation]:
    """The twin holds the document's text and pictures; the folder holds the same files as the archive."""
    drift = [line for line in record.log if line.kind == "twin_drift"]
    if drift:
        yield Violation("wrong", record.task_id, f"a twin that nobody edited counts as edited: {dict(drift[0].data)}")
    if record.status != "completed" or not record.expected.has_twin:
        return
    packed, written = record.packed_twin, record.library_twin
    if packed is None or written is None:
        which = "archive" if packed is None else "folder"
        yield Violation("lost", record.task_id, f"the twin is not in the {which}")
        return
    if not packed.has_marker:
        yield Violation("wrong", record.task_id, "the twin is of another document")
    if sorted(packed.pictures) != sorted(record.pictures):
        yield Violation("wrong", record.task_id, "the twin's pictures are not the document's")
    if packed.tags != record.tags and record.expected.is_external:
        yield Violation(
            "wrong", record.task_id, f"the twin is of {set(packed.tags)}, the document of {set(record.tags)}"
        )
    if dict(packed.files) != dict(written.files):
        differs = sorted(set(packed.files.items()) ^ set(written.files.items()))
        yield Violation("wrong", record.task_id, f"the folder differs from the archive: {differs[:3]}")


def check_report(record: Record, by_job: Mapping[str, Sequence[Final]]) -> Iterator[Violation]:
    """A completed external job shows exactly one of the reports that its worker sent, and nothing of the others."""
    if not record.expected.is_external or record.status != "completed":
        return
    finals = by_job.get(record.job_id or "", ())
    if len(record.tags) != 1:
        yield Violation("wrong", record.task_id, f"parts of {len(record.tags)} reports: {sorted(record.tags)}")
        return
    [tag] = record.tags
    final = next((one for one in finals if one.tag == tag and not one.fails), None)
    if final is None:
        yield Violation("wrong", record.task_id, f"{tag} was not sent for job {record.job_id}")
    elif sorted(final.pictures) != sorted(record.pictures):
        yield Violation("wrong", record.task_id, f"{len(record.pictures)} pictures instead of {len(final.pictures)}")


def check_answers(finals: Sequence[Final]) -> Iterator[Violation]:
    """A worker is told 200, 409, or that its job is no longer its own; at least once, for it never gives up."""
    for final in finals:
        odd = sorted({status for status in final.answers if status not in (200, 401, 404, 409, 410)})
        if odd:
            yield Violation("wrong", 0, f"the worker of job {final.job_id} was told {odd}")
        if not final.answers:
            yield Violation("stuck", 0, f"the worker of job {final.job_id} was never answered")


def check_webhooks(
    logs: Mapping[int, Sequence[Line]], messages: Sequence[Message], received: Sequence[Received]
) -> Iterator[Violation]:
    """Each end of a task is one message, under one id; it was delivered, and nothing else was."""
    by_task: dict[int, list[Message]] = defaultdict(list)
    for message in messages:
        by_task[message.task_id].append(message)
    for task_id, log in logs.items():
        ends = Counter(f"task.{line.kind}" for line in log if line.kind in ENDS)
        told = Counter(message.kind for message in by_task[task_id])
        for kind, number in (told - ends).items():
            yield Violation("doubled", task_id, f"{number} messages {kind} too many")
        for kind, number in (ends - told).items():
            yield Violation("lost", task_id, f"{number} ends without a message {kind}")
    ids = Counter(message.message_id for message in messages)
    for message_id, number in ids.items():
        if number > 1:
            yield Violation("doubled", 0, f"{number} deliveries are called {message_id}")
    arrived = {one.message_id: one for one in received}
    for message in messages:
        got = arrived.get(message.message_id)
        if message.state != "delivered":
            yield Violation("stuck", message.task_id, f"message {message.message_id} is {message.state}")
        elif got is None or got.accepted == 0:
            yield Violation("lost", message.task_id, f"message {message.message_id} never arrived")
    for one in received:
        if one.message_id not in ids:
            yield Violation("wrong", 0, f"message {one.message_id} arrived, and no delivery has this id")
        if one.bodies > 1:
            yield Violation("wrong", 0, f"message {one.message_id} arrived with {one.bodies} different bodies")


def check_list(accepted: Sequence[int], listed: Sequence[tuple[int, str]]) -> Iterator[Violation]:
    """The list of tasks has each accepted task once, and no two tasks for one submission."""
    ids = Counter(task_id for task_id, _ in listed)
    for task_id in accepted:
        if ids[task_id] != 1:
            yield Violation(
                "doubled" if ids[task_id] else "lost", task_id, f"{ids[task_id]} times in the list of tasks"
            )
    for filename, number in Counter(filename for _, filename in listed).items():
        if number > 1:
            yield Violation("doubled", 0, f"{number} tasks for the one submission of {filename}")


def _last(log: Sequence[Line]) -> str:
    return f"{log[-1].kind} {dict(log[-1].data)}"[:300] if log else "no log"
