"""A receiver that fails in every way gets each message at least once, always under the same id."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from standardwebhooks import Webhook, WebhookVerificationError

from docmill.cli.group import root
from support.receiver import Heard, Receiver, Say
from support.serving import Etl, Mode, Service

HOOKS = "/api/v1/webhooks"
TIMEOUT_S = 0.6
FAILURES = (
    Say(500),
    Say(delay=TIMEOUT_S + 0.4),  # too slow: it has the message, and gets it again
    Say(302, headers={"Location": "/elsewhere"}),
    Say(reset=True),
    Say(400, {"error": "cannot read it"}),
    Say(307, headers={"Location": "http://169.254.169.254/latest/meta-data/"}),
    Say(429, headers={"Retry-After": "1"}),
    Say(503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    Say(404, deaf=True),
)


@dataclass
class Post:
    """The office: a service, whoever talks to it, and receivers."""

    service: Service
    http: httpx2.Client
    receivers: list[Receiver]

    @property
    def etl(self) -> Etl:
        return Etl(self.http)

    def webhook(self, receiver: Receiver, path: str = "/in", *events: str) -> dict[str, Any]:
        answer = self.http.post(HOOKS, json={"url": receiver.url + path, "events": list(events)})
        assert 201 == answer.status_code, answer.text
        return answer.json()

    def deliveries(self, **where: Any) -> list[dict[str, Any]]:
        answer = self.http.get(f"{HOOKS}/deliveries", params=where)
        assert 200 == answer.status_code, answer.text
        return answer.json()["deliveries"]

    def settled(self, webhook: dict[str, Any], state: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until so many deliveries are in this state."""
        ends = time.monotonic() + 60
        while len(found := self.deliveries(webhook_id=webhook["id"], state=state)) < count:
            assert time.monotonic() < ends, self.deliveries(webhook_id=webhook["id"])
            time.sleep(0.1)
        return found


def settings(receivers: list[Receiver], *, timeout: float = TIMEOUT_S) -> dict[str, str]:
    """Three days shrink to half a minute, so that the waits between tries are milliseconds."""
    ports = [int(receiver.url.rsplit(":", 1)[1]) for receiver in receivers]
    return {
        "DOCMILL_WEBHOOK_NETWORKS": '["127.0.0.1/32"]',
        "DOCMILL_WEBHOOK_PORTS": str(ports),
        "DOCMILL_WEBHOOK_TIMEOUT": str(timeout),
        "DOCMILL_WEBHOOK_DAYS": str(30 / 86400),
        "DOCMILL_SWEEP": "0.1",
    }


@pytest.fixture(scope="module")
def post(mode: Mode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Post]:
    data = tmp_path_factory.mktemp("post") / "data"
    with Receiver() as one, Receiver() as two:
        receivers = [one, two]
        with mode.serve(data, "--jobs", "1", workers=2, **settings(receivers)) as service, service.client() as client:
            yield Post(service, client, receivers)


@pytest.fixture
def receiver(post: Post) -> Receiver:
    found = post.receivers[0]
    found.heard.clear()
    found.otherwise = Say()
    for webhook in post.http.get(HOOKS).json()["webhooks"]:
        assert 204 == post.http.delete(f"{HOOKS}/{webhook['id']}").status_code
    return found


def verified(heard: Heard, secret: str) -> Any:
    return Webhook(secret).verify(heard.body, heard.headers)


def test_a_receiver_that_fails_in_every_way_gets_each_message_under_one_id(post: Post, receiver: Receiver) -> None:
    webhook = post.webhook(receiver)
    receiver.says(*FAILURES)
    task = post.etl.done("note.txt", b"a note")

    [delivery] = post.settled(webhook, "delivered")

    whole = post.http.get(f"{HOOKS}/deliveries/{delivery['id']}").json()
    print(*((one["status"], one["error_code"], one["ms"]) for one in whole["attempts"]), sep="\n")
    assert len(FAILURES) + 1 == delivery["tries"] == len(whole["attempts"])
    assert [
        (500, "webhook_refused"),
        (None, "webhook_timeout"),
        (302, "webhook_redirected"),
        (None, "webhook_unreachable"),
        (400, "webhook_refused"),
        (307, "webhook_redirected"),
        (429, "webhook_refused"),
        (503, "webhook_refused"),
        (404, "webhook_refused"),
        (200, None),
    ] == [(one["status"], one["error_code"]) for one in whole["attempts"]]
    heard = [one for one in receiver.posts if not one.said.deaf]
    assert {"/in"} == {one.path for one in receiver.heard}, "no redirect was followed"
    assert {delivery["message_id"]} == {one.headers["webhook-id"] for one in receiver.posts}
    assert {whole["payload"].encode()} == {one.body for one in heard}, "the same bytes every time"
    said = verified(heard[-1], webhook["secret"])
    assert "task.completed" == said["type"]
    assert {
        "task_id": task["task_id"],
        "project_id": 1,
        "status": "completed",
        "attempt": 1,
        "document_id": task["metadata"]["document_id"],
        "error_code": None,
        "error_stage": None,
    } == said["data"], "ids and states, no content"
    asked_to_wait = next(n for n, one in enumerate(receiver.posts) if one.said.status == 429)
    assert receiver.posts[asked_to_wait + 1].at - receiver.posts[asked_to_wait].at >= 0.95


