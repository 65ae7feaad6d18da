"""Real servers for the tests. Fixtures in tests/conftest.py share one of each; start your own to kill it:

with Postgres() as server:
    server.kill()
    server.start()
"""

from support.services.mineru import MinerUServer
from support.services.objects import ObjectServer, S3Address
from support.services.postgres import Postgres, PostgresAddress
from support.services.process import ServiceFailed
from support.services.redis import Redis, RedisAddress
from support.services.reuse import Running

__all__ = [
    "MinerUServer",
    "ObjectServer",
    "Postgres",
    "PostgresAddress",
    "Redis",
    "RedisAddress",
    "Running",
    "S3Address",
    "ServiceFailed",
]
