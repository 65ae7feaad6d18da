"""The client through which all adapters on Redis speak: it fails fast, and its connections come back by themselves."""

from __future__ import annotations

import time
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import ConnectionError as RedisGone
from redis.exceptions import RedisError

SECONDS = 2.0
"""Longer than this nobody waits for Redis: everything that it does can be done without."""
AWAY_S = 0.5
"""After a fault it is left alone for a moment, so that a Redis that swallows packets does not slow every request."""
CONNECTIONS = 50


class Client(Redis):
    """`redis.asyncio.Redis` that, after a fault, says for a moment that Redis is gone without asking it."""

    away_until = 0.0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        if time.monotonic() < self.away_until:
            raise RedisGone("away")
        try:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except (RedisGone, OSError, TimeoutError):
            self.away_until = time.monotonic() + AWAY_S
            raise

    @property
    def is_away(self) -> bool:
        return time.monotonic() < self.away_until


def connect(url: str) -> Client:
    """A client for the database that the URL names. No connection is made before it is needed."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS,
        timeout=SECONDS,
        socket_timeout=SECONDS,
        socket_connect_timeout=SECONDS,
        health_check_interval=15,
    )
    client = Client(connection_pool=pool)
    client.auto_close_connection_pool = True
    return client


__all__ = ["Client", "RedisError", "connect"]
