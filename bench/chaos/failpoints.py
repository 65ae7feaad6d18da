"""Die at every point where something becomes true: around each commit, rename, sync and HTTP message.

    python -m bench.chaos.failpoints --mode embedded
    python -m bench.chaos.failpoints --mode distributed --names
    python -m bench.chaos.failpoints --mode distributed --every 4 --offset 1

A walk is what clients and a worker do with four documents: one is parsed here, with twin and mount, one goes to an
external worker that reports back, one is cancelled while its worker is silent, and one is run twice over a twin to
which somebody added a note, and deleted. A first walk writes down which points it passes. Then each point has a walk of
its own in which a process dies there and is started again; the clients do not give up. In the end everything is counted
as after a storm.

The exit code is 1 if anything was lost, stuck, doubled, wrong or unreadable, and after a walk of all points (without
`--every`) also if a name had no death at all, or if docmill renames, links, syncs or unlinks somewhere that no walk
comes to and that `ELSEWHERE` does not name.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from bench.chaos.audit import FAULTS, Findings, audit
from bench.chaos.deployments import Deployment, Distributed, Embedded, Pace
from bench.chaos.load import BASE, Document, Load, documents
from bench.chaos.units import Unit
from support.peers import Asked, ProviderPeer, Reply, route

PACE = Pace(lease_s=1.5, heartbeat_s=0.4, sweep_s=0.2)
WALK_S = 60.0
MAX_WALKS = 3
"""Walks for one point: which thread syncs first is chance, so a point may be missed in one walk and met in the next."""
SETTLED_S = 0.2
SOURCE = Path(__file__).parent.parent.parent / "src/docmill"
CALLS = {"rename", "replace", "link", "fsync", "unlink"}
"""Functions of `os` around which `bench.chaos.tampered` has points."""
Say = Callable[[str], None]
LIBRARY = "tests/contract/test_library.py::test_a_writer_may_die_at_any_step"
SPOOL = "tests/unit/remote/test_spool.py, test_server.py::test_what_a_kill_interrupted_goes_on"
REMOVED = "the collector, tests/journeys/test_leavings.py: it comes again to what is still there"
ELSEWHERE = {
    "fsync in adapters.libraries.disk._copy": f"{LIBRARY}; only where there are no hard links",
    "rename in adapters.libraries.disk._lay_down": f"{LIBRARY}; only where there are no hard links",
    "fsync in adapters.libraries.disk._settle": f"{LIBRARY}; only after a death",
    "rename in adapters.libraries.disk._settle": f"{LIBRARY}; only after a death",
    "unlink in adapters.stores.local._delete": REMOVED,
    "fsync in adapters.stores.local._delete": REMOVED,
    "fsync in adapters.libraries.tokens.save": "sign-in at OneDrive: a token that is lost is asked for again",
    "fsync in cli.backup._open_output": "`docmill backup`, tests/journeys/test_backup.py: half an archive is refused",
    "fsync in compose.keeping._make_secret": "the first start: python -m bench.chaos.power",
    "fsync in adapters.stores.folders.sync_folder": "the first start: python -m bench.chaos.power",
    "fsync in remote.server._keep": SPOOL,
    "fsync in remote.spool.add": SPOOL,
    "fsync in remote.spool.sync_folder": SPOOL,
    "fsync in remote.spool.write_private": SPOOL,
}
"""Where calls that no walk comes to have their deaths."""


class Secretary(ProviderPeer):
    """An external worker that knows what a document says, and tells until it is heard. One that is asked not to reads
    the word `silent` in the name of the file."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[int, str]] = []
        self._telling: list[threading.Thread] = []
        self._http = httpx2.Client(timeout=10, trust_env=False)

    def __exit__(self, *exc: object) -> None:
        for thread in self._telling:
            thread.join(5)
        super().__exit__(*exc)
        self._http.close()

    @route("POST", "/pdf/process")
    def process(self, asked: Asked) -> Reply:
        fields, files = asked.form()
        name, data = files["file"]
        if not name.startswith("silent"):
            args = (fields["callback_url"][0], fields["callback_token"][0], data.decode())
            thread = threading.Thread(target=self._tell, args=args, daemon=True)
            self._telling.append(thread)
            thread.start()
        return Reply(202, {"status": "accepted", "process": {"id": f"p-{len(self._telling)}"}})

    @route("DELETE", "/jobs/(.+)")
    def cancel(self, asked: Asked) -> Reply:
        return Reply(200, {})

    def _tell(self, url: str, token: str, text: str) -> None:
        ends = time.monotonic() + WALK_S
        for body in (
            {"phase": "extract_text", "progress": 50},
            {"phase": "completed", "data": {"extracted_text": text}},
        ):
            self._tell_one(url, token, body, ends)

    def _tell_one(self, url: str, token: str, body: dict[str, Any], ends: float) -> None:
        while time.monotonic() < ends:
            try:
                answer = self._http.post(url, json=body, headers={"Authorization": f"Bearer {token}"})
            except httpx2.TransportError:
                time.sleep(0.05)
                continue
            self.answers.append((answer.status_code, answer.text[:200]))
            if answer.status_code < 500 and answer.status_code != 429:
                return
            time.sleep(0.05)


