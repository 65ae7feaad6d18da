"""The rules of webhooks: what is said, how it is signed, and when it is said again."""

import base64
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Verifier

from docmill.core import webhooks
from docmill.core.errors import Invalid
from docmill.core.task import Fault, Stage, Status, Task
from docmill.core.webhooks import DAY_MS, Answer, Notice, Secret, Sent

NOW_MS = 1_760_000_000_000
WINDOW_MS = 3 * DAY_MS


def a_task(status: Status, **more: Any) -> Task:
    return Task(7, "acme", "anna", 3, "Kündigung Meier.pdf", "k", 1, status, Stage.PUBLISH, 2, None, 1, 1, **more)


def a_notice(*, tries: int = 1, kind: str = "task.completed", queued_ms: int = NOW_MS, round_from: int = 0) -> Notice:
    return Notice(
        1, "msg_1", "wh_1", kind, 7, "{}", Sent.PENDING, tries, round_from, 0, queued_ms, queued_ms, None, None, None
    )


def judged(answer: Answer, notice: Notice, now_ms: int = NOW_MS, luck: float = 0.0) -> webhooks.Outcome:
    return webhooks.judge(answer, notice, now_ms=now_ms, window_ms=WINDOW_MS, luck=luck)


@pytest.mark.parametrize("before", [None, *Status])
@pytest.mark.parametrize("now", list(Status))
def test_only_an_end_is_told(before: Status | None, now: Status) -> None:
    told = webhooks.message_of(a_task(before) if before else None, a_task(now), message_id="msg_1")

    is_end = now.is_final and not (before and before.is_final)
    assert is_end == (told is not None)
    if told:
        assert f"task.{now.value}" == told.kind == told.payload["type"]
        assert told.kind in webhooks.KINDS


def test_a_message_holds_ids_and_states_and_nothing_of_the_document() -> None:
    fault = Fault("document_broken", "page 3 of Kündigung Meier.pdf is broken", "mineru")
    failed = webhooks.message_of(None, a_task(Status.FAILED, fault=fault, document_id=UUID(int=1)), message_id="m")
    done = webhooks.message_of(None, a_task(Status.COMPLETED, document_id=UUID(int=1)), message_id="m")

    assert failed
    assert done
    assert ("document_broken", "mineru", None) == tuple(
        failed.payload["data"][name] for name in ("error_code", "error_stage", "document_id")
    )
    assert str(UUID(int=1)) == done.payload["data"]["document_id"]
    assert "Meier" not in json.dumps([failed.payload, done.payload], ensure_ascii=False)


@given(st.text(min_size=0, max_size=200), st.integers(1, 2))
def test_every_secret_in_force_verifies_with_the_reference_library(text: str, count: int) -> None:
    now_ms = round(datetime.now(UTC).timestamp() * 1000)
    secrets = [Secret(webhooks.new_secret(), None if n == 0 else now_ms + 1000) for n in range(count)]
    body = json.dumps({"text": text}).encode()

    headers = webhooks.headers([*secrets, Secret(webhooks.new_secret(), now_ms - 1)], "msg_1", now_ms, body)

    assert count == len(headers["webhook-signature"].split(" "))
    for secret in secrets:
        assert {"text": text} == Verifier(secret.text).verify(body, headers)


def test_the_example_of_the_specification() -> None:
    secret = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'

    headers = webhooks.headers([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330_999, body)

    assert {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    } == headers


def test_a_secret_is_long_random_and_written_as_the_standard_says() -> None:
    one, other = webhooks.new_secret(), webhooks.new_secret()

    assert one != other
    assert 24 <= len(base64.b64decode(one.removeprefix("whsec_"), validate=True)) <= 64


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_a_success_is_the_end(status: int) -> None:
    assert webhooks.Outcome(Sent.DELIVERED) == judged(Answer(status), a_notice())


@pytest.mark.parametrize("status", [None, 100, 199, 301, 302, 400, 401, 403, 404, 409, 429, 500, 503, 599])
def test_everything_else_is_sent_again(status: int | None) -> None:
    found = judged(Answer(status, "webhook_refused"), a_notice())

    assert (Sent.PENDING, 5_000, False) == (found.state, found.delay_ms, found.disables)


def test_410_disables() -> None:
    assert webhooks.Outcome(Sent.DEAD, disables=True) == judged(Answer(410), a_notice())


@pytest.mark.parametrize("status", [None, 410, 500])
def test_a_test_message_is_sent_once_and_disables_nothing(status: int | None) -> None:
    assert webhooks.Outcome(Sent.DEAD) == judged(Answer(status), a_notice(kind=webhooks.TEST))


@given(st.lists(st.floats(-1, 1), min_size=20, max_size=20), st.integers(0, 5))
def test_a_receiver_that_never_answers_well_is_tried_over_three_days_and_not_longer(
    luck: list[float], round_from: int
) -> None:
    now_ms, waits = NOW_MS, []
    for tries in range(1, 50):
        notice = a_notice(tries=round_from + tries, round_from=round_from)
        found = judged(Answer(500), notice, now_ms, luck[tries % 20])
        if found.state is Sent.DEAD:
            break
        waits.append(found.delay_ms)
        now_ms += found.delay_ms
    assert 2.3 * DAY_MS < sum(waits) <= WINDOW_MS
    assert 12 <= len(waits) <= 13
    assert waits[0] <= 5_500
    assert waits == sorted(waits) or max(waits) <= 1.25 * waits[-1]


@pytest.mark.parametrize(("asked_s", "wait_ms"), [(0, 5_000), (1, 5_000), (60, 60_000), (10**9, 12 * 3600 * 1000)])
def test_retry_after_is_heard_within_reason(asked_s: float, wait_ms: int) -> None:
    assert wait_ms == judged(Answer(429, retry_after_s=asked_s), a_notice()).delay_ms


def test_retry_after_does_not_outlast_three_days() -> None:
    late = NOW_MS + WINDOW_MS - 3600 * 1000
    assert Sent.DEAD is judged(Answer(503, retry_after_s=7200), a_notice(), late).state


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("Wed, 21 Oct 2015 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2015 07:00:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:30", 30.0),
        ("9" * 400, 999_999_999.0),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("", None),
        (None, None),
        ("Wed, 99 Oct 2015 07:28:30 GMT", None),
    ],
)
def test_the_header_retry_after(text: str | None, seconds: float | None) -> None:
    assert seconds == webhooks.retry_after(text, datetime(2015, 10, 21, 7, 28, tzinfo=UTC))


def test_rotating_keeps_one_old_secret_and_drops_what_ran_out() -> None:
    secrets = (Secret("b"), Secret("a", NOW_MS - 1))

    assert (Secret("c"), Secret("b", NOW_MS + 10)) == webhooks.rotated(secrets, "c", now_ms=NOW_MS, overlap_ms=10)
    assert (Secret("c"),) == webhooks.rotated(secrets, "c", now_ms=NOW_MS, overlap_ms=0)


def test_kinds_are_known_ones_each_once() -> None:
    assert ("task.completed", "task.failed") == webhooks.checked_kinds(["task.failed", "task.completed", "task.failed"])
    assert () == webhooks.checked_kinds([])
    with pytest.raises(Invalid) as refused:
        webhooks.checked_kinds(["task.completed", "*"])
    assert "webhook_kind_unknown" == refused.value.code
