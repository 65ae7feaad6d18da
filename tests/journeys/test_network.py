"""Lines that break or swallow everything, and clients that hardly send anything (R14).

`python -m bench.chaos.lines` also waits for the time-outs of PostgreSQL and S3, which are longer.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

from bench.chaos.lines import Lines, lines
from support.servers import PostgresAddress, RedisAddress, S3Address

LORIS = 60
"""Clients at once that hardly send anything."""
HEAD = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Length: 100000\r\n\r\n{{"


@pytest.fixture(scope="module")
def place(
    postgres: PostgresAddress, redis_server: RedisAddress, s3: S3Address, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lines]:
    with lines(postgres, redis_server, s3, tmp_path_factory.mktemp("lines")) as place:
        yield place


@pytest.fixture(autouse=True)
def healed(place: Lines) -> Iterator[None]:
    yield
    for one in (place.postgres, place.redis, place.objects):
        one.heal()
    place.processes()
    assert [] == place.bad


def test_a_redis_that_swallows_everything_holds_nobody_up(place: Lines) -> None:
    place.redis.is_silent = True

    place.lists(10)
    place.processes()


def test_connections_that_are_cut_cost_a_503_at_most(place: Lines) -> None:
    place.objects.reset_share = 0.4
    place.postgres.reset_share = 0.2

    for _ in range(4):
        place.uploads(40)
        place.lists(30)


def test_clients_that_hardly_send_anything_hold_nobody_up(place: Lines) -> None:
    with ExitStack() as stack:
        for number in range(LORIS):
            path = (f"/api/external/jobs/{uuid4()}", f"/api/v1/tasks/{uuid4()}/callback/")[number % 2]
            loris = stack.enter_context(socket.create_connection(("127.0.0.1", place.fleet.port), timeout=10))
            loris.sendall(HEAD.format(path=path, token="x" * 32).encode())
        began = time.monotonic()
        place.lists(10)
        place.processes()
        assert time.monotonic() - began < 60
