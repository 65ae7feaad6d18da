"""After a run: read everything back through the API, as `bench.chaos.history` wants it."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2

from bench.chaos.history import History, Line, Message, Record, StoredBytes, Twin
from bench.chaos.load import BASE
from bench.chaos.mixed import HOOKS, JSON, MixedLoad
from bench.chaos.outside import TAG

READERS = 4
SETTLED_S = 120.0
"""Webhook messages that are not delivered so long after the last fault are stuck."""
MARKDOWN = "text/markdown"


def collect(load: MixedLoad, *, seconds: float = SETTLED_S) -> History:
    """Wait until the webhooks are delivered, and read all accepted tasks."""
    history = History(streams=list(load.streams), readings=dict(load.readings))
    history.finals = load.worker.finals if load.worker else []
    with httpx2.Client(base_url=load.urls[0], timeout=30, trust_env=False) as http:
        _wait_for_deliveries(http, load, seconds)
        history.messages = list(_messages(http, load.webhook_id))
        history.received = load.receiver.received if load.receiver else []
        history.listed = list(_listed(http))
        mounted = [json.dumps(entry) for entry in http.get(f"/api/v1/tables/{load.table_id}/data").json()["all"]]
    with ThreadPoolExecutor(READERS) as pool:
        history.records = list(pool.map(lambda task_id: read_task(load, task_id, mounted), sorted(load.accepted)))
    return history


def read_task(load: MixedLoad, task_id: int, mounted: list[str]) -> Record:
    expected = load.expected(task_id)
    with httpx2.Client(base_url=load.urls[task_id % len(load.urls)], timeout=30, trust_env=False) as http:
        answer = http.get(f"{BASE}/tasks/{task_id}")
        if not answer.is_success:
            return Record(task_id, expected, None, problem=f"{answer.status_code} {answer.text[:200]}")
        task = answer.json()
        facts: dict[str, Any] = {
            "status": task["status"],
            "log": tuple(_log(http, task_id)),
            "job_id": task["metadata"]["job_id"],
            "mounts": sum(expected.marker in entry for entry in mounted),
        }
        if task["status"] == "completed":
            facts |= _read_result(http, task, expected.marker)
            facts |= _read_document(http, task, expected.marker, has_twin=expected.has_twin)
        tags = facts.pop("result_tags", frozenset()) | facts.pop("document_tags", frozenset())
        return Record(task_id, expected, tags=frozenset(tags), **facts)


def _log(http: httpx2.Client, task_id: int) -> Iterator[Line]:
    after = 0
    while page := http.get(f"{BASE}/tasks/{task_id}/events", params={"after": after}, headers=JSON).json()["events"]:
        for event in page:
            yield Line(event["seq"], event["kind"], event["data"])
        after = page[-1]["seq"]


def _read_result(http: httpx2.Client, task: Mapping[str, Any], marker: str) -> dict[str, Any]:
    text = json.dumps(task["result"])
    return {"has_marker": marker in text, "result_tags": set(TAG.findall(text))}


def _read_document(http: httpx2.Client, task: Mapping[str, Any], marker: str, *, has_twin: bool) -> dict[str, Any]:
    where = f"/api/v1/documents/{task['metadata']['document_id']}"
    about, versions = http.get(where), http.get(f"{where}/versions")
    if not (about.is_success and versions.is_success):
        return {"problem": f"document {about.status_code}, versions {versions.status_code}"}
    document = about.json()
    stored = [_bytes(http, "document", f"{where}/blob", document["checksum"])[0]]
    tags: set[str] = set()
    pictures = []
    for asset in document["assets"]:
        name = f"asset {asset['ref']['asset_id']}"
        found, data = _bytes(http, name, f"/api/v1/assets/{asset['ref']['asset_id']}/blob", asset["checksum"])
        stored.append(found)
        tags |= set(TAG.findall(data.decode(errors="replace")))
        if not asset["media_type"].startswith(MARKDOWN):
            pictures.append(found.sha256)
    facts = {
        "stored": tuple(stored),
        "document_tags": tags,
        "pictures": tuple(pictures),
        "versions": len(versions.json()["versions"]),
    }
    return facts | (_read_twins(http, task, marker) if has_twin else {})


def _bytes(http: httpx2.Client, name: str, path: str, promised: str) -> tuple[StoredBytes, bytes]:
    answer = http.get(path)
    return StoredBytes(name, answer.status_code, promised, sha256(answer.content).hexdigest()), answer.content


def _read_twins(http: httpx2.Client, task: Mapping[str, Any], marker: str) -> dict[str, Any]:
    answer = http.get(f"{BASE}/tasks/{task['task_id']}/twin")
    if not answer.is_success:
        return {"problem": f"twin {answer.status_code} {answer.text[:200]}"}
    with zipfile.ZipFile(io.BytesIO(answer.content)) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    # The path names the Markdown file, in a folder of its own.
    root = Path(task["metadata"]["twin_path"] or "/nowhere/at/all").parents[1]
    written = {name: (root / name).read_bytes() for name in files if (root / name).is_file()}
    return {"packed_twin": _twin(files, marker), "library_twin": _twin(written, marker) if written else None}


def _twin(files: Mapping[str, bytes], marker: str) -> Twin:
    shown = {name: data for name, data in files.items() if not name.endswith(".json")}
    texts = [data.decode(errors="replace") for name, data in shown.items() if name.endswith(".md")]
    pictures = {name: sha256(data).hexdigest() for name, data in shown.items() if not name.endswith(".md")}
    return Twin(
        {name: sha256(data).hexdigest() for name, data in shown.items()},
        tuple(pictures.values()),
        any(marker in text for text in texts),
        frozenset(tag for data in shown.values() for tag in TAG.findall(data.decode(errors="replace"))),
    )


def _wait_for_deliveries(http: httpx2.Client, load: MixedLoad, seconds: float) -> None:
    ends = time.monotonic() + seconds
    where = {"webhook_id": load.webhook_id, "state": "pending", "limit": 1}
    while http.get(f"{HOOKS}/deliveries", params=where).json()["deliveries"] and time.monotonic() < ends:
        time.sleep(0.1)


def _messages(http: httpx2.Client, webhook_id: str) -> Iterator[Message]:
    where: dict[str, Any] = {"webhook_id": webhook_id, "limit": 100}
    while True:
        page = http.get(f"{HOOKS}/deliveries", params=where).json()
        for one in page["deliveries"]:
            yield Message(one["message_id"], one["task_id"], one["event"], one["state"])
        if page["next_cursor"] is None:
            return
        where["cursor"] = page["next_cursor"]


def _listed(http: httpx2.Client) -> Iterator[tuple[int, str]]:
    where: dict[str, Any] = {"limit": 100}
    while True:
        page = http.get(f"{BASE}/tasks", params=where).json()
        for task in page["tasks"]:
            yield task["task_id"], task["filename"]
        if page["next_cursor"] is None:
            return
        where["cursor"] = page["next_cursor"]
