"""Who stands beside a deployment during a run: an external worker that reports, and a receiver of webhooks."""

from __future__ import annotations

import base64
import io
import json
import random
import re
import threading
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

import httpx2

from bench.chaos.history import Final, Received
from support.loopback import Loopback
from support.peers import Asked, ProviderPeer, Reply, route

MARKER = re.compile(r"marker[0-9a-f]{12}")
TAG = re.compile(r"report-[0-9a-f]{8}-[0-9]+")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
GIVE_UP_S = 240.0
"""A worker repeats a report for so long."""
LARGE_PICTURE_BYTES = 100_000
"""A report with such a picture is larger than what the callback route keeps in memory."""
MANNERS = {"plain": 4, "duplicates": 3, "rivals": 3, "slow": 3, "late": 2, "failing": 1}
"""How a worker reports, with weights. Only `rivals` and `failing` can end a task as failed."""


@dataclass
class Job:
    """A job as its worker knows it."""

    job_id: str
    path: str
    token: str
    marker: str
    manner: str
    chance: random.Random


@dataclass(frozen=True)
class Body:
    final: Final
    raw: bytes
    is_slow: bool = False


class ReportingWorker(ProviderPeer):
    """A secretary that reports as its manner says: once, several times, different things at once, slowly or late.

    Reports go to any of the API processes, and are repeated until one of them answers.
    """

    def __init__(self, seed: int, manners: Mapping[str, int] = MANNERS) -> None:
        super().__init__()
        self.seed = seed
        self.weights = manners
        self.urls: list[str] = []
        self.stopped = threading.Event()
        self.manners: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._answers: dict[str, list[int]] = defaultdict(list)
        self._finals: dict[str, Final] = {}
        self._failing: set[str] = set()
        self._taken: list[tuple[Job, Body]] = []
        """Finals that were answered with 200."""
        self._threads: list[threading.Thread] = []
        self._http = httpx2.Client(timeout=15, trust_env=False)

    def __exit__(self, *exc: object) -> None:
        self.stopped.set()
        self.join(5)
        super().__exit__(*exc)
        self._http.close()

    def settings(self) -> str:
        """For DOCMILL_WORKERS."""
        return json.dumps({"secretary": {"dialect": "secretary", "url": f"{self.url}/pdf/process", "timeout": 60}})

    @property
    def finals(self) -> list[Final]:
        with self.lock:
            return [replace(one, answers=tuple(self._answers[tag])) for tag, one in self._finals.items()]

    def may_fail(self, marker: str) -> bool:
        return marker in self._failing

    def forget(self) -> None:
        """Drop everything that was recorded, for a run that lasts."""
        with self.lock:
            self.seen.clear()
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._answers.clear()
            self._finals.clear()
            self._calls.clear()
            self._failing.clear()
            self._taken.clear()

    def repeat_finals(self) -> int:
        """Send every final that was taken once more, and a different one for the same job; how many there were."""
        with self.lock:
            taken = list(self._taken)
        for number, (job, body) in enumerate(taken):
            for again in (body, self._completed(job, 100 + number)):
                self._send(job, again, random.Random(f"{job.job_id}/again"))
        return len(taken)

    def join(self, seconds: float) -> bool:
        """Whether every report was answered in time."""
        ends = time.monotonic() + seconds
        # A retry may start another job meanwhile.
        while busy := [thread for thread in tuple(self._threads) if thread.is_alive()]:
            if time.monotonic() >= ends:
                return False
            busy[0].join(max(0.0, ends - time.monotonic()))
        return True

    @route("POST", "/pdf/process")
    def process(self, asked: Asked) -> Reply:
        fields, files = asked.form()
        found = MARKER.search(files["file"][0])
        marker = found[0] if found else ""
        self._calls[marker] += 1
        chance = random.Random(f"{self.seed}/{marker}/{self._calls[marker]}")
        path = urlsplit(fields["callback_url"][0]).path
        manner = chance.choices(list(self.weights), list(self.weights.values()))[0]
        job = Job(path.rsplit("/", 1)[1], path, fields["callback_token"][0], marker, manner, chance)
        self.manners[manner] += 1
        self.seen.clear()
        self._start(self._report, job)
        return Reply(202, {"status": "accepted", "process": {"id": f"p-{job.job_id[:8]}"}})

    @route("DELETE", "/jobs/(.+)")
    def cancel(self, asked: Asked) -> Reply:
        return Reply(200, {})

    def _start(self, target: Any, *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _report(self, job: Job) -> None:
        for percent in (20, 70):
            progress = {"phase": "extract_text", "progress": percent, "message": f"{percent} %"}
            self._send(job, Body(Final(job.job_id, ""), json.dumps(progress).encode()), random.Random(percent))
            self.stopped.wait(job.chance.uniform(0.0, 0.3))
        bodies = list(self._bodies(job))
        late = bodies[1:] if job.manner == "late" else []
        # Each sender has its own source of chance: threads must not share one, or the seed means nothing.
        senders = [
            self._start(self._send, job, body, random.Random(f"{job.job_id}/{number}"))
            for number, body in enumerate(bodies[: len(bodies) - len(late)])
        ]
        for sender in senders:
            sender.join(GIVE_UP_S)
        for body in late:
            self.stopped.wait(job.chance.uniform(0.2, 1.0))
            self._send(job, body, job.chance)

    def _bodies(self, job: Job) -> Iterator[Body]:
        one = self._completed(job, 0)
        match job.manner:
            case "duplicates":
                yield from [one] * 3
            case "rivals":
                yield from (one, self._completed(job, 1), self._failed(job, 2))
            case "slow":
                yield replace(one, is_slow=True)
                yield self._completed(job, 1)
            case "late":
                yield from (one, one, self._completed(job, 1))
            case "failing":
                yield self._failed(job, 0)
            case _:
                yield one

    def _completed(self, job: Job, number: int) -> Body:
        tag = f"report-{job.job_id[:8]}-{number}"
        pictures = [_picture(f"{tag}/{n}", tag, large=n == 0 and job.chance.random() < 0.3) for n in range(2)]
        text = f"# {job.marker}\n\nThis is {tag}.\n\n" + "A line of the result.\n" * job.chance.randrange(200)
        data = {
            "extracted_text": text,
            "images_archive_data": base64.b64encode(_archive(pictures)).decode(),
            "images_archive_filename": "pdf_images.zip",
            "metadata": {"text_contents": [{"page": n + 1, "content": f"{tag}, page {n + 1}"} for n in range(2)]},
        }
        final = Final(job.job_id, tag, tuple(sha256(one).hexdigest() for one in pictures))
        return self._keep(final, {"phase": "completed", "message": "done", "data": data})

    def _failed(self, job: Job, number: int) -> Body:
        self._failing.add(job.marker)
        final = Final(job.job_id, f"report-{job.job_id[:8]}-{number}", fails=True)
        return self._keep(final, {"phase": "failed", "error": {"code": "OCR_TIMEOUT", "message": final.tag}})

    def _keep(self, final: Final, body: dict[str, Any]) -> Body:
        with self.lock:
            self._finals[final.tag] = final
        return Body(final, json.dumps(body).encode())

    def _send(self, job: Job, body: Body, chance: random.Random) -> None:
        headers = {"Authorization": f"Bearer {job.token}", "Content-Type": "application/json"}
        ends = time.monotonic() + GIVE_UP_S
        while time.monotonic() < ends and not self.stopped.is_set():
            content = _slowly(body.raw, chance) if body.is_slow else body.raw
            try:
                answer = self._http.post(chance.choice(self.urls) + job.path, content=content, headers=headers)
            except httpx2.TransportError:
                self.stopped.wait(0.1)
                continue
            if answer.status_code == 429 or answer.status_code >= 500:
                if answer.status_code not in (429, 503, 507) and body.final.tag:
                    self._answers[body.final.tag].append(answer.status_code)
                self.stopped.wait(0.2)
                continue
            if body.final.tag:
                self._answers[body.final.tag].append(answer.status_code)
                if answer.status_code == 200:
                    with self.lock:
                        self._taken.append((job, body))
            return


def _slowly(raw: bytes, chance: random.Random, pieces: int = 6) -> Iterator[bytes]:
    size = len(raw) // pieces + 1
    for start in range(0, len(raw), size):
        time.sleep(chance.uniform(0.05, 0.3))
        yield raw[start : start + size]


def _picture(seed: str, tag: str, *, large: bool) -> bytes:
    """A PNG that no other picture equals, with the tag of its report at the end."""
    filler = random.Random(seed).randbytes(LARGE_PICTURE_BYTES if large else 16)
    return PNG + filler + seed.encode() + tag.encode()


def _archive(pictures: Sequence[bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for number, data in enumerate(pictures):
            zipped.writestr(f"image_{number + 1}.png", data)
    return buffer.getvalue()


@dataclass
class _Copies:
    accepted: int = 0
    bodies: set[str] = field(default_factory=set)


class WebhookReceiver(Loopback):
    """Receives webhooks. Every few seconds it is away for a while: it answers 503, or cuts the connection."""

    period_s = 3.0
    away_s = 1.0

    def __init__(self) -> None:
        super().__init__(partial(_Receiving, self))
        self.is_steady = False
        self.refused = 0
        self._guard = threading.Lock()
        self._copies: dict[str, _Copies] = defaultdict(_Copies)

    def settings(self) -> dict[str, str]:
        """The schedule of three days shrinks to ten minutes: a receiver that is away for 1 s is tried again soon."""
        return {
            "DOCMILL_WEBHOOK_NETWORKS": '["127.0.0.1/32"]',
            "DOCMILL_WEBHOOK_PORTS": str([self.port]),
            "DOCMILL_WEBHOOK_TIMEOUT": "2",
            "DOCMILL_WEBHOOK_DAYS": str(600 / 86_400),
        }

    @property
    def received(self) -> list[Received]:
        with self._guard:
            return [Received(name, one.accepted, len(one.bodies)) for name, one in self._copies.items()]

    def forget(self) -> None:
        with self._guard:
            self._copies.clear()

    def note(self, message_id: str, body: bytes, *, is_accepted: bool) -> None:
        with self._guard:
            copies = self._copies[message_id]
            copies.accepted += is_accepted
            copies.bodies.add(sha256(body).hexdigest())
            self.refused += not is_accepted

    @property
    def away(self) -> str:
        """How it is away just now; empty: it is there."""
        turn, since = divmod(time.monotonic(), self.period_s)
        if self.is_steady or since >= self.away_s:
            return ""
        return "status" if int(turn) % 2 else "cut"


class _Receiving(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def __init__(self, receiver: WebhookReceiver, *args: Any) -> None:
        self.receiver = receiver
        super().__init__(*args)

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        body = self.rfile.read(size)
        if len(body) < size:  # the sender was killed: that is no message
            self.close_connection = True
            return
        away = self.receiver.away
        self.receiver.note(self.headers["webhook-id"], body, is_accepted=not away)
        if away == "cut":
            self.close_connection = True
            return
        self.send_response(503 if away else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass
