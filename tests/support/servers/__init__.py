"""Real servers for the tests. Fixtures in tests/conftest.py share one of each; start your own to kill it:

with Postgres() as server:
    server.kill()
    server.start()
"""

from support.servers.mineru import MinerUServer
from support.servers.objects import ObjectServer, S3Address
from support.servers.postgres import Postgres, PostgresAddress
from support.servers.process import ServiceFailed
from support.servers.redis import Redis, RedisAddress
from support.servers.reuse import Running

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
