"""Progress of jobs, gathered: reports that arrive while the ledger writes go into its next transaction together.

Nobody is answered before the commit that holds their report. Several reports of one job in one transaction leave one
line in the log, with the newest words and the highest number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from docmill.core.errors import DocmillError
from docmill.core.machine import Verdict
from docmill.core.reports import Progress
from docmill.ports import Heard, Ports
from docmill.work.crowd import Crowd

MOST = 512
"""Jobs in one transaction."""
MOST_LINGER_S = 0.03

_Key = tuple[str, str]
_Answer = asyncio.Future[Verdict | None]
_Waiting = tuple[Heard, list[_Answer]]


class Gathering:
    """One for each process."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._waiting: dict[_Key, _Waiting] = {}
        self._writing: asyncio.Task[None] | None = None
        self._crowd = Crowd(most=MOST, most_s=MOST_LINGER_S)

    async def report(self, heard: Heard) -> Verdict | None:
        """What the ledger made of the report, once that is on disk. None: there is no such job."""
        answer: _Answer = asyncio.get_running_loop().create_future()
        key = (heard.job_id, heard.token_hash)
        before = self._waiting.get(key)
        if before is None:
            self._waiting[key] = heard, [answer]
        else:
            before[1].append(answer)
            self._waiting[key] = replace(heard, progress=_merged(before[0].progress, heard.progress)), before[1]
        self._crowd.now(len(self._waiting))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return await answer

    async def _write(self) -> None:
        while self._waiting:
            # Whoever is at the door right now comes along.
            await asyncio.sleep(0)
            await self._crowd.gather(len(self._waiting))
            self._crowd.went(len(self._waiting))
            await self._write_batch([self._waiting.pop(key) for key in list(self._waiting)[:MOST]])
        self._writing = None

    async def _write_batch(self, batch: Sequence[_Waiting]) -> None:
        try:
            verdicts = await self._ports.ledger.progress([heard for heard, _ in batch])
        except Exception as error:  # whoever waits gets it, whatever it is
            if isinstance(error, DocmillError) or len(batch) == 1:
                _fail(batch, error)
                return
            # One of them cannot be written, and takes no other with it.
            for one in batch:
                await self._write_batch([one])
            return
        for (heard, answers), verdict in zip(batch, verdicts, strict=True):
            if verdict is Verdict.APPLIED:
                self._ports.signals.changed(heard.task_id)
            for answer in answers:
                if not answer.done():
                    answer.set_result(verdict)


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for _, answers in batch:
        for answer in answers:
            if not answer.done():
                answer.set_exception(error)


def _merged(older: Progress, newer: Progress) -> Progress:
    """Both at once: progress never falls, and what the newer one does not say the older one said."""
    percents = [one.percent for one in (older, newer) if one.percent is not None]
    return replace(newer, percent=max(percents, default=None), process_id=newer.process_id or older.process_id)
