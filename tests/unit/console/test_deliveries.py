"""Webhooks on the page of deliveries, with plain forms."""

import re
from collections.abc import AsyncIterator

import pytest
from standardwebhooks import Webhook

from docmill.core.access import LOCAL, Principal
from docmill.work import webhooks
from support.receiver import Receiver, Say


@pytest.fixture
def receiver():
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
async def visitor(open_console, receiver) -> AsyncIterator:
    port = int(receiver.url.rsplit(":", 1)[1])
    chosen = {"webhook_networks": ("127.0.0.1/32",), "webhook_ports": (port,), "webhook_timeout": 2}
    async with open_console(**chosen) as visitor:
        yield visitor


async def made(visitor, receiver):
    answer = await visitor.fill("/deliveries", "/deliveries/webhooks", url=receiver.url, event="task.cancelled")
    assert 200 == answer.status_code, answer.text
    secret = re.search(r"whsec_[A-Za-z0-9+/=]+", answer.text)
    webhook = re.search(r"wh_[0-9a-f]{32}", answer.text)
    assert secret
    assert webhook
    return f"/deliveries/webhooks/{webhook[0]}", secret[0]


async def sent(visitor, state):
    """The messages in this state, each as its part of the page."""
    return (await visitor.see(f"/deliveries?state={state}")).split('class="group sent"')[1:]


async def test_a_webhook_is_made_and_its_secret_is_shown_once(visitor, receiver):
    assert "No webhooks yet" in await visitor.see("/deliveries")

    _, secret = await made(visitor, receiver)

    page = await visitor.see("/deliveries")
    assert receiver.url in page
    assert secret not in page
    assert "whsec_" not in page


async def test_a_test_message_is_sent_and_its_try_is_shown(visitor, receiver):
    webhook, secret = await made(visitor, receiver)

    arrived = await visitor.fill("/deliveries", f"{webhook}/test")
    receiver.says(Say(500))
    lost = await visitor.fill("/deliveries", f"{webhook}/test")

    assert "said=arrived" in arrived.headers["location"]
    assert "Test message delivered." in await visitor.see("/deliveries?said=arrived")
    assert "said=lost" in lost.headers["location"]
    page = await visitor.see("/deliveries?said=lost")
    for text in ("was not delivered", "webhook_refused", "webhook.test", "delivered", "undelivered"):
        assert text in page
    assert "webhook.test" == Webhook(secret).verify(receiver.posts[0].body, receiver.posts[0].headers)["type"]


async def test_messages_are_narrowed_and_sent_again(visitor, receiver):
    webhook, _ = await made(visitor, receiver)
    task = await visitor.submit()
    await visitor.fill(f"/tasks/{task}", f"/tasks/{task}/cancel")

    assert [True] == [">Resend<" not in one for one in await sent(visitor, "pending")], "it is on its way"
    await visitor.fill("/deliveries", f"{webhook}/switch", enabled="0")
    assert [True] == [">Resend<" in one for one in await sent(visitor, "dead")]
    refused = await visitor.fill("/deliveries", "/deliveries/1/redeliver")
    assert (409, True) == (refused.status_code, "webhook_disabled" in refused.text)
    await visitor.fill("/deliveries", f"{webhook}/switch", enabled="1")
    again = await visitor.fill("/deliveries", "/deliveries/1/redeliver")
    assert (303, "/deliveries?said=again#sent") == (again.status_code, again.headers["location"])
    assert (1, 0) == (len(await sent(visitor, "pending")), len(await sent(visitor, "dead")))


async def test_secrets_are_rotated_and_webhooks_removed(visitor, receiver):
    webhook, secret = await made(visitor, receiver)

    rotated = await visitor.fill("/deliveries", f"{webhook}/rotate")
    assert "also signed with the previous secret" in rotated.text
    assert secret not in rotated.text
    assert "two active secrets" in await visitor.see("/deliveries")
    await visitor.fill("/deliveries", f"{webhook}/redeliver")
    asked = await visitor.fill("/deliveries", f"{webhook}/remove")
    assert (200, True) == (asked.status_code, "delivery history are deleted" in asked.text)
    assert receiver.url in await visitor.see("/deliveries"), "nothing happens before it is confirmed"
    removed = await visitor.fill("/deliveries", f"{webhook}/remove", confirmed="1")
    assert "/deliveries?said=removed" == removed.headers["location"]
    assert "No webhooks yet" in await visitor.see("/deliveries")
    for action in ("test", "rotate", "switch", "remove", "redeliver"):
        assert 404 == (await visitor.fill("/deliveries", f"{webhook}/{action}")).status_code
    assert 404 == (await visitor.fill("/deliveries", "/deliveries/99999999999999999999999/redeliver")).status_code


