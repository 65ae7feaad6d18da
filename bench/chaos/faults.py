"""What goes wrong, in a random order that a seed repeats."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from bench.chaos.deployments import Deployment, Distributed
from bench.chaos.units import Unit
from support.servers.process import Server

WEIGHTS = {
    "worker": 48,
    "api": 12,
    "zombie": 8,
    "redis": 14,
    "flush": 5,
    "postgres": 8,
    "connections": 5,
}
"""How often each is chosen in the combined schedule."""
KILLS = frozenset({"worker", "api", "redis", "postgres"})


@dataclass
class Storm:
    """Injects faults until it was asked to end and every process is back."""

    place: Deployment
    seed: int
    kinds: tuple[str, ...] = tuple(WEIGHTS)
    pause_s: tuple[float, float] = (0.5, 2.0)
    away_s: tuple[float, float] = (0.0, 5.0)
    done: Counter[str] = field(default_factory=Counter)
    outages: list[tuple[str, float, float]] = field(default_factory=list)
    said: list[tuple[float, str]] = field(default_factory=list)
    """What was done to whom, and when."""
    _later: list[threading.Timer] = field(default_factory=list)
    _away: set[str] = field(default_factory=set)

    @property
    def kills(self) -> int:
        return sum(self.done[kind] for kind in KILLS)

    def rage(self, go_on: Callable[[Storm], bool]) -> None:
        chance = random.Random(self.seed)
        possible = [kind for kind in self.kinds if self._is_possible(kind)]
        weights = [WEIGHTS[kind] for kind in possible]
        while go_on(self):
            time.sleep(chance.uniform(*self.pause_s))
            kind = chance.choices(possible, weights)[0]
            if getattr(self, f"_{kind}")(chance):
                self.done[kind] += 1

    def calm(self) -> None:
        """Every process is thawed, every server is back."""
        for timer in self._later:
            timer.join()
        for unit in self.place.supervisor.units:
            unit.thaw()
        if isinstance(self.place, Distributed):
            for server in (self.place.postgres, self.place.redis):
                server.start()

    def _is_possible(self, kind: str) -> bool:
        return kind in ("worker", "api") or isinstance(self.place, Distributed)

    def _worker(self, chance: random.Random) -> bool:
        return self._kill(chance.choice(self.place.workers))

    def _api(self, chance: random.Random) -> bool:
        return self._kill(chance.choice(self.place.apis))

    def _kill(self, unit: Unit) -> bool:
        was = "frozen " if unit.is_frozen else ""
        killed = self.place.supervisor.kill(unit)
        if killed:
            self._say(f"{was}{unit.name} killed")
        return killed

    def _say(self, what: str) -> None:
        self.said.append((time.time(), what))

    def _zombie(self, chance: random.Random) -> bool:
        unit = chance.choice(self.place.workers)
        seconds = chance.uniform(2, 5) * self.place.pace.lease_s
        if not unit.freeze():
            return False
        process = unit.process
        self._say(f"{unit.name} frozen")

        def thaw() -> None:
            if unit.process is process:
                unit.thaw()
                self._say(f"{unit.name} thawed")

        self._at(seconds, thaw)
        return True

    def _redis(self, chance: random.Random) -> bool:
        assert isinstance(self.place, Distributed)
        return self._outage("redis", self.place.redis, chance.uniform(*self.away_s))

    def _postgres(self, chance: random.Random) -> bool:
        assert isinstance(self.place, Distributed)
        return self._outage("postgres", self.place.postgres, chance.uniform(*self.away_s))

    def _outage(self, name: str, server: Server, seconds: float) -> bool:
        if name in self._away:
            return False
        began = time.time()
        self._away.add(name)
        server.kill()
        self._say(f"{name} away")

        def back() -> None:
            server.start()
            self._say(f"{name} back")
            self.outages.append((name, began, time.time()))
            self._away.discard(name)

        self._at(seconds, back)
        return True

    def _flush(self, _: random.Random) -> bool:
        assert isinstance(self.place, Distributed)
        self.place.flush_redis()
        self._say("redis flushed")
        return True

    def _connections(self, _: random.Random) -> bool:
        assert isinstance(self.place, Distributed)
        with suppress(Exception):  # it may be away just now
            self.place.drop_connections()
            self._say("connections dropped")
            return True
        return False

    def _at(self, seconds: float, what: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, what)
        timer.daemon = True
        timer.start()
        self._later.append(timer)