def test_every_try_is_signed_anew_and_a_changed_body_is_noticed(post: Post, receiver: Receiver) -> None:
    webhook = post.webhook(receiver)
    receiver.says(Say(429, headers={"Retry-After": "2"}))
    post.etl.done("note.txt", b"a note")
    post.settled(webhook, "delivered")

    first, second = receiver.posts

    for one in (first, second):
        assert verified(one, webhook["secret"])
    assert int(second.headers["webhook-timestamp"]) - int(first.headers["webhook-timestamp"]) >= 1
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
    with pytest.raises(WebhookVerificationError):
        Webhook(webhook["secret"]).verify(second.body.replace(b"completed", b"failed"), second.headers)


def test_while_rotating_both_secrets_verify_and_afterwards_only_the_new_one(post: Post, receiver: Receiver) -> None:
    webhook = post.webhook(receiver)
    url = f"{HOOKS}/{webhook['id']}"
    fresh = post.http.post(f"{url}/rotate").json()
    assert 2 == fresh["secrets"]
    tried = post.http.post(f"{url}/test").json()
    assert ("delivered", "webhook.test", 1) == (tried["state"], tried["event"], len(tried["attempts"]))
    last = post.http.post(f"{url}/rotate", json={"overlap_hours": 0}).json()
    assert 1 == last["secrets"]
    post.http.post(f"{url}/test")

    during, after = receiver.posts

    assert verified(during, webhook["secret"]) == verified(during, fresh["secret"])
    assert verified(after, last["secret"])
    for revoked in (webhook["secret"], fresh["secret"]):
        with pytest.raises(WebhookVerificationError):
            verified(after, revoked)
    assert "secret" not in post.http.get(url).json()


def test_410_disables_and_what_was_missed_is_sent_when_it_is_back(post: Post, receiver: Receiver) -> None:
    webhook = post.webhook(receiver)
    url = f"{HOOKS}/{webhook['id']}"
    receiver.says(Say(410))
    post.etl.done("first.txt", b"the first")
    [dead] = post.settled(webhook, "dead")
    missed = post.etl.done("second.txt", b"nobody hears of it")

    found = post.http.get(url).json()
    assert (False, "webhook_gone") == (found["enabled"], found["disabled_code"])
    assert (410, "webhook_gone", 1) == (dead["status"], dead["error_code"], dead["tries"])
    assert [] == post.deliveries(task_id=missed["task_id"])
    refused = post.http.post(f"{HOOKS}/deliveries/{dead['id']}/redeliver")
    assert (409, "webhook_disabled") == (refused.status_code, refused.json()["code"])

    assert post.http.put(url, json={"url": found["url"]}).json()["enabled"]
    assert {"redelivered": 1} == post.http.post(f"{url}/redeliver").json()
    post.settled(webhook, "delivered")
    assert [dead["message_id"]] * 2 == [one.headers["webhook-id"] for one in receiver.posts]
    # And once more, because somebody lost it.
    assert 202 == post.http.post(f"{HOOKS}/deliveries/{dead['id']}/redeliver").status_code
    receiver.wait(lambda r: len(r.posts) == 3)
    assert {dead["message_id"]} == {one.headers["webhook-id"] for one in receiver.posts}


def test_a_receiver_that_never_answers_well_becomes_a_dead_letter_and_holds_up_nobody(
    post: Post, receiver: Receiver
) -> None:
    bad, good = post.webhook(receiver, "/bad"), post.webhook(post.receivers[1], "/good", "task.completed")
    receiver.otherwise = Say(delay=TIMEOUT_S + 0.4)
    began = time.monotonic()
    tasks = {post.etl.done(f"{n}.txt", b"one of several")["task_id"] for n in range(3)}
    delivered = post.settled(good, "delivered", 3)

    assert tasks == {one["task_id"] for one in delivered}
    assert time.monotonic() - began < 60, "though every try to the other takes as long as it may"
    assert {"pending"} == {one["state"] for one in post.deliveries(webhook_id=bad["id"])}


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/",
        "http://127.0.0.1:22/",
        "http://10.0.0.1/",
        "http://[::1]/",
        "https://user:password@example.com/",
        "file:///etc/passwd",
        "http://2130706433/",
        "example.com",
    ],
)
def test_an_address_inside_is_refused(post: Post, url: str) -> None:
    answer = post.http.post(HOOKS, json={"url": url})
    assert (422, "address_refused") == (answer.status_code, answer.json()["code"])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"url": "https://example.com", "events": ["task.started"]}, "webhook_kind_unknown"),
        ({"url": ""}, "request_invalid"),
        ({}, "request_invalid"),
        ({"url": "https://example.com", "enabled": "perhaps"}, "request_invalid"),
    ],
)
def test_a_webhook_that_cannot_be_is_refused(post: Post, body: dict[str, Any], code: str) -> None:
    answer = post.http.post(HOOKS, json=body | ({"url": post.receivers[0].url} if body.get("url") else {}))
    assert (422, code) == (answer.status_code, answer.json()["code"])


