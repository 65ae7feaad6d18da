"""A service in this process with an engine that does nothing: what docmill itself costs."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from docmill import compose, settings
from docmill.core.access import LOCAL
from docmill.core.parsed import Page, Parsed
from docmill.ports import PageReport, Ports, Work
from docmill.work import intake


class NoEngine:
    """Answers at once with one page."""

    name = "local"
    version = "0"

    async def start(self, work: Work, report: PageReport) -> Parsed:
        return Parsed("local", "text/plain", (Page(0, f"# {work.filename}"),))

    async def warm(self) -> None:
        pass

    async def close(self) -> None:
        pass


@asynccontextmanager
async def service(**flags: object) -> AsyncIterator[Ports]:
    """Ports with a worker, on real SQLite and real files in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = settings.load(data=Path(folder), **flags)
        async with compose.opened(chosen) as real:
            ports = replace(real, engines={"local": NoEngine()})
            async with compose.working(chosen, ports):
                yield ports


async def upload(ports: Ports, name: str, data: bytes) -> str:
    async def chunks() -> AsyncIterator[bytes]:
        yield data

    return (await intake.upload(ports, LOCAL, 1, name, chunks())).key
