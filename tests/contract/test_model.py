"""Random walks over everything that can happen to a task: a small model and the real thing agree on every step."""

from pathlib import Path

import pytest

from bench.chaos.model import Backend, walk

WALKS, STEPS = 8, 30


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "arq"])
def test_no_walk_on_which_model_and_ledger_differ(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """`python -m bench.chaos.model` takes longer walks."""
    url = request.getfixturevalue("postgres_copy") if kind != "sqlite" else None
    redis = request.getfixturevalue("redis_url") if kind == "arq" else None
    backend = Backend(kind).open(tmp_path, url, redis)
    try:
        walk(backend, examples=WALKS, steps=STEPS)
    finally:
        backend.close()

    assert backend.steps > WALKS * STEPS / 2