def test_the_command_line_changes_shows_and_removes(post: Post, receiver: Receiver) -> None:
    def docmill(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(root, ["webhooks", *words], env={"DOCMILL_URL": post.service.url, "NO_COLOR": "1"})
        return done.exit_code, done.output

    webhook = post.webhook(receiver)
    post.etl.done("note.txt", b"a note")
    [delivery] = post.settled(webhook, "delivered")
    name = webhook["id"]

    status, shown = docmill("delivery", str(delivery["id"]))
    assert 0 == status
    assert "task.completed" in shown
    assert "delivered" in shown
    changed = docmill("change", name, "--disable", "--event", "task.failed", "--description", "for failures")
    assert 0 == changed[0], changed
    shown = docmill("show", name)[1]
    for text in ("disabled", "task.failed", "for failures", receiver.url):
        assert text in shown
    assert docmill("redeliver", str(delivery["id"]))[0] != 0
    assert "enabled" in docmill("change", name, "--enable", "--all-events")[1]
    assert (0, "1 to be sent again\n") == docmill("redeliver", str(delivery["id"]))
    assert "dead" not in docmill("deliveries", "--webhook", name, "--state", "dead")[1]
    receiver.otherwise = Say(500)
    assert 1 == docmill("test", name)[0], "a test message that did not arrive is a failure"
    assert (0, "") == docmill("remove", name)
    assert 2 == docmill("show", "nonsense")[0]
    assert 2 == docmill("redeliver")[0]


ENDS_AND_DIES = """
import asyncio, os, sys
from pathlib import Path
from docmill import compose, settings
from docmill.core.access import LOCAL
from docmill.core.task import Wishes
from docmill.ports import NewTask
from docmill.core.webhooks import WebhookDraft
from docmill.work import control, webhooks
from uuid import uuid4

async def main():
    async with compose.opened(settings.load(data=Path(sys.argv[1]))) as ports:
        _, secret = await webhooks.add(ports, LOCAL, WebhookDraft(sys.argv[2]))
        rule = await ports.rules.default()
        new = NewTask("local", "local", 1, "x.txt", "users/local/raw/1/x.txt", rule.id, Wishes())
        task, _ = await ports.ledger.open(new, attempt_id=uuid4())
        await control.cancel(ports, LOCAL, task.id, force=False)
        print(task.id, secret, flush=True)
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@pytest.mark.slow
def test_killed_between_commit_and_send_or_while_sending_nothing_is_lost(mode: Mode, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Receiver() as receiver:
        given = settings([receiver], timeout=1.0)
        # The process that commits is dead before anybody could have sent.
        died = subprocess.run(
            [sys.executable, "-c", ENDS_AND_DIES, str(data), receiver.url],
            env=os.environ | mode.environment(data) | given,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert -9 == died.returncode, died.stderr
        assert [] == receiver.posts
        task_id, secret = died.stdout.split()
        service = mode.serve(data, "--jobs", "1", **given).start()
        try:
            receiver.wait(lambda r: len(r.posts) == 1)
            said = verified(receiver.posts[0], secret)
            assert ("task.cancelled", int(task_id)) == (said["type"], said["data"]["task_id"])
            # Now it dies while it sends: the receiver has the message or not, and has not answered.
            receiver.says(Say(delay=0.9))
            with service.client() as client:
                second = Etl(client).done("note.txt", b"a note")["task_id"]
                ends = time.monotonic() + 60
                while not (
                    sending := [
                        one
                        for one in client.get(f"{HOOKS}/deliveries", params={"task_id": second}).json()["deliveries"]
                        if one["tries"]
                    ]
                ):
                    assert time.monotonic() < ends, "it was never sent"
                    time.sleep(0.01)
            service.kill()
            service.start()
            with service.client() as client:
                until = time.monotonic() + 30
                while {"delivered"} != {one["state"] for one in client.get(f"{HOOKS}/deliveries").json()["deliveries"]}:
                    assert time.monotonic() < until
                    time.sleep(0.1)
            first, *others = [one.headers["webhook-id"] for one in receiver.posts]
            assert {sending[0]["message_id"]} == set(others) != {first}
        finally:
            service.stop()
