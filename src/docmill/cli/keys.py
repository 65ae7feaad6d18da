"""`docmill keys`: API keys, straight in the database, whether or not the service runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from docmill.cli.database import load_settings
from docmill.cli.failure import EXIT_FAILED, told, usable_database
from docmill.cli.output import complain, standard_output
from docmill.cli.table import write_table

if TYPE_CHECKING:
    from docmill.ports import ApiKey, KeyRing, Ports

T = TypeVar("T")

DAY_MS = 86_400_000

data_option = click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Data folder; default: .docmill (DOCMILL_DATA)."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def keys() -> None:
    """Create, list and revoke API keys.

    The keys are in the database of the data folder. Programs send one as 'Authorization: Bearer dm_...'; the commands
    of docmill take it from DOCMILL_API_KEY.
    """


@keys.command("create", epilog="Exit codes: 0 created, 2 wrong usage or the database cannot be used.")
@click.argument("name")
@click.option("--user", default="local", show_default=True, help="Whose tasks the key sees.")
@click.option("--tenant", default="local", show_default=True, help="Whose documents the key sees.")
@click.option("--admin", is_flag=True, help="The key may manage the API keys of its tenant.")
@click.option("--operator", is_flag=True, help="The key may see metrics, settings and the API keys of all tenants.")
@click.option("--expires", type=click.IntRange(1, 36_500), metavar="DAYS", help="Days until it ends; default: never.")
@data_option
@json_option
def create_key(
    name: str,
    user: str,
    tenant: str,
    admin: bool,
    operator: bool,
    expires: int | None,
    data: Path | None,
    as_json: bool,
) -> None:
    """Create a key and print its secret, this once."""
    from docmill.core.access import Principal
    from docmill.work import keys as work

    who = Principal(user, tenant, is_admin=admin or operator, is_operator=operator)
    ends = round(time.time() * 1000) + expires * DAY_MS if expires else None
    key, secret = _with_ring(data, lambda ring: work.create(_only(ring), name, who, expires_ms=ends), create=True)
    with standard_output() as out:
        if as_json:
            out.json({**key_json(key), "secret": secret})
            return
        out.line(secret)
    complain(f"This is the secret of key {key.id}; it cannot be shown again.")
    complain("From its next start on, the service asks for a key.")


@keys.command("list", epilog="Exit codes: 0 listed, 2 wrong usage or the database cannot be used.")
@data_option
@json_option
def list_keys(data: Path | None, as_json: bool) -> None:
    """List the keys, without their secrets."""
    found = _with_ring(data, lambda ring: ring.list())
    with standard_output() as out:
        if as_json:
            out.json({"keys": [key_json(key) for key in found]})
            return
        rows = [
            (key.id, key.principal.tenant, key.principal.user, state(key), _day(key.used_ms), key.name) for key in found
        ]
        write_table(out, ("KEY", "TENANT", "USER", "STATE", "USED", "NAME"), rows)


@keys.command("revoke", epilog="Exit codes: 0 revoked, 1 there is no such key that is still good, 2 wrong usage.")
@click.argument("key_id", metavar="ID")
@data_option
def revoke_key(key_id: str, data: Path | None) -> None:
    """Revoke a key. A running service refuses it after a few seconds at the latest."""
    if not _with_ring(data, lambda ring: ring.revoke(key_id)):
        complain(f"There is no key '{key_id}' that is still good. 'docmill keys list' shows them.")
        raise SystemExit(EXIT_FAILED)


def key_json(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "user": key.principal.user,
        "tenant": key.principal.tenant,
        "admin": key.principal.is_admin,
        "operator": key.principal.is_operator,
        "state": state(key),
        "created_at": _iso(key.created_ms),
        "used_at": _iso(key.used_ms),
        "expires_at": _iso(key.expires_ms),
        "revoked_at": _iso(key.revoked_ms),
    }


def state(key: ApiKey) -> str:
    if key.revoked_ms is not None:
        return "revoked"
    return "expired" if key.expires_ms is not None and key.expires_ms <= time.time() * 1000 else "good"


@dataclass(frozen=True, slots=True)
class OnlyKeys:
    """The one port that making a key needs."""

    keys: KeyRing


def _only(ring: KeyRing) -> Ports:
    return cast("Ports", OnlyKeys(ring))


def _with_ring(data: Path | None, work: Callable[[KeyRing], Awaitable[T]], *, create: bool = False) -> T:
    from docmill import compose

    async def main() -> T:
        async with compose.key_ring(load_settings(data, create=create)) as ring:
            return await work(ring)

    with told(), usable_database():
        return asyncio.run(main())


def _iso(ms: int | None) -> str | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def _day(ms: int | None) -> str | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")
