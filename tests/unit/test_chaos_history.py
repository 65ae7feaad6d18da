"""The checker of the chaos runs finds each violation that it is there for, and nothing in a history that is right."""

from dataclasses import replace

import pytest

from bench.chaos.history import (
    Expected,
    Final,
    History,
    Line,
    Message,
    Reading,
    Received,
    Record,
    StoredBytes,
    Stream,
    Twin,
    check,
)

MARKER = "marker000000000001"


def log(*kinds: str, start: int = 1) -> tuple[Line, ...]:
    """Lines from words like `progress:30`, `stage_succeeded:parse` and `retried:mineru`."""
    lines = []
    for seq, word in enumerate(kinds, start):
        kind, _, value = word.partition(":")
        name = {"progress": "progress", "stage_succeeded": "stage", "retried": "from_stage"}.get(kind)
        data = {name: int(value) if name == "progress" else value} if name else {}
        lines.append(Line(seq, kind, data))
    return tuple(lines)


STAGES = ("stage_succeeded:parse", "stage_succeeded:postprocess", "stage_succeeded:publish")
GOOD = log("submitted", "started", "progress:20", "progress:40", *STAGES, "completed")
RETRIED = log(*(line for line in ("submitted", *STAGES, "completed")), "retried:postprocess", *STAGES[1:], "completed")
TWIN = Twin({"_a/a.md": "1", "_a/p.png": "2"}, ("2",), has_marker=True, tags=frozenset({"report-1"}))
FINAL = Final("job-1", "report-1", ("2",), answers=(200,))


def good() -> History:
    """An external job with everything: watched, read, mounted, with a twin and a webhook."""
    record = Record(
        7,
        Expected(MARKER, is_external=True, is_mounted=True, has_twin=True),
        "completed",
        GOOD,
        job_id="job-1",
        tags=frozenset({"report-1"}),
        stored=(StoredBytes("document", 200, "a", "a"), StoredBytes("asset", 200, "2", "2")),
        pictures=("2",),
        mounts=1,
        packed_twin=TWIN,
        library_twin=TWIN,
    )
    return History(
        records=[record],
        streams=[Stream(7, GOOD, True, connections=3)],
        readings={7: [Reading(1, "pending", 0), Reading(1, "mineru_parsing", 30), Reading(1, "completed", 100)]},
        finals=[
            FINAL,
            Final("job-1", "report-2", ("3",), answers=(200,)),
            Final("job-1", "report-3", fails=True, answers=(409,)),
        ],
        messages=[Message("msg_1", 7, "task.completed", "delivered")],
        received=[Received("msg_1", accepted=2)],
        listed=[(7, f"{MARKER}.txt")],
    )


def with_record(**changes: object) -> History:
    history = good()
    history.records = [replace(history.records[0], **changes)]  # type: ignore[arg-type]
    return history


def with_log(lines: tuple[Line, ...]) -> History:
    """The log alone: streams and webhooks would find the difference, too."""
    history = with_record(log=lines)
    history.streams, history.messages = [], None
    return history


def with_stream(*lines: Line, has_ended: bool = True) -> History:
    history = good()
    history.streams = [Stream(7, lines, has_ended, connections=2)]
    return history


def with_readings(*readings: Reading) -> History:
    history = good()
    history.readings = {7: list(readings)}
    return history


def with_webhook(messages: list[Message], received: list[Received]) -> History:
    history = good()
    history.messages, history.received = messages, received
    return history


def with_final(**changes: object) -> History:
    history = good()
    history.finals[0] = replace(FINAL, **changes)  # type: ignore[arg-type]
    return history


def with_list(*listed: tuple[int, str]) -> History:
    history = good()
    history.listed = list(listed)
    return history


def with_expected(**changes: object) -> History:
    return with_record(expected=replace(good().records[0].expected, **changes))  # type: ignore[arg-type]


DELIVERED = Message("msg_1", 7, "task.completed", "delivered")
OTHER_TWIN = replace(TWIN, files={**TWIN.files, "_a/a.md": "other"})

