"""Rotate the key of callback signatures under load: no valid report is refused, no revoked key counts (S3).

    python -m bench.chaos.rotation --seconds 10

A service takes reports of dispatcher jobs, again and again. It is started with the old key, then with
both, then with the new one; senders change to the new key while both count. A report is sent again while the service
restarts, and refused with 403 only for its signature. In the end the old key is tried: it must not count once.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import bench.chaos  # noqa: F401 - finds the tests' support
from support.elsewhere import Elsewhere, Job, signature
from support.serving import Etl, Service

OLD, NEW = "old-" + "k" * 28, "new-" + "k" * 28
SENDERS = 4
PAUSE_S = 0.05
MAX_PER_ADDRESS = 90
"""Reports from one address: the route takes 100 per minute."""
PATIENT = (429, 503)


@dataclass
class Senders:
    """Workers that report an end again and again, from many addresses of this machine."""

    port: int
    jobs: list[Job]
    key: str = OLD
    stop: bool = False
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    _addresses: itertools.count[int] = field(default_factory=lambda: itertools.count(MAX_PER_ADDRESS))

    def start(self) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._report, args=(job,), daemon=True) for job in self.jobs]
        for thread in threads:
            thread.start()
        return threads

    def _report(self, job: Job) -> None:
        while not self.stop:
            self.send(job, self.key)
            time.sleep(PAUSE_S)

    def send(self, job: Job, key: str) -> int | None:
        """The status, once there is an answer that is not "later"."""
        raw = json.dumps({"status": "failed", "error_message": "it broke"}).encode()
        headers = {
            "Authorization": f"Bearer {job.token}",
            "Content-Type": "application/json",
            "X-Kohakku-Signature": "sha256=" + signature(key, job.id, raw),
        }
        while not self.stop:
            status = self._post(job, raw, headers)
            if status is not None and status not in PATIENT:
                self.answers[key, status] += 1
                return status
            time.sleep(PAUSE_S)
        return None

    def _post(self, job: Job, raw: bytes, headers: dict[str, str]) -> int | None:
        number = next(self._addresses) // MAX_PER_ADDRESS
        address = f"127.0.{number // 250}.{1 + number % 250}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10, source_address=(address, 0))
        try:
            connection.request("POST", "/" + job.url.split("/", 3)[3], raw, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            return None  # it restarts
        finally:
            connection.close()


def rotate(folder: Path, *, seconds: float) -> Counter[tuple[str, int]]:
    with Elsewhere() as worker:
        service = Service(folder / "data", DOCMILL_WORKERS=worker.settings(), CALLBACK_SIGNING_KEY=OLD).start()
        try:
            with service.client() as client:
                etl = Etl(client)
                for number in range(SENDERS):
                    etl.submit(f"{number}.pdf", b"%PDF " + str(number).encode(), engine="dispatcher")
                jobs = [worker.jobs.get(timeout=30) for _ in range(SENDERS)]
            senders = Senders(service.port, jobs)
            threads = senders.start()
            time.sleep(seconds)
            for keys, then in ((f"{OLD},{NEW}", NEW), (NEW, NEW)):
                service.stop()
                service = Service(folder / "data", DOCMILL_WORKERS=worker.settings(), CALLBACK_SIGNING_KEY=keys)
                service.port = senders.port
                service.start()
                time.sleep(seconds)
                senders.key = then
                time.sleep(seconds)
            before = senders.answers[OLD, 200]
            for job in jobs * 5:
                senders.send(job, OLD)
            if senders.answers[OLD, 200] != before:
                raise AssertionError("a revoked key counts")
            senders.stop = True
            for thread in threads:
                thread.join(30)
            return senders.answers
        finally:
            if service.is_running:
                service.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="with each set of keys")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        answers = rotate(Path(folder), seconds=given.seconds)
    names = {OLD: "old", NEW: "new"}
    for (key, status), number in sorted(answers.items()):
        print(f"{names[key]} key: {number} times {status}")
    refused = sum(number for (key, status), number in answers.items() if status != 200)
    is_good = refused == answers[OLD, 403] == SENDERS * 5 and answers[OLD, 200] and answers[NEW, 200]
    print("no valid report was refused, and no revoked key counted" if is_good else "FAILED")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
