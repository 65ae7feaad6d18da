"""The wide load: external jobs, twins, mounts, retries by hand, webhooks, and watchers that resume elsewhere."""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from bench.chaos.history import ENDS, Expected, Line, Reading, Stream
from bench.chaos.load import BASE, Document, Load
from bench.chaos.outside import ReportingWorker, WebhookReceiver

HOOKS = "/api/v1/webhooks"
JSON = {"Accept": "application/json"}
WATCH_S = 240.0
"""A watcher gives a task up after this."""
QUIET_S = 20.0
"""A stream that says nothing for so long is broken; docmill sends a comment every 15 s at least."""


@dataclass(frozen=True)
class Shares:
    """Which part of the tasks has each property. They combine."""

    external: float = 0.3
    twin: float = 0.3
    mount: float = 0.3
    retry: float = 0.12
    watch: float = 0.4
    read: float = 0.3


@dataclass
class Wish:
    body: dict[str, Any]
    is_retried: bool
    is_watched: bool
    is_read: bool


@dataclass
class MixedLoad(Load):
    """Clients as in `Load` that also ask for everything else, and observe what becomes of it."""

    worker: ReportingWorker | None = None
    receiver: WebhookReceiver | None = None
    shares: Shares = field(default_factory=Shares)
    table_id: int = 0
    webhook_id: str = ""
    streams: list[Stream] = field(default_factory=list)
    readings: dict[int, list[Reading]] = field(default_factory=dict)
    retries_sent: Counter[int] = field(default_factory=Counter)
    retries_confirmed: Counter[int] = field(default_factory=Counter)
    watchers: int = 6
    _wishes: dict[str, Wish] = field(default_factory=dict)
    _watch: queue.Queue[int] = field(default_factory=queue.Queue)
    _retry: queue.Queue[int] = field(default_factory=queue.Queue)
    _read: queue.Queue[int] = field(default_factory=queue.Queue)
    _observers: list[threading.Thread] = field(default_factory=list)

    def prepare(self) -> None:
        """Make the table and the webhook, and start the observers. Nothing is under fire yet."""
        assert self.worker
        assert self.receiver
        self.worker.urls = self.urls
        with httpx2.Client(base_url=self.urls[0], timeout=30, trust_env=False) as http:
            table = http.post("/api/v1/projects/1/tables", json={"name": "mounts", "data": {"all": []}})
            table.raise_for_status()
            self.table_id = int(table.json()["id"])
            webhook = http.post(HOOKS, json={"url": f"{self.receiver.url}/in", "events": []})
            webhook.raise_for_status()
            self.webhook_id = str(webhook.json()["id"])
        work = [self._watch_tasks] * self.watchers + [self._retry_tasks, self._read_tasks]
        for number, target in enumerate(work):
            thread = threading.Thread(target=target, args=(random.Random(f"{self.seed}/o{number}"),), daemon=True)
            self._observers.append(thread)
            thread.start()

    def finish(self, seconds: float) -> int:
        """Let the observers see the ends of their tasks; how many did not."""
        if self.receiver:
            self.receiver.is_steady = True
        ends = time.monotonic() + seconds
        for waiting in (self._retry, self._watch, self._read):
            while waiting.unfinished_tasks and time.monotonic() < ends:
                time.sleep(0.05)
        unfinished = sum(waiting.unfinished_tasks for waiting in (self._retry, self._watch, self._read))
        if self.worker and not self.worker.join(max(1.0, ends - time.monotonic())):
            unfinished += 1
        return unfinished

    def close(self) -> None:
        self.stop = True
        for thread in self._observers:
            thread.join(QUIET_S)

    # What is asked for

    def wish_of(self, document: Document) -> Wish:
        if document.marker not in self._wishes:
            chance, shares = random.Random(f"{self.seed}/{document.marker}"), self.shares
            body: dict[str, Any] = {}
            if chance.random() < shares.external:
                body["engine"] = "secretary"
            if chance.random() < shares.twin:
                body["twin"] = {"folder": "twins"}
            if chance.random() < shares.mount:
                body["mount"] = {"table_id": self.table_id, "json_path": "/all"}
            drawn = [chance.random() < share for share in (shares.retry, shares.watch, shares.read)]
            self._wishes[document.marker] = Wish(body, *drawn)
        return self._wishes[document.marker]

    def wishes_of(self, document: Document) -> dict[str, Any]:
        return self.wish_of(document).body

    def may_cancel(self, document: Document) -> bool:
        return not self.wish_of(document).is_retried

    def on_accepted(self, task_id: int, document: Document) -> None:
        wish = self.wish_of(document)
        for waiting, is_wanted in (
            (self._watch, wish.is_watched),
            (self._retry, wish.is_retried),
            (self._read, wish.is_read),
        ):
            if is_wanted:
                waiting.put(task_id)

    def ends_of(self, task_id: int) -> set[str]:
        ends = super().ends_of(task_id)
        may_fail = self.worker and self.worker.may_fail(self.accepted[task_id].marker)
        return ends | {"failed"} if may_fail and "completed" in ends else ends

    def retries_of(self, task_id: int) -> int:
        return self.retries_sent[task_id]

    def expected(self, task_id: int) -> Expected:
        document = self.accepted[task_id]
        wishes = self.wishes_of(document)
        return Expected(
            document.marker,
            frozenset(self.ends_of(task_id)),
            retries_sent=self.retries_sent[task_id],
            retries_confirmed=self.retries_confirmed[task_id],
            is_external="engine" in wishes,
            is_mounted="mount" in wishes,
            has_twin="twin" in wishes,
        )

    # Observers

    def _next(self, waiting: queue.Queue[int]) -> int | None:
        while not self.stop:
            with suppress(queue.Empty):
                return waiting.get(timeout=0.2)
        return None

    def _watch_tasks(self, chance: random.Random) -> None:
        with httpx2.Client(timeout=httpx2.Timeout(10, read=QUIET_S), trust_env=False) as http:
            while (task_id := self._next(self._watch)) is not None:
                self.streams.append(self._watch_one(http, task_id, chance))
                self._watch.task_done()

    def _watch_one(self, http: httpx2.Client, task_id: int, chance: random.Random) -> Stream:
        """Until the end. After each break it goes on at another process, from the last number that it has."""
        lines: list[Line] = []
        connections, where = 0, chance.randrange(len(self.urls))
        ends = time.monotonic() + WATCH_S
        while time.monotonic() < ends and not self.stop:
            where = (where + 1) % len(self.urls)
            headers = {"Last-Event-ID": str(lines[-1].seq)} if lines else {}
            connections += 1
            most = chance.choice((1, 2, 4, 1000))  # it leaves by itself, too
            try:
                address = f"{self.urls[where]}{BASE}/tasks/{task_id}/events"
                with http.stream("GET", address, headers=headers) as answer:
                    if answer.status_code == 200:
                        self.answers["watched"] += 1
                        if read_stream(answer, lines, most):
                            return Stream(task_id, tuple(lines), True, connections)
                        continue
                    self._judge_refusal("watch", answer)
            except (httpx2.TransportError, httpx2.StreamError):
                self.answers["stream broken"] += 1
            time.sleep(0.1)
        return Stream(task_id, tuple(lines), False, connections)

    def _judge_refusal(self, what: str, answer: httpx2.Response) -> None:
        if answer.status_code not in (429, 503, 507):
            self.answers[f"bad: {what} {answer.status_code}"] += 1

    def _retry_tasks(self, chance: random.Random) -> None:
        with httpx2.Client(timeout=10, trust_env=False) as http:
            while (task_id := self._next(self._retry)) is not None:
                self._retry_one(http, task_id, chance)
                self._retry.task_done()

    def _retry_one(self, http: httpx2.Client, task_id: int, chance: random.Random) -> None:
        """Once it has ended, send it again, until somebody answers. Each try may count: a retry has no key."""
        ends = time.monotonic() + WATCH_S
        while time.monotonic() < ends and not self.stop:
            task = self._get(http, chance, f"{BASE}/tasks/{task_id}")
            if task and task["status"] in ENDS:
                stage = chance.choice(("mineru", "postprocess")) if task["status"] == "completed" else "mineru"
                self.retries_sent[task_id] += 1
                try:
                    address = f"{chance.choice(self.urls)}{BASE}/tasks/{task_id}/retry"
                    answer = http.post(address, json={"from_stage": stage})
                except httpx2.TransportError:
                    self.answers["no answer"] += 1
                else:
                    self.answers[f"retry {answer.status_code}"] += 1
                    self.retries_confirmed[task_id] += answer.is_success
                    if answer.status_code in (200, 409):
                        return
                    self._judge_refusal("retry", answer)
            time.sleep(0.1)

    def _read_tasks(self, chance: random.Random) -> None:
        """Read some tasks again and again, from any process, until each has ended."""
        open_tasks: dict[int, float] = {}
        with httpx2.Client(timeout=10, trust_env=False) as http:
            while not self.stop:
                with suppress(queue.Empty):
                    while len(open_tasks) < 20:
                        task_id = self._read.get_nowait()
                        open_tasks[task_id] = time.monotonic() + WATCH_S
                for task_id, ends in list(open_tasks.items()):
                    task = self._get(http, chance, f"{BASE}/tasks/{task_id}")
                    if task:
                        reading = Reading(task["metadata"]["attempt"], task["status"], task["progress"])
                        seen = self.readings.setdefault(task_id, [])
                        if not seen or seen[-1] != reading:
                            seen.append(reading)
                    if (task and task["status"] in ENDS) or time.monotonic() > ends:
                        del open_tasks[task_id]
                        self._read.task_done()
                time.sleep(0.05)

    def _get(self, http: httpx2.Client, chance: random.Random, path: str) -> dict[str, Any] | None:
        try:
            answer = http.get(chance.choice(self.urls) + path)
        except httpx2.TransportError:
            return None
        if answer.is_success:
            return dict(answer.json())
        self._judge_refusal(path, answer)
        return None


def read_stream(answer: httpx2.Response, lines: list[Line], most: int) -> bool:
    """Append up to *most* events of a stream. True: it told the end."""
    number, kind = 0, ""
    for text in answer.iter_lines():
        name, _, value = text.partition(": ")
        if name == "id":
            number = int(value)
        elif name == "event":
            kind = value
        elif name == "data" and kind == "end":
            return True
        elif name == "data":
            said = json.loads(value)
            lines.append(Line(number, kind, said["data"]))
            most -= 1
            if most <= 0:
                return False
    return False


def environment(worker: ReportingWorker, receiver: WebhookReceiver, library: Path) -> dict[str, str]:
    """The settings that a deployment needs for this load."""
    return {"DOCMILL_WORKERS": worker.settings(), "DOCMILL_LIBRARY": str(library), **receiver.settings()}