@dataclass
class Course:
    """A deployment whose processes know their points, and what was found there."""

    place: Deployment
    points: Path
    secretary: Secretary
    seed: int
    table: int = 0
    mounted: list[Document] = field(default_factory=list)
    rerun: list[tuple[Document, Path]] = field(default_factory=list)
    """Documents that were run twice and deleted, and the note that somebody laid into their twins."""
    odd: list[str] = field(default_factory=list)
    died_at: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    recorded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.load = Load([], self.seed, cancel_share=0.0)
        self.http = httpx2.Client(timeout=15, trust_env=False)
        self.chance = random.Random(self.seed)
        self.walks = 0

    def open(self) -> Course:
        self.points.mkdir()
        (self.points / "order").write_text("")
        self.place.open()
        self.load.urls[:] = self.place.urls
        made = self._call("POST", "/api/v1/projects/1/tables", json={"name": "t", "data": {"all": []}})
        self.table = made["id"]
        time.sleep(SETTLED_S)  # so that the points of this call are none of the first walk
        return self

    def record(self) -> list[str]:
        """The points that a walk passes, in the order of their first time."""
        before = {path: path.stat().st_size for path in self.points.glob("*.log")}
        self._order("")
        self._walk()
        passed = []
        for path in sorted(self.points.glob("*.log")):
            passed += path.read_bytes()[before.get(path, 0) :].decode().split("\n")
        return [point for point in dict.fromkeys(passed) if point]

    def die_at(self, point: str) -> None:
        """A walk during which a process dies at this point; some more, if it was not reached."""
        for _ in range(MAX_WALKS):
            starts = sum(unit.starts for unit in self._units)
            self._order(point)
            self._walk()
            if sum(unit.starts for unit in self._units) > starts:
                self.died_at.append(point)
                return
        self.missed.append(point)

    @property
    def coverage(self) -> Coverage:
        mode = "embedded" if isinstance(self.place, Embedded) else "distributed"
        return Coverage(self.recorded, self.wanted, self.died_at, self.missed, mode)

    @property
    def _units(self) -> list[Unit]:
        return self.place.supervisor.units

    def _order(self, point: str) -> None:
        """Whoever reaches it first dies; who starts afterwards has no order."""
        (self.points / "order").write_text(point)
        for unit in self._units:
            unit.signal(signal.SIGUSR1)
        time.sleep(0.02)
        (self.points / "order").write_text("")

    def _walk(self) -> None:
        self.walks += 1
        here, there, silent, twice = documents(self.chance, 4, kinds={"txt": 1})
        silent = Document(f"silent-{silent.name}", silent.data, silent.marker, silent.key)
        wishes: dict[str, Any] = {
            "twin": {"folder": f"walk-{self.walks}"},
            "mount": {"table_id": self.table, "json_path": "/all"},
        }
        first = self._submit(here, **wishes)
        second = self._submit(there, engine="secretary")
        third = self._submit(silent, engine="secretary")
        self.mounted.append(here)
        self._until(third, lambda task: task["metadata"].get("job_id") or task["status"] != "pending")
        self._cancel(third)
        for task_id in (first, second, third):
            self._until(task_id, has_ended)
        self._run_twice(twice)

    def _run_twice(self, document: Document) -> None:
        """Over a twin of which a part is gone, so that it is written again, and a note of a reader. The document
        is deleted in the end: it is not among those that the audit reads."""
        task_id = self._submit(document, is_kept=False, twin={"folder": f"walk-{self.walks}"})
        task = self._until(task_id, has_ended)
        folder = Path(task["metadata"]["twin_path"]).parent
        note = folder / "note.txt"
        note.write_text(document.marker)
        for part in folder.glob("*.md"):
            part.unlink()
        self._call("POST", f"{BASE}/tasks/{task_id}/retry", json={"from_stage": "mineru"}, may_be=(409,))
        self._until(task_id, lambda task: has_ended(task) and task["metadata"]["attempt"] > 1)
        # 404: it was done, and the answer got lost.
        where = f"/api/v1/documents/{task['metadata']['document_id']}"
        self._call("DELETE", where, params={"hard": "true"}, may_be=(404,))
        self.rerun.append((document, note))

    def _submit(self, document: Document, *, is_kept: bool = True, **wishes: Any) -> int:
        files = {"file": (document.name, document.data)}
        stored = self._call("POST", f"{BASE}/upload", data={"project_id": str(self.walks)}, files=files)
        body = {"project_id": self.walks, "filename": document.name, "s3_key": stored["key"], **wishes}
        task_id = int(
            self._call("POST", f"{BASE}/submit", json=body, headers={"Idempotency-Key": document.key})["task_id"]
        )
        if is_kept:
            self.load.accepted[task_id] = document
        return task_id

    def _cancel(self, task_id: int) -> None:
        self.load.cancelled[task_id] = True
        # 409: it was done, and the answer got lost.
        self._call("POST", f"{BASE}/tasks/{task_id}/cancel", params={"force": "true"}, may_be=(409,))

    def _until(self, task_id: int, is_enough: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        ends = time.monotonic() + WALK_S
        while not is_enough(task := self._call("GET", f"{BASE}/tasks/{task_id}")):
            if time.monotonic() > ends:
                break  # the count will say so
            time.sleep(0.03)
        return task

    def _call(self, method: str, path: str, *, may_be: tuple[int, ...] = (), **request: Any) -> dict[str, Any]:
        ends = time.monotonic() + WALK_S
        while time.monotonic() < ends:
            try:
                answer = self.http.request(method, self.place.urls[0] + path, **request)
            except httpx2.TransportError:
                time.sleep(0.02)
                continue
            if answer.is_success or answer.status_code in may_be:
                return dict(answer.json()) if answer.content else {}
            if answer.status_code != 503:
                self.odd.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
            time.sleep(0.05)
        raise TimeoutError(f"{method} {path}")

    def judge(self) -> Findings:
        # Who has not come to its point by now shall not die of our questions.
        self._order("")
        self.place.answering()
        findings = audit(self.place, self.load)
        self._judge_mounts(findings)
        self._judge_twins(findings)
        self._judge_rerun(findings)
        for odd in self.odd:
            findings.found("wrong", 0, f"a client was told {odd}")
        for status, text in self.secretary.answers:
            if status not in (200, 401, 404):
                findings.found("wrong", 0, f"the worker was told {status} {text}")
        return findings

    def _judge_mounts(self, findings: Findings) -> None:
        answer = httpx2.get(f"{self.place.urls[0]}/api/v1/tables/{self.table}/data", trust_env=False).json()
        entries = [json.dumps(entry) for entry in answer["all"]]
        for document in self.mounted:
            times = sum(document.marker in entry for entry in entries)
            if times != 1:
                findings.found("doubled" if times else "lost", 0, f"{document.name} is mounted {times} times")

    def _judge_twins(self, findings: Findings) -> None:
        twins = [path for root in self._libraries for path in root.rglob("*.md") if path.is_file()]
        texts = [path.read_text() for path in twins]
        for document in self.mounted:
            times = sum(document.marker in text for text in texts)
            if times < 1:
                findings.found("lost", 0, f"{document.name} has no twin")

    def _judge_rerun(self, findings: Findings) -> None:
        for document, note in self.rerun:
            if not note.is_file() or note.read_text() != document.marker:
                findings.found("lost", 0, f"the note beside the twin of {document.name} is gone")
            texts = [path.read_text() for path in note.parent.parent.rglob("*.md") if path.is_file()]
            if not any(document.marker in text for text in texts):
                findings.found("lost", 0, f"{document.name} has no twin after its second run")

    @property
    def _libraries(self) -> list[Path]:
        return list(self.place.folder.glob("**/library"))


@dataclass(frozen=True)
class Coverage:
    """How many of the points of a run had a death of their own, and which code no walk came to."""

    recorded: list[str]
    wanted: list[str]
    died_at: list[str]
    missed: list[str]
    mode: str = "embedded"

    @property
    def unmet(self) -> list[str]:
        """Names that had no death in any walk."""
        return sorted({name_of(point) for point in self.missed} - {name_of(point) for point in self.died_at})

    @property
    def beyond(self) -> list[str]:
        """Calls that no walk comes to, and that have no death elsewhere."""
        passed = {name_of(point).partition(" ")[2] for point in self.recorded}
        found = sorted(file_points() - passed - ELSEWHERE.keys())
        # Distributed, objects lie in S3: the local store has its deaths in the other mode.
        return [point for point in found if self.mode == "embedded" or " in adapters.stores." not in point]

    @property
    def is_complete(self) -> bool:
        return not (self.unmet or self.beyond)

    def lines(self) -> list[str]:
        share = 100 * len(self.died_at) / len(self.wanted) if self.wanted else 100.0
        wanted = {name_of(point) for point in self.wanted}
        names = f"{len(wanted) - len(self.unmet)} of {len(wanted)} names"
        return [
            f"  covered {len(self.died_at)} of {len(self.wanted)} points ({share:.1f} %), {names}",
            f"  points not reached again in {MAX_WALKS} walks: {self.missed or 'none'}",
            f"  names without any death: {self.unmet or 'none'}",
            f"  calls that no walk comes to: {self.beyond or 'none'}, and {len(ELSEWHERE)} that die elsewhere",
        ]


def has_ended(task: dict[str, Any]) -> bool:
    return task["status"] in ("completed", "failed", "cancelled")


def name_of(point: str) -> str:
    """Without the number of the time."""
    return point.partition("#")[0]


def file_points(source: Path = SOURCE) -> set[str]:
    """Every function of docmill that renames, links, syncs or unlinks, as its points would be called."""
    found = set()
    for path in sorted(source.rglob("*.py")):
        module = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                found |= {f"{call} in {module}.{function.name}" for call in _calls(function)}
    return found


def _calls(function: ast.AST) -> set[str]:
    """`os.<call>(...)` alone: a method called `replace` may be that of a text."""
    return {
        node.func.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "os"
        and node.func.attr in CALLS
    }


def course(mode: str, folder: Path, secretary: Secretary, seed: int) -> Course:
    workers = {"secretary": {"dialect": "secretary", "url": f"{secretary.url}/pdf/process", "timeout": 60}}
    more = {"DOCMILL_WORKERS": json.dumps(workers), "DOCMILL_LIBRARY": str(folder / "library")}
    points = folder / "points"
    tampering = {"points": str(points)}
    if mode == "embedded":
        place: Deployment = Embedded(folder, PACE, tampering=tampering, environment=more)
    else:
        place = Distributed(folder, PACE, apis=1, workers=1, tampering=tampering, environment=more)
    return Course(place, points, secretary, seed)


def run(
    mode: str,
    *,
    seed: int = 1,
    every: int = 1,
    offset: int = 0,
    most: int | None = None,
    is_by_name: bool = False,
    say: Say = print,
) -> tuple[Course, Findings]:
    """Walk every point, or every n-th beginning with one; or an even selection of at most so many. By name: the first
    time of each only."""
    with tempfile.TemporaryDirectory(prefix=f"docmill-points-{mode}-") as name, Secretary() as secretary:
        walked = course(mode, Path(name), secretary, seed)
        try:
            walked.open()
            points = [point for point in walked.record() if not is_by_name or point.endswith("#1")]
            every = max(every, -(-len(points) // most) if most else 1)
            wanted = points[offset::every]
            walked.wanted, walked.recorded = wanted, points
            say(f"{mode}: {len(points)} points, of which {len(wanted)} are walked")
            for number, point in enumerate(wanted):
                walked.die_at(point)
                if number % 20 == 19:
                    say(f"  {number + 1}: {point}")
            findings = walked.judge()
        except BaseException:
            say(walked.place.log_tails()[-6000:])
            raise
        finally:
            walked.http.close()
            walked.place.close()
    return walked, findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["embedded", "distributed"], default="embedded")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="only every n-th point")
    parser.add_argument("--offset", type=int, default=0, help="beginning with this one")
    parser.add_argument("--names", action="store_true", help="only the first time that each is reached")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    walked, findings = run(given.mode, seed=given.seed, every=given.every, offset=given.offset, is_by_name=given.names)
    print("\n".join(walked.coverage.lines()))
    print("  " + "  ".join(f"{fault} {findings.counts[fault]}" for fault in FAULTS))
    print("\n".join(f"  {example}" for example in findings.examples))
    is_complete = walked.coverage.is_complete or given.every > 1
    return 0 if findings.is_clean and is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
