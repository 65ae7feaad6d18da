"""Engines over the network, called as a stage calls them, without the stage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from docmill.adapters.providers.breaker import Breaker
from docmill.adapters.providers.client import Patience, ProviderClient
from docmill.ports import Work
from support.mineru_peers import KEY

SAMPLES = Path(__file__).parents[3] / "samples"
QUICK = Patience(tries=3, first_pause_s=0.01, longest_pause_s=0.5, connect_s=10, silence_s=10, request_s=20)


@pytest.fixture
def work(tmp_path: Path) -> Callable[..., Work]:
    def make(source: Path = SAMPLES / "report.en.pdf", **options: object) -> Work:
        folder = tmp_path / uuid4().hex
        (folder / "assets").mkdir(parents=True)
        return Work(1, uuid4(), source, source.name, folder, options)

    return make


@pytest.fixture
async def client() -> AsyncIterator[Callable[..., ProviderClient]]:
    made: list[ProviderClient] = []

    def make(url: str, name: str = "mineru", key: str = KEY) -> ProviderClient:
        headers = {"Authorization": f"Bearer {key}"}
        made.append(ProviderClient(name, url, headers, patience=QUICK, breaker=Breaker(50)))
        return made[-1]

    yield make
    for one in made:
        await one.close()
