"""`docmill webhooks`: who hears of the ends of tasks, and what they were sent."""

from __future__ import annotations

import re
from typing import Any

import click

from docmill.cli import api as service
from docmill.cli.api import Api, json_option, url_option
from docmill.cli.failure import EXIT_FAILED
from docmill.cli.output import Out, complain, standard_output
from docmill.cli.table import short_time, write_fields, write_table

HOOKS = "/api/v1/webhooks"
EVENTS = ("task.completed", "task.failed", "task.cancelled")
EXITS = "Exit codes: 0 done, 2 wrong usage or no service there, 4 the service refused."
ONCE = "This is the secret of webhook {id}; it cannot be shown again."


def _an_id(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch("wh_[0-9a-f]{32}", value):
        raise click.BadParameter(f"'{value}' is not the id of a webhook. 'docmill webhooks list' shows them.")
    return value


webhook_argument = click.argument("webhook_id", callback=_an_id, metavar="ID")
event_option = click.option(
    "--event", "events", type=click.Choice(EVENTS), multiple=True, help="Only this event; may be given several times."
)


@click.group()
def webhooks() -> None:
    """Have programs told when tasks end, and see what was sent."""


@webhooks.command("list", epilog=EXITS)
@url_option
@json_option
def list_webhooks(url: str, as_json: bool) -> None:
    """List your webhooks."""
    found = service.run(url, lambda api: api.get(HOOKS))
    with standard_output() as out:
        if as_json:
            out.json(found)
            return
        rows = [(one["id"], _state(one), " ".join(one["events"]) or "all", one["url"]) for one in found["webhooks"]]
        write_table(out, ("WEBHOOK", "STATE", "EVENTS", "URL"), rows)


@webhooks.command("add", epilog=EXITS)
@click.argument("address", metavar="ADDRESS")
@click.option("--description", default="", help="What it is for.")
@event_option
@url_option
@json_option
def add_webhook(address: str, description: str, events: tuple[str, ...], url: str, as_json: bool) -> None:
    """Send messages to ADDRESS, and print the secret that verifies them, this once."""
    body = {"url": address, "description": description, "events": list(events)}
    _show_secret(service.run(url, lambda api: api.post(HOOKS, body)), as_json=as_json)


@webhooks.command("show", epilog=EXITS)
@webhook_argument
@url_option
@json_option
def show_webhook(webhook_id: str, url: str, as_json: bool) -> None:
    """Show a webhook."""
    _show(service.run(url, lambda api: api.get(f"{HOOKS}/{webhook_id}")), as_json=as_json)


@webhooks.command("change", epilog=EXITS)
@webhook_argument
@click.option("--address", help="Another address.")
@click.option("--description", help="Another description.")
@event_option
@click.option("--all-events", is_flag=True, help="All events again.")
@click.option("--enable/--disable", "enabled", default=None, help="Send to it, or not.")
@url_option
@json_option
def change_webhook(
    webhook_id: str,
    address: str | None,
    description: str | None,
    events: tuple[str, ...],
    all_events: bool,
    enabled: bool | None,
    url: str,
    as_json: bool,
) -> None:
    """Change a webhook. What is not named stays, the secret included."""

    async def work(api: Api) -> Any:
        is_now = await api.get(f"{HOOKS}/{webhook_id}")
        body = {
            "url": address or is_now["url"],
            "description": is_now["description"] if description is None else description,
            "events": [] if all_events else list(events) or is_now["events"],
            "enabled": is_now["enabled"] if enabled is None else enabled,
        }
        return await api.call("PUT", f"{HOOKS}/{webhook_id}", json=body)

    _show(service.run(url, work), as_json=as_json)


@webhooks.command("remove", epilog=EXITS)
@webhook_argument
@url_option
def remove_webhook(webhook_id: str, url: str) -> None:
    """Remove a webhook with its deliveries."""
    service.run(url, lambda api: api.call("DELETE", f"{HOOKS}/{webhook_id}"))


@webhooks.command("rotate", epilog=EXITS)
@webhook_argument
@click.option(
    "--overlap",
    type=click.FloatRange(0, 168),
    default=24.0,
    show_default=True,
    metavar="HOURS",
    help="How long messages are signed with the old secret, too; 0 revokes it at once.",
)
@url_option
@json_option
def rotate_secret(webhook_id: str, overlap: float, url: str, as_json: bool) -> None:
    """Make a new secret and print it, this once."""
    made = service.run(url, lambda api: api.post(f"{HOOKS}/{webhook_id}/rotate", {"overlap_hours": overlap}))
    _show_secret(made, as_json=as_json)


@webhooks.command(
    "test", epilog="Exit codes: 0 it arrived, 1 it did not, 2 wrong usage or no service there, 4 refused."
)
@webhook_argument
@url_option
@json_option
def test_webhook(webhook_id: str, url: str, as_json: bool) -> None:
    """Send a test message now, once."""
    sent = service.run(url, lambda api: api.post(f"{HOOKS}/{webhook_id}/test"))
    with standard_output() as out:
        if as_json:
            out.json(sent)
        else:
            _write_tries(out, sent)
    if sent["state"] != "delivered":
        raise SystemExit(EXIT_FAILED)


@webhooks.command("deliveries", epilog=EXITS)
@click.option("--webhook", callback=_an_id, metavar="ID", help="Only of this webhook.")
@click.option("--state", type=click.Choice(("pending", "delivered", "dead")), help="Only in this state.")
@click.option("--task", type=click.IntRange(1), help="Only of this task.")
@click.option("--limit", type=click.IntRange(1, 100), default=50, show_default=True, help="Newest ones to show.")
@url_option
@json_option
def list_deliveries(
    webhook: str | None, state: str | None, task: int | None, limit: int, url: str, as_json: bool
) -> None:
    """List what was sent, newest first."""
    found = service.run(
        url,
        lambda api: api.get(f"{HOOKS}/deliveries", webhook_id=webhook, state=state, task_id=task, limit=limit),
    )
    with standard_output() as out:
        if as_json:
            out.json(found)
            return
        rows = [
            (
                one["id"],
                short_time(one["created_at"]),
                one["event"],
                one["task_id"],
                one["state"],
                one["tries"],
                one["status"],
                one["error_code"],
            )
            for one in found["deliveries"]
        ]
        write_table(out, ("DELIVERY", "CREATED", "EVENT", "TASK", "STATE", "TRIES", "ANSWER", "ERROR"), rows)


@webhooks.command("delivery", epilog=EXITS)
@click.argument("delivery_id", type=click.IntRange(1), metavar="DELIVERY")
@url_option
@json_option
def show_delivery(delivery_id: int, url: str, as_json: bool) -> None:
    """Show a delivery with its attempts."""
    found = service.run(url, lambda api: api.get(f"{HOOKS}/deliveries/{delivery_id}"))
    with standard_output() as out:
        if as_json:
            out.json(found)
            return
        out.line(found["payload"])
        _write_tries(out, found)


@webhooks.command("redeliver", epilog=EXITS)
@click.argument("delivery_id", type=click.IntRange(1), metavar="[DELIVERY]", required=False)
@click.option("--dead-of", callback=_an_id, metavar="ID", help="All dead letters of this webhook instead.")
@url_option
def redeliver(delivery_id: int | None, dead_of: str | None, url: str) -> None:
    """Send a message again, under its old id; or all dead letters of a webhook."""
    if (delivery_id is None) == (dead_of is None):
        raise click.UsageError("Name a delivery, or a webhook with --dead-of.")
    path = f"{HOOKS}/{dead_of}/redeliver" if dead_of else f"{HOOKS}/deliveries/{delivery_id}/redeliver"
    sent = service.run(url, lambda api: api.post(path))
    with standard_output() as out:
        out.line(f"{sent['redelivered'] if dead_of else 1} to be sent again")


def _state(webhook: dict[str, Any]) -> str:
    return "enabled" if webhook["enabled"] else webhook["disabled_code"] or "disabled"


def _show(webhook: dict[str, Any], *, as_json: bool) -> None:
    with standard_output() as out:
        if as_json:
            out.json(webhook)
            return
        write_fields(
            out,
            {
                "webhook": webhook["id"],
                "url": webhook["url"],
                "description": webhook["description"],
                "events": " ".join(webhook["events"]) or "all",
                "state": _state(webhook),
                "secrets": webhook["secrets"],
                "created": short_time(webhook["created_at"]),
            },
        )


def _show_secret(made: dict[str, Any], *, as_json: bool) -> None:
    with standard_output() as out:
        if as_json:
            out.json(made)
            return
        out.line(made["secret"])
    complain(ONCE.format(id=made["id"]))


def _write_tries(out: Out, delivery: dict[str, Any]) -> None:
    out.line(f"delivery {delivery['id']}  {delivery['state']}  {delivery['message_id']}")
    rows = [
        (one["number"], short_time(one["at"]), one["status"], f"{one['ms']} ms", one["error_code"], one["error"])
        for one in delivery["attempts"]
    ]
    write_table(out, ("TRY", "TIME", "ANSWER", "TOOK", "ERROR", "WHY"), rows)
