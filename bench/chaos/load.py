"""Clients that never give up: they send again, with the same Idempotency-Key, until they have seen an answer."""

from __future__ import annotations

import io
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx2

BASE = "/api/v1/etl"
PATIENT = frozenset({429, 503, 507})
"""What a client may be told while something is down: later, please."""


@dataclass(frozen=True)
class Document:
    name: str
    data: bytes
    marker: str
    key: str


KINDS = {"txt": 6, "html": 3, "pdf": 1}


def documents(chance: random.Random, count: int, kinds: Mapping[str, int] = KINDS) -> list[Document]:
    """Tiny ones, each with a word of its own by which its result is known."""
    made = []
    for number in range(count):
        marker = f"marker{chance.getrandbits(48):012x}"
        kind = chance.choices(list(kinds), weights=list(kinds.values()))[0]
        key = str(UUID(int=chance.getrandbits(128), version=4))
        made.append(Document(f"{marker}.{kind}", _bytes(kind, marker, number, chance), marker, key))
    return made


def _bytes(kind: str, marker: str, number: int, chance: random.Random) -> bytes:
    if kind == "txt":
        return f"# Document {number}\n\n{marker} {'word ' * chance.randrange(400)}".encode()
    if kind == "html":
        return f"<html><body><h1>Document {number}</h1><p>{marker}</p></body></html>".encode()
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out)
    canvas.setFont("Helvetica", 14)
    canvas.drawString(72, 770, f"Document {number} is about {marker} and nothing else.")
    canvas.save()
    return out.getvalue()


@dataclass
class Load:
    urls: list[str]
    seed: int
    cancel_share: float = 0.03
    accepted: dict[int, Document] = field(default_factory=dict)
    cancelled: dict[int, bool] = field(default_factory=dict)
    """Tasks that somebody wanted cancelled, and whether that was confirmed."""
    answers: Counter[str] = field(default_factory=Counter)
    twice: list[str] = field(default_factory=list)
    """Keys for which two different tasks were seen."""
    is_enough: bool = False
    """Nothing more is submitted."""
    stop: bool = False

    def start(self, made: list[Document], clients: int, per_second: float | None = None) -> list[threading.Thread]:
        pause = clients / per_second if per_second else 0.0
        threads = [
            threading.Thread(target=self._client, args=(made[n::clients], n, pause), daemon=True)
            for n in range(clients)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _client(self, made: list[Document], number: int, pause: float) -> None:
        chance = random.Random(f"{self.seed}/{number}")
        with suppress(SystemExit), httpx2.Client(timeout=10, trust_env=False) as http:
            for document in made:
                if self.is_enough:
                    return
                began = time.monotonic()
                self._submit(http, document, chance)
                time.sleep(max(0.0, pause - (time.monotonic() - began)))

    def _submit(self, http: httpx2.Client, document: Document, chance: random.Random) -> None:
        files = {"file": (document.name, document.data)}
        stored = self._sent(http, chance, "/upload", data={"project_id": "1"}, files=files)
        body = {"project_id": 1, "filename": document.name, "s3_key": stored["key"], **self.wishes_of(document)}
        headers = {"Idempotency-Key": document.key}
        task_id = self._sent(http, chance, "/submit", json=body, headers=headers)["task_id"]
        self.accepted[task_id] = document
        self.on_accepted(task_id, document)
        if chance.random() < 0.1:
            again = self._sent(http, chance, "/submit", json=body, headers=headers)["task_id"]
            if again != task_id:
                self.twice.append(document.key)
        if chance.random() < self.cancel_share and self.may_cancel(document):
            self.cancelled[task_id] = False
            answer = self._sent(http, chance, f"/tasks/{task_id}/cancel", params={"force": "true"}, may_be=(409,))
            self.cancelled[task_id] = "code" not in answer

    def wishes_of(self, document: Document) -> dict[str, Any]:
        """What the submission asks for beyond the plain run. The same each time that a document is sent."""
        return {}

    def on_accepted(self, task_id: int, document: Document) -> None:
        """A client saw that its task was accepted."""

    def may_cancel(self, document: Document) -> bool:
        return True

    def ends_of(self, task_id: int) -> set[str]:
        """The ends that are right for a task."""
        if task_id not in self.cancelled:
            return {"completed"}
        return {"cancelled"} if self.cancelled[task_id] else {"cancelled", "completed"}

    def retries_of(self, task_id: int) -> int:
        """Retries by hand that were sent."""
        return 0

    def _sent(
        self, http: httpx2.Client, chance: random.Random, path: str, *, may_be: tuple[int, ...] = (), **request: Any
    ) -> dict[str, Any]:
        while not self.stop:
            try:
                answer = http.post(chance.choice(self.urls) + BASE + path, **request)
            except httpx2.TransportError:
                self.answers["no answer"] += 1
            else:
                self.answers[str(answer.status_code)] += 1
                if answer.is_success or answer.status_code in may_be:
                    return dict(answer.json())
                if answer.status_code not in PATIENT:
                    self.answers[f"bad: {answer.text[:300]}"] += 1
                elif "retry-after" not in answer.headers:
                    self.answers[f"no Retry-After: {answer.text[:200]}"] += 1
            time.sleep(0.05)
        raise SystemExit
