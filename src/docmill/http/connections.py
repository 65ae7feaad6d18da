"""How many connections there may be, and for how long one may hold its place without a request.

A connection is busy while a request of it is answered, and idle otherwise: before its first request, between two, and
while it sends a head. When there is no room for a new connection, the one that has been idle for longest is closed;
only if all are busy is the new one refused. So silent connections, however many, keep nobody out.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from docmill.http.peers import Network, bucket_of, is_within

SWEEP_S = 0.5

log = structlog.get_logger("docmill.http")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    max_open: int = 4096
    max_per_address: int = 1024
    """Of one IPv4 address or IPv6 /64 network."""
    proxies: Sequence[Network] = ()
    """Trusted proxies bring many callers each: they have no limit of their own."""
    head_s: float = 10.0
    """From the connection, or the first byte of a later request, to the end of the request's head."""
    max_head_bytes: int = 64 * 1024
    keep_alive_s: float = 75.0
    """Between two requests."""
    stalled_s: float = 60.0
    """A client that takes nothing of an answer for so long is cut off."""
    max_pipelined: int = 16
    """Requests that wait behind the one that is answered."""


class Connection(Protocol):
    """What the registry must know of one."""

    @property
    def is_busy(self) -> bool: ...

    def overdue(self, now: float) -> bool:
        """Whether its time is up; it then ends itself."""
        ...

    def close_idle(self) -> None: ...


class Connections(Collector):
    """All open connections of the server, by address."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: OrderedDict[Connection, str] = OrderedDict()
        """Longest idle first, as far as they are idle."""
        self._by_address: dict[str, OrderedDict[Connection, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._refused = self._evicted = self._timed_out = 0
        self._logged = (0, 0)

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection, peer: str) -> bool:
        """Take a new connection in, if need be in place of an idle one. False: all are busy."""
        address = bucket_of(peer)
        near = self._by_address.setdefault(address, OrderedDict())
        has_room = len(near) < self.limits.max_per_address or is_within(peer, self.limits.proxies)
        if not (has_room or self._evict(near)) or not (len(self) < self.limits.max_open or self._evict(self._open)):
            self._refused += 1
            if not near:
                del self._by_address[address]
            return False
        self._open[connection] = address
        # An eviction may have removed the last connection of this address, and its entry with it.
        self._by_address.setdefault(address, near)[connection] = None
        self._watch()
        return True

    def touch(self, connection: Connection) -> None:
        """It has just become idle."""
        if address := self._open.get(connection):
            self._open.move_to_end(connection)
            self._by_address[address].move_to_end(connection)

    def discard(self, connection: Connection) -> None:
        address = self._open.pop(connection, None)
        if address is None:
            return
        near = self._by_address[address]
        near.pop(connection, None)
        if not near:
            del self._by_address[address]

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("docmill_http_connections", "Open connections", len(self))
        closed = CounterMetricFamily(
            "docmill_http_connections_closed", "Connections closed to keep within limits", labels=("reason",)
        )
        for reason, number in (
            ("refused", self._refused),
            ("evicted", self._evicted),
            ("timed_out", self._timed_out),
        ):
            closed.add_metric((reason,), number)
        yield closed

    def _evict(self, among: OrderedDict[Connection, str] | OrderedDict[Connection, None]) -> bool:
        idle = next((one for one in among if not one.is_busy), None)
        if idle is None:
            return False
        self._evicted += 1
        self.discard(idle)
        idle.close_idle()
        return True

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """One timer for all connections: a timer each would cost more than most requests do."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for one in list(self._open):
            if one.overdue(now):
                self._timed_out += 1
                self.discard(one)
        if self._logged != (closed := (self._refused, self._evicted)):
            refused, evicted = (new - old for new, old in zip(closed, self._logged, strict=True))
            log.warning("connections_limited", refused=refused, evicted=evicted, open=len(self))
            self._logged = closed
        if self._open:
            self._watch()
