from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from docmill.adapters.engines.local import Limits, LocalEngine
from docmill.core.parsed import Parsed
from docmill.ports import Work

NAUGHTY = Path(__file__).with_name("naughty_child.py")


class Bench:
    """One engine for many documents, driven without an event loop of the test's own."""

    def __init__(self, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self._folder = folder
        self._count = 0
        self.engine = LocalEngine(1)
        self.folder = folder
        self.reports: list[tuple[int, int | None]] = []

    def parse(self, path: Path, name: str | None = None, **options: Any) -> Parsed:
        self._count += 1
        self.folder = self._folder / f"out{self._count}"
        self.folder.mkdir()
        self.reports = []
        work = Work(1, uuid4(), path, path.name if name is None else name, self.folder, options)
        return self._runner.run(self.engine.start(work, lambda done, total: self.reports.append((done, total))))

    def close(self) -> None:
        self._runner.run(self.engine.close())
        self._runner.close()


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("bench"))
    yield bench
    bench.close()


@pytest.fixture
def naughty(tmp_path: Path) -> Callable[..., Any]:
    """Run a coroutine function with an engine of naughty children and a way to order something from them."""

    def run(play: Callable[..., Awaitable[Any]], limits: Limits | None = None, slots: int = 1) -> Any:
        async def whole() -> Any:
            engine = LocalEngine(slots, limits or Limits(seconds=20), child_module=NAUGHTY)
            numbers = iter(range(1000))

            def order(what: str, rest: object = "") -> Work:
                number = next(numbers)
                source = tmp_path / f"order{number}"
                source.write_text(f"{what}\n{rest}")
                folder = tmp_path / f"folder{number}"
                folder.mkdir()
                return Work(number, uuid4(), source, "order.txt", folder)

            try:
                return await play(engine, order)
            finally:
                await engine.close()

        return asyncio.run(whole())

    return run
