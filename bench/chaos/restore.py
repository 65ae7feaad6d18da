"""Restore a database and objects of different age: reads degrade item by item, with a code, and nothing crashes.

    python -m bench.chaos.restore

The embedded service converts documents, is stopped and copied (the early backup), converts more, and is stopped and
copied again (the late backup). Then it starts on the database of one backup with the objects of the other one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

import bench.chaos  # noqa: F401 - finds the tests' support
from support.serving import Etl, Service

CASES = {"database older than objects": ("early", "late"), "objects older than database": ("late", "early")}
DOCTOR_S = 120.0


@dataclass
class Restored:
    """What a service shows that was restored from two backups."""

    case: str
    early: dict[int, dict[str, tuple[int, str]]] = field(default_factory=dict)
    """Status and error code of every read of the tasks that both backups hold, by task."""
    late: dict[int, dict[str, tuple[int, str]]] = field(default_factory=dict)
    """The same for the tasks of the late backup alone."""
    listed: tuple[int, int] = (0, 0)
    """The status of the list of tasks, and how many it holds."""
    new_task: str = ""
    """The status of a task that was submitted after the restore."""
    doctor_code: int = -1
    doctor_findings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        """What no restore may lead to."""
        found = []
        for task_id, reads in self.early.items():
            found += [f"task {task_id}, {what}: {read}" for what, read in reads.items() if read[0] != 200]
        for task_id, reads in self.late.items():
            for what, (status, code) in reads.items():
                if status != 200 and (status >= 500 or not code):
                    found.append(f"task {task_id}, {what}: {status} {code or 'without a code'}")
        if self.listed[0] != 200:
            found.append(f"the list of tasks: {self.listed[0]}")
        if self.new_task != "completed":
            found.append(f"a new task is {self.new_task}")
        if self.doctor_code not in (0, 1) or not self.doctor_findings:
            found.append(f"doctor ended with {self.doctor_code}")
        return found

    @property
    def missing(self) -> list[str]:
        """What doctor says about objects; empty: it does not look at them, or misses nothing."""
        return [
            f"{one['name']}: {one['detail']}"
            for one in self.doctor_findings
            if one["name"] in ("objects", "storage", "store") and one["status"] != "ok"
        ]


def restore(folder: Path) -> list[Restored]:
    early, late = _make_backups(folder)
    found = []
    for case, (database, objects) in CASES.items():
        data = folder / case.replace(" ", "-")
        shutil.copytree(folder / database, data)
        shutil.rmtree(data / "objects")
        shutil.copytree(folder / objects / "objects", data / "objects")
        found.append(_look(case, data, early, late))
    return found


def _make_backups(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tasks of the early backup, and those that only the late one holds."""
    data = folder / "data"
    made = []
    for name in ("early", "late"):
        with Service(data, "--jobs", "1") as service, service.client() as client:
            etl = Etl(client)
            page = f"<h1>{name}</h1><table><tr><td>{name}</td></tr></table>".encode()
            made.append([etl.done(f"{name}.txt", name.encode() * 50), etl.done(f"{name}.html", page)])
        shutil.copytree(data, folder / name)
    return made[0], made[1]


def _look(case: str, data: Path, early: list[dict[str, Any]], late: list[dict[str, Any]]) -> Restored:
    restored = Restored(case)
    with Service(data, "--jobs", "1") as service, service.client() as http:
        etl = Etl(http)
        listed = etl.get("/tasks")
        restored.listed = listed.status_code, len(listed.json().get("tasks", ()))
        restored.early = {task["task_id"]: _reads(http, task) for task in early}
        restored.late = {task["task_id"]: _reads(http, task) for task in late}
        restored.new_task = etl.wait(etl.submit("new.txt", b"after the restore"))["status"]
    command = [sys.executable, "-m", "docmill", "doctor", "--data", str(data), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DOCTOR_S, check=False)
    restored.doctor_code = done.returncode
    if done.stdout.startswith("{"):
        restored.doctor_findings = json.loads(done.stdout)["checks"]
    return restored


def _reads(http: httpx2.Client, task: dict[str, Any]) -> dict[str, tuple[int, str]]:
    """Everything that a client reads of a task and its document."""
    base = f"{Etl.BASE}/tasks/{task['task_id']}"
    where = f"/api/v1/documents/{task['metadata']['document_id']}"
    paths = {
        "task": base,
        "events": f"{base}/events",
        "twin": f"{base}/twin",
        "document": where,
        "versions": f"{where}/versions",
        "bytes": f"{where}/blob",
        "assets": f"{where}/assets",
    }
    reads = {}
    for name, path in paths.items():
        # A client never waits for ever: a body that breaks off is an error of its own.
        try:
            answer = http.get(path, headers={"Accept": "application/json"})
            reads[name] = answer.status_code, _code(answer)
        except httpx2.TransportError as error:
            reads[name] = 599, type(error).__name__
    return reads


def _code(answer: httpx2.Response) -> str:
    if answer.is_success:
        return ""
    try:
        return str(answer.json().get("code") or "")
    except ValueError:
        return ""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="docmill-restore-") as name:
        found = restore(Path(name))
    for one in found:
        print(f"{one.case}: list {one.listed}, new task {one.new_task}, doctor {one.doctor_code}")
        print(f"  tasks of both backups: {one.early}")
        print(f"  tasks of the late backup alone: {one.late}")
        print(f"  doctor: {one.missing or 'says nothing about objects'}")
        print("\n".join(f"  violation: {violation}" for violation in one.violations))
    return 1 if any(one.violations for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
