"""Keep a request open while something happens, as long as its client waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from docmill.core.access import Principal
from docmill.ports import Ports
from docmill.work import query

T = TypeVar("T")

MAX_WAIT_S = 60.0


async def until_gone(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def wait_for_client(request: Request, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T | None:
    """The result of *work*; None: it takes longer than *seconds*, or the service is stopping.

    ClientDisconnect: nobody waits for the answer any more.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(until_gone(request.receive))
    stop = asyncio.ensure_future(request.app.state.drain.wait())
    try:
        await asyncio.wait({working, gone, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if gone.done():
            raise ClientDisconnect
        return None
    finally:
        for one in (working, gone, stop):
            one.cancel()
        await asyncio.gather(working, gone, stop, return_exceptions=True)


async def wait_until_ended(
    request: Request, ports: Ports, who: Principal, task_ids: Sequence[int], seconds: float
) -> bool:
    """Wait until all tasks have ended, at most *seconds*; False: they have not, or the service is stopping."""

    async def all_ended() -> bool:
        for task_id in task_ids:
            while not (await query.changed(ports, who, task_id, seconds=MAX_WAIT_S)).is_final:
                pass
        return True

    return await wait_for_client(request, all_ended(), seconds) or False