async def test_an_address_inside_is_refused_and_what_was_typed_stays(visitor):
    typed = {"url": "http://169.254.169.254/", "description": 'the "cloud" <itself>', "event": "task.failed"}
    answer = await visitor.fill("/deliveries", "/deliveries/webhooks", **typed)

    assert 422 == answer.status_code
    assert "address_refused" in answer.text
    assert "http://169.254.169.254/" in answer.text
    assert "<itself>" not in answer.text
    assert re.search(r'value="task.failed" checked', answer.text)


async def test_a_form_from_elsewhere_makes_no_webhook(visitor, receiver):
    answer = await visitor.http.post("/deliveries/webhooks", data={"url": receiver.url, "token": "0" * 64})

    assert 403 == answer.status_code
    assert "No webhooks yet" in await visitor.see("/deliveries")


async def test_a_task_lists_the_messages_about_it_and_sends_them_again(visitor, receiver):
    webhook, _ = await made(visitor, receiver)
    task, other = await visitor.submit(), await visitor.submit("other.pdf", b"%PDF-1.7 other")
    assert "Webhook messages" not in await visitor.see(f"/tasks/{task}")
    for one in (task, other):
        await visitor.fill(f"/tasks/{one}", f"/tasks/{one}/cancel")

    for path in (f"/tasks/{task}", f"/tasks/{task}/live"):
        page = await visitor.see(path)
        assert (1, 1) == (page.count("task.cancelled"), page.count("data-pending"))
        assert receiver.url in page
        assert "pending" in page
        assert "/redeliver" not in page, "it is sent already"
    await visitor.fill("/deliveries", f"{webhook}/switch", enabled="0")
    assert "webhook_disabled" in await visitor.see(f"/tasks/{task}")
    await visitor.fill("/deliveries", f"{webhook}/switch", enabled="1")
    page = await visitor.see(f"/tasks/{task}")
    (action,) = re.findall(r'action="(/deliveries/\d+/redeliver)"', page)
    again = await visitor.fill(f"/tasks/{task}", action, back="task")

    assert (303, f"/tasks/{task}?said=again") == (again.status_code, again.headers["location"])
    page = await visitor.see(f"/tasks/{task}?said=again")
    assert "Message queued for sending." in page
    assert "data-pending" in page


async def test_a_message_is_linked_to_its_tries(visitor, receiver):
    await made(visitor, receiver)
    tasks = [await visitor.submit(f"{n}.pdf", b"%PDF-1.7 " + n.encode()) for n in "ab"]
    for one in tasks:
        await visitor.fill(f"/tasks/{one}", f"/tasks/{one}/cancel")

    (link,) = re.findall(r'href="(/deliveries\?task=\d+#message-\d+)"', await visitor.see(f"/tasks/{tasks[0]}"))
    path, _, place = link.partition("#")
    page = await visitor.see(path)

    assert 1 == page.count('class="group sent"')
    assert f'id="{place}" open' in page
    assert f"Showing messages for task {tasks[0]} only." in page
    assert 2 == len(await sent(visitor, ""))
    assert "No messages" in await visitor.see("/deliveries?task=99")


async def test_messages_about_a_task_are_told_to_its_owner_only(visitor, receiver):
    await made(visitor, receiver)
    task = await visitor.submit()
    await visitor.fill(f"/tasks/{task}", f"/tasks/{task}/cancel")

    counts = [
        len((await webhooks.deliveries(visitor.ports, who, task_id=task))[0])
        for who in (LOCAL, Principal("somebody", LOCAL.tenant), Principal(LOCAL.user, "elsewhere"))
    ]

    assert [1, 0, 0] == counts
