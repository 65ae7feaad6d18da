"""After the storm: what was lost, stuck, doubled, wrong or unreadable, and how long recovery took."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from uuid import UUID

import httpx2

from bench.chaos.deployments import Deployment
from bench.chaos.load import BASE, Load
from bench.chaos.recovery import Outage, Recovery, recoveries

STAGES = ["parse", "postprocess", "publish"]
ENDS = frozenset({"completed", "failed", "cancelled"})
FAULTS = ("lost", "stuck", "doubled", "wrong", "unreadable")


@dataclass
class Findings:
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    """The quickest first."""

    def found(self, fault: str, task_id: int, why: str) -> None:
        self.counts[fault] += 1
        if len(self.examples) < 20:
            self.examples.append(f"{fault}: task {task_id}: {why}")

    @property
    def is_clean(self) -> bool:
        return not any(self.counts[fault] for fault in FAULTS)


def wait_until_drained(place: Deployment, seconds: float) -> float:
    """Seconds until no task is under way, at most *seconds*."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if not place.rows("SELECT id FROM tasks WHERE status NOT IN ('completed', 'failed', 'cancelled') LIMIT 1"):
            break
        time.sleep(0.1)
    return time.monotonic() - began


def audit(place: Deployment, load: Load, outages: Sequence[Outage] = ()) -> Findings:
    findings = Findings()
    tasks = {row[0]: row for row in place.rows("SELECT id, status, attempt_id, body FROM tasks")}
    events = _grouped(place.rows("SELECT task_id, seq, kind, data, at_ms FROM events ORDER BY task_id, seq"))
    attempts = _grouped(
        place.rows("SELECT task_id, id, stage, state, owner, started_ms, ended_ms, number FROM attempts")
    )
    for task_id in load.accepted:
        if task_id not in tasks:
            findings.found("lost", task_id, "accepted, and not in the ledger")
            continue
        _judge(findings, load, task_id, tasks[task_id], events[task_id], attempts[task_id])
    _judge_keys(place, load, findings)
    with ThreadPoolExecutor(4) as pool:
        completed = [task_id for task_id in load.accepted if tasks.get(task_id, (0, ""))[1] == "completed"]
        for task_id, fault, why in pool.map(lambda one: _read(load, one), completed):
            if fault:
                findings.found(fault, task_id, why)
    findings.recoveries = recoveries(place, events, attempts, outages)
    return findings


def _judge(
    findings: Findings,
    load: Load,
    task_id: int,
    task: tuple[Any, ...],
    events: list[tuple[Any, ...]],
    attempts: list[tuple[Any, ...]],
) -> None:
    status = task[1]
    if status not in ENDS:
        findings.found("stuck", task_id, f"{status}, {[event[2] for event in events][-4:]}")
        return
    kinds = [event[2] for event in events]
    for run in _runs(events):
        done = [json.loads(event[3])["stage"] for event in run if event[2] == "stage_succeeded"]
        ends = [event[2] for event in run if event[2] in ENDS]
        stages = STAGES[1:] if run[0][2] == "retried" and '"postprocess"' in run[0][3] else STAGES
        if len(ends) != 1 or len(set(done)) != len(done) or done != stages[: len(done)]:
            findings.found("doubled", task_id, f"stages {done}, ends {ends}")
    if [event[1] for event in events] != list(range(1, len(events) + 1)):
        findings.found("wrong", task_id, "its log has gaps")
    if kinds[-1] not in ENDS:
        findings.found("wrong", task_id, f"something happened after its end: {kinds[-3:]}")
    succeeded = Counter(attempt[2] for attempt in attempts if attempt[3] == "succeeded")
    if any(number > kinds.count("retried") + 1 for number in succeeded.values()):
        findings.found("doubled", task_id, f"two attempts succeeded: {succeeded}")
    if any(attempt[3] in ("running", "queued", "handed_over") for attempt in attempts):
        findings.found("stuck", task_id, "an attempt goes on after the task's end")
    wanted = load.ends_of(task_id)
    if status not in wanted:
        findings.found("wrong", task_id, f"{status} instead of {'/'.join(wanted)}: {events[-1][3][:300]}")
    elif status == "completed" and done != stages:
        findings.found("wrong", task_id, f"completed after {done}")
    elif status == "completed" and not _is_of_its_own(json.loads(task[3]), attempts):
        findings.found("wrong", task_id, "its Markdown is of an attempt that did not succeed")


def _runs(events: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """The log, cut before each retry by hand."""
    runs: list[list[tuple[Any, ...]]] = [[]]
    for event in events:
        if event[2] == "retried":
            runs.append([])
        runs[-1].append(event)
    return runs


def _is_of_its_own(body: dict[str, Any], attempts: list[tuple[Any, ...]]) -> bool:
    """Artifacts lie below their attempt's id: the visible ones must be of the attempt that was committed."""
    key = body["artifacts"]["markdown_key"]
    known = {attempt[1]: attempt[3] for attempt in attempts}
    named = [state for attempt_id, state in known.items() if f"/{UUID(attempt_id).hex[:12]}/" in key]
    return named in ([], ["succeeded"])


def _judge_keys(place: Deployment, load: Load, findings: Findings) -> None:
    keys = Counter(row[0] for row in place.rows("SELECT key FROM idempotency"))
    tasks = place.rows("SELECT filename, count(*) FROM tasks GROUP BY filename HAVING count(*) > 1")
    for filename, number in tasks:
        findings.found("doubled", 0, f"{number} tasks for the one submission of {filename}")
    for key in load.twice:
        findings.found("doubled", 0, f"two tasks were shown for key {key}")
    if any(number > 1 for number in keys.values()):
        findings.found("doubled", 0, "an Idempotency-Key is there twice")


def _read(load: Load, task_id: int) -> tuple[int, str, str]:
    """As a client does: the result, the document, its bytes."""
    document = load.accepted[task_id]
    with httpx2.Client(base_url=load.urls[task_id % len(load.urls)], timeout=30, trust_env=False) as http:
        answer = http.get(f"{BASE}/tasks/{task_id}")
        if not answer.is_success:
            return task_id, "unreadable", answer.text[:200]
        task = answer.json()
        if document.marker not in json.dumps(task["result"]):
            return task_id, "wrong", "the result is of another document"
        where = f"/api/v1/documents/{task['metadata']['document_id']}"
        about, blob, versions = (http.get(where + part) for part in ("", "/blob", "/versions"))
        if not (about.is_success and blob.is_success and versions.is_success):
            return task_id, "unreadable", f"{about.status_code} {blob.status_code} {versions.status_code}"
        if sha256(blob.content).hexdigest() != about.json()["checksum"]:
            return task_id, "unreadable", "the bytes are not those of the checksum"
        if not 1 <= len(versions.json()["versions"]) <= 1 + load.retries_of(task_id):
            return task_id, "doubled", "the document has more versions than runs"
    return task_id, "", ""


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    grouped: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        grouped[row[0]].append(row)
    return grouped