VIOLATIONS = {
    "unknown task": (with_record(status=None), "lost", "unknown"),
    "task without an end": (with_record(status="pending"), "stuck", "pending"),
    "end that nobody asked for": (with_record(status="cancelled"), "wrong", "cancelled instead of completed"),
    "result of another document": (with_record(has_marker=False), "wrong", "another document"),
    "read that failed": (with_record(problem="document 503"), "unreadable", "503"),
    "retry that was confirmed and is missing": (
        with_expected(retries_sent=1, retries_confirmed=1), "lost", "0 retries in the log"),
    "retry that nobody sent": (with_log(RETRIED), "doubled", "1 retries in the log"),
    "gap in the log": (with_log((*GOOD[:3], *GOOD[4:])), "wrong", "gaps"),
    "two ends in one run": (with_log(log("submitted", *STAGES, "completed", "failed")), "doubled", "ends"),
    "event after the end": (with_log(log("submitted", *STAGES, "completed", "progress:99")), "wrong", "after its end"),
    "run without an end": (with_log(log("submitted", *STAGES)), "stuck", "without an end"),
    "stage twice": (
        with_log(log("submitted", STAGES[0], *STAGES, "completed")), "doubled", "stages"),
    "stages out of order": (
        with_log(log("submitted", STAGES[1], STAGES[0], STAGES[2], "completed")), "wrong", "stages"),
    "completed without a stage": (with_log(log("submitted", *STAGES[:2], "completed")), "wrong", "completed after"),
    "progress that falls": (
        with_log(log("submitted", "progress:40", "progress:20", *STAGES, "completed")), "wrong", "went back"),
    "stream with a repeat": (with_stream(*GOOD[:3], *GOOD[2:]), "doubled", "again"),
    "stream that goes back": (with_stream(GOOD[1], GOOD[0], *GOOD[2:]), "wrong", "went back"),
    "stream with a gap": (with_stream(*GOOD[:3], *GOOD[4:]), "lost", "gap"),
    "stream with another event": (
        with_stream(*GOOD[:2], Line(3, "progress", {"progress": 21}), *GOOD[3:]), "wrong", "something else"),
    "stream that ends too early": (with_stream(*GOOD[:4]), "lost", "told the end"),
    "stream without an end": (with_stream(*GOOD[:4], has_ended=False), "stuck", "never saw the end"),
    "end that was taken back": (
        with_readings(Reading(1, "completed", 100), Reading(1, "llm_processing", 100)), "wrong", "llm_processing"),
    "attempt that falls": (with_readings(Reading(2, "pending", 0), Reading(1, "pending", 0)), "wrong", "attempt 1"),
    "reading with less progress": (
        with_readings(Reading(1, "mineru_parsing", 40), Reading(1, "mineru_parsing", 20)), "wrong", "progress 20"),
    "object that is gone": (with_record(stored=(StoredBytes("asset", 404, "2", "x"),)), "unreadable", "404"),
    "object with other bytes": (with_record(stored=(StoredBytes("asset", 200, "2", "x"),)), "unreadable", "SHA-256"),
    "two versions of one run": (with_record(versions=2), "doubled", "2 versions"),
    "mounted twice": (with_record(mounts=2), "doubled", "mounted 2"),
    "mount is missing": (with_record(mounts=0), "lost", "mount is missing"),
    "mount that nobody asked for": (with_expected(is_mounted=False), "wrong", "nobody asked"),
    "twin is not in the folder": (with_record(library_twin=None), "lost", "not in the folder"),
    "twin is of another document": (with_record(packed_twin=replace(TWIN, has_marker=False)), "wrong", "twin is of"),
    "twin with other pictures": (with_record(packed_twin=replace(TWIN, pictures=("9",))), "wrong", "pictures"),
    "twin of another report": (
        with_record(packed_twin=replace(TWIN, tags=frozenset({"report-2"}))), "wrong", "the document of"),
    "folder differs from the archive": (with_record(library_twin=OTHER_TWIN), "wrong", "differs"),
    "twin that counts as edited": (
        with_log(log("submitted", *STAGES, "twin_drift", "completed")), "wrong", "counts as edited"),
    "parts of two reports": (with_record(tags=frozenset({"report-1", "report-2"})), "wrong", "parts of 2 reports"),
    "report of another job": (with_record(job_id="job-2"), "wrong", "not sent for job"),
    "pictures of the losing report": (with_final(pictures=("3",)), "wrong", "pictures"),
    "final answered with 500": (with_final(answers=(500, 200)), "wrong", "was told [500]"),
    "final without an answer": (with_final(answers=()), "stuck", "never answered"),
    "end without a message": (with_webhook([], []), "lost", "without a message"),
    "two messages for one end": (
        with_webhook(
            [DELIVERED, replace(DELIVERED, message_id="msg_2")], [Received("msg_1", 1), Received("msg_2", 1)]),
        "doubled", "too many"),
    "one id for two deliveries": (
        with_webhook([DELIVERED, replace(DELIVERED, kind="task.failed")], [Received("msg_1", 1)]),
        "doubled", "called msg_1"),
    "message that was given up": (
        with_webhook([replace(DELIVERED, state="dead")], [Received("msg_1", 0)]), "stuck", "is dead"),
    "message that never arrived": (with_webhook([DELIVERED], [Received("msg_1", 0)]), "lost", "never arrived"),
    "message that nobody sent": (
        with_webhook([DELIVERED], [Received("msg_1", 1), Received("msg_9", 1)]), "wrong", "no delivery"),
    "message with two bodies": (with_webhook([DELIVERED], [Received("msg_1", 2, bodies=2)]), "wrong", "bodies"),
    "task missing in the list": (with_list(), "lost", "0 times"),
    "two tasks for one submission": (
        with_list((7, f"{MARKER}.txt"), (8, f"{MARKER}.txt")), "doubled", "one submission"),
}  # fmt: skip


def test_a_history_that_is_right_has_no_violation() -> None:
    assert [] == check(good())


def test_a_retry_by_hand_is_a_run_of_its_own() -> None:
    history = with_log(RETRIED)
    [record] = history.records
    history.records = [replace(record, versions=2, expected=replace(record.expected, retries_sent=1))]

    assert [] == check(history)


def test_progress_may_begin_again_after_a_lost_worker() -> None:
    assert [] == check(with_log(log("submitted", "progress:40", "worker_lost", "progress:10", *STAGES, "completed")))


@pytest.mark.parametrize(("history", "fault", "why"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_each_violation_is_found(history: History, fault: str, why: str) -> None:
    found = check(history)

    assert any(one.fault == fault and why in one.why for one in found), found
