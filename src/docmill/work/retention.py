"""Remove what was kept long enough: first the task, which leaves a tombstone, then its objects.

The tombstone is written in the transaction that removes the task, and says where the objects lie until they are gone:
whoever dies in between leaves nothing half there, and the next round goes on. Two at once do the same work twice, and
no harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import structlog

from docmill.core.access import Principal
from docmill.core.assemble import document_id_of
from docmill.core.errors import DocmillError
from docmill.core.retention import Estate, Retention
from docmill.ports import Filter, Ports
from docmill.work.documents import drop_unused
from docmill.work.objects import objects
from docmill.work.stages.parse import PARSED
from docmill.work.stages.step import folders_of

log = structlog.get_logger(__name__)

PAGE = 200
MAX_CLEARED = 10_000
"""Tasks that one request may remove."""
URIS = 500
"""Objects of which the repository is asked at once."""


async def expire(ports: Ports, *, after: int = 0) -> int:
    """Look at the next tasks after this id, oldest first, and remove those whose time is over.

    Where the next round shall go on; 0: all that are old enough were looked at.
    """
    after = await _bury(ports, after)
    await _empty_all(ports)
    return after


async def clear(ports: Ports, who: Principal, *, workflow_id: str, project_id: int, older_ms: int) -> int:
    """Remove the caller's tasks of a workflow that ended so long ago, with their documents; how many.

    Their objects are removed by the sweeper's next round.
    """
    kept = Retention(completed_ms=older_ms - 1, failed_ms=older_ms - 1)
    cleared, before = 0, None
    while cleared < MAX_CLEARED:
        page = await ports.ledger.page(Filter(who.owner, project_id, limit=PAGE, before=before))
        for task in page.tasks:
            if task.wishes.workflow_id == workflow_id and await ports.tombstones.bury(task.id, kept):
                await ports.documents.delete(task.tenant, document_id_of(task.tenant, task.id), hard=True)
                cleared += 1
        if len(page.tasks) < PAGE:
            break
        before = page.tasks[-1].id
    return cleared


async def _bury(ports: Ports, after: int) -> int:
    retention = ports.limits.retention
    shortest_ms = retention.shortest_ms
    if shortest_ms is None:
        return 0
    page = await ports.tombstones.aged(after=after, limit=PAGE)
    for one in page:
        if retention.is_over(one.status, one.still_ms):
            await _bury_one(ports, one.id)
    # Ids rise with time: behind one that is too young there are only younger ones.
    return page[-1].id if len(page) == PAGE and page[-1].age_ms > shortest_ms else 0


async def _bury_one(ports: Ports, task_id: int) -> None:
    try:
        if await ports.tombstones.bury(task_id, ports.limits.retention):
            log.info("task_expired", task=task_id)
    except Exception as error:
        # A row that nobody can read must not keep the others.
        log.error("expire_failed", task=task_id, why=f"{type(error).__name__}: {error}"[:200])


async def _empty_all(ports: Ports) -> None:
    """Also what an earlier round left undone: one that fails waits for the next, and keeps no other waiting."""
    last = 0
    while page := await ports.tombstones.full(after=last, limit=PAGE):
        for estate in page:
            try:
                await _empty(ports, estate)
            except (DocmillError, OSError) as error:
                log.warning("expire_failed", task=estate.stone.task_id, why=type(error).__name__)
        last = page[-1].stone.task_id


async def _empty(ports: Ports, estate: Estate) -> None:
    """Remove the objects, save those that a document or another task still uses."""
    stone = estate.stone
    if ports.limits.retention.documents:
        await _remove_document(ports, estate)
    keys = [key async for key in _keys(ports, estate)]
    for start in range(0, len(keys), URIS):
        await _remove_unused(ports, stone.tenant, keys[start : start + URIS])
    await ports.tombstones.emptied(stone.task_id)


async def _remove_document(ports: Ports, estate: Estate) -> None:
    stone = estate.stone
    document_id = document_id_of(stone.tenant, stone.task_id)
    await ports.documents.delete(stone.tenant, document_id, hard=True)
    await drop_unused(ports, Principal(stone.owner, stone.tenant), document_id)


async def _keys(ports: Ports, estate: Estate) -> AsyncIterator[str]:
    """Keys as the tenant sees them."""
    stone, left = estate.stone, estate.leavings
    store = objects(ports, stone.tenant)
    folders = [loan.removesuffix(PARSED) for loan in left.loans if not await ports.tombstones.is_parse_used(loan)]
    for attempt_id in left.attempts:
        mine, *others = folders_of(stone.owner, left.project_id, stone.task_id, attempt_id)
        folders += others
        if not await ports.tombstones.is_parse_used(mine + PARSED):
            folders.append(mine)
    for folder in folders:
        async for key, _, _ in ports.store.list(store.prefix + folder):
            yield key.removeprefix(store.prefix)
    if left.source_key and not await ports.tombstones.is_source_used(stone.tenant, left.source_key):
        yield left.source_key


async def _remove_unused(ports: Ports, tenant: str, keys: list[str]) -> None:
    store = objects(ports, tenant)
    used = await ports.documents.used(tenant, [store.uri(key) for key in keys])
    for key in keys:
        if store.uri(key) not in used:
            await ports.store.delete(store.prefix + key)
