"""Lines to PostgreSQL, Redis and S3 that are slow, cut connections or swallow everything: who waits, and for how long.

    python -m bench.chaos.lines

Each line of the report: what was done to the network, what a client asked for, what it was told and after how many
seconds. The exit code is 1 if an answer took longer than its limit, if it was none that a client may get, or if a
document was not processed once the line was good again.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from bench.chaos.network import Network
from support.servers import ObjectServer, Postgres, PostgresAddress, Redis, RedisAddress, S3Address
from support.serving import Etl, Fleet, Services

STATEMENT_S = 20.0
"""A statement's time limit, and that of a connection to cancel it."""
OBJECT_S = 35.0
MAY_BE = frozenset({200, 201, 503})


@dataclass
class Lines:
    """A deployment, and the three lines that it hangs on."""

    fleet: Fleet
    http: httpx2.Client
    postgres: Network
    redis: Network
    objects: Network
    bad: list[str] = field(default_factory=list)

    @property
    def etl(self) -> Etl:
        return Etl(self.http)

    def asks(self, what: str, ask: Callable[[], httpx2.Response], limit_s: float) -> str:
        """What it is told; a fault is kept."""
        began = time.monotonic()
        answer = ask()
        took = time.monotonic() - began
        said = f"{what}: {answer.status_code} after {took:.1f} s (limit {limit_s:g})"
        patient = answer.status_code != 503 or "retry-after" in answer.headers
        if took > limit_s or answer.status_code not in MAY_BE or not patient:
            self.bad.append(f"{said} {answer.text[:200]}")
        return said

    def lists(self, limit_s: float) -> str:
        return self.asks("list", lambda: self.http.get(f"{Etl.BASE}/tasks"), limit_s)

    def uploads(self, limit_s: float) -> str:
        form = {"data": {"project_id": "1"}, "files": {"file": ("a.txt", b"some text")}}
        return self.asks("upload", lambda: self.http.post(f"{Etl.BASE}/upload", **form), limit_s)

    def processes(self, seconds: float = 60.0) -> str:
        """A document from beginning to end, by a client that tries again."""
        began, text = time.monotonic(), f"at {time.monotonic()}".encode()
        while True:
            try:
                task = self.etl.wait(self.etl.submit("again.txt", text), seconds=seconds)
                break
            except AssertionError:
                if time.monotonic() - began > seconds:
                    self.bad.append("no document was processed any more")
                    return "no document"
        if task["status"] != "completed":
            self.bad.append(f"a document ended as {task}")
        return f"a document: {task['status']} after {time.monotonic() - began:.1f} s"


@contextmanager
def lines(postgres: PostgresAddress, redis: RedisAddress, s3: S3Address, folder: Path) -> Iterator[Lines]:
    with ExitStack() as stack:
        environment = Services(postgres, redis, s3).open(stack)
        names = ("DATABASE_URL", "REDIS_URL", "AWS_ENDPOINT_URL")
        networks = [stack.enter_context(Network(environment[name])) for name in names]
        environment |= dict(zip(names, (one.url for one in networks), strict=True))
        pace = {"DOCMILL_LEASE": "4", "DOCMILL_HEARTBEAT": "1", "DOCMILL_SWEEP": "0.5"}
        fleet = stack.enter_context(Fleet(folder / "data", "--jobs", "1", **pace, **environment))
        http = stack.enter_context(httpx2.Client(base_url=fleet.url, timeout=120, trust_env=False))
        yield Lines(fleet, http, *networks)
        for one in networks:
            one.heal()


def main() -> int:
    with ExitStack() as stack:
        servers = [stack.enter_context(kind()).address for kind in (Postgres, Redis, ObjectServer)]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="docmill-lines-")))
        place = stack.enter_context(lines(*servers, folder))
        print("good lines:", place.processes())
        place.redis.is_silent = True
        print("Redis silent:", place.lists(5), "|", place.processes())
        place.redis.heal()
        place.objects.reset_share = 0.5
        print("S3 cut at every second piece:", place.uploads(OBJECT_S), "|", place.uploads(OBJECT_S))
        place.objects.heal()
        place.objects.is_silent = True
        print("S3 silent:", place.uploads(OBJECT_S), "|", place.lists(5))
        place.objects.heal()
        print("good again:", place.processes())
        place.postgres.reset_share = 0.5
        print("PostgreSQL cut at every second piece:", place.lists(STATEMENT_S + 5), "|", place.lists(STATEMENT_S + 5))
        place.postgres.heal()
        print("good again:", place.processes())
        place.postgres.is_silent = True
        print("PostgreSQL silent:", place.lists(STATEMENT_S + 5), "|", place.uploads(5))
        place.postgres.heal()
        print("good again:", place.processes())
        for one in (place.postgres, place.redis, place.objects):
            one.latency_s = 1.0
        print("2 s there and back, everywhere:", place.lists(15), "|", place.uploads(15))
        for one in (place.postgres, place.redis, place.objects):
            one.heal()
        print("good again:", place.processes())
    print("\n".join(place.bad) or "nobody waited for longer than allowed")
    return 1 if place.bad else 0


if __name__ == "__main__":
    sys.exit(main())
