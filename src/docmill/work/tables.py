"""Tables: JSON values of a project, read and written whole, read at a pointer, and mounted into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from docmill.core.access import Principal
from docmill.core.errors import Invalid, NotFound, TooLarge
from docmill.core.mounting import Mounted
from docmill.core.mounting import mount as mounted
from docmill.core.pointer import parse, resolve
from docmill.ports import Ports, Table

MAX_PROJECT = 2**63 - 1


async def add(ports: Ports, who: Principal, project_id: int, name: str, data: Any) -> Table:
    _check_size(ports, data)
    return await ports.tables.add(who.owner, _project(project_id), name, data)


async def listed(ports: Ports, who: Principal, project_id: int) -> list[Table]:
    """The project's tables, oldest first, without their data."""
    return await ports.tables.list(who.owner, _project(project_id))


async def get(ports: Ports, who: Principal, table_id: int) -> Table:
    return _found(await ports.tables.get(table_id, who.owner), table_id)


async def replace(ports: Ports, who: Principal, table_id: int, *, name: str | None, data: Any) -> Table:
    """New data, and with *name* a new name. A mounted entry that changed is no longer its task's."""
    _check_size(ports, data)
    return _found(await ports.tables.replace(table_id, who.owner, name=name, data=data), table_id)


async def remove(ports: Ports, who: Principal, table_id: int) -> None:
    if not await ports.tables.remove(table_id, who.owner):
        raise NotFound("table_not_found", table=table_id)


async def read_at(ports: Ports, who: Principal, table_id: int, pointer: str) -> Any:
    tokens = parse(pointer)
    return resolve((await get(ports, who, table_id)).data, tokens)


async def mount(
    ports: Ports,
    who: Principal,
    task_id: int,
    table_id: int,
    pointer: str,
    stem: str,
    output: Any,
    *,
    once: bool = False,
) -> str:
    """Put a task's output into a table, in one transaction; the pointer to what was written.

    Into an array it is appended each time; with *once* the task's own element is replaced instead, so that a stage
    that runs again after a crash leaves one element, not two.
    """
    done: Mounted | None = None

    def edit(data: Any, mounted_by: Callable[[str, str], int | None]) -> tuple[Any, str, str, int]:
        nonlocal done
        done = mounted(data, pointer, stem, output, task_id=task_id, mounted_by=mounted_by, once=once)
        _check_size(ports, done.data)
        return done.data, done.pointer, done.entry, task_id

    _found(await ports.tables.edit(table_id, who.owner, edit), table_id)
    assert done is not None  # noqa: S101 - the table was found, so the edit ran
    return done.path


def _check_size(ports: Ports, data: Any) -> None:
    try:
        size = len(msgspec.json.encode(data))
    except UnicodeEncodeError:
        raise Invalid("request_invalid", why="a text has half of a surrogate pair.") from None
    if size > ports.limits.table_bytes:
        raise TooLarge("table_too_large", limit=ports.limits.table_bytes)


def _project(project_id: int) -> int:
    if not 0 <= project_id <= MAX_PROJECT:
        raise Invalid("project_invalid")
    return project_id


def _found(table: Table | None, table_id: int) -> Table:
    if table is None:
        raise NotFound("table_not_found", table=table_id)
    return table
