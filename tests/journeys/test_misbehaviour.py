"""Every provider misbehaves in every way, behind a real service, and each task ends right.

All tasks are submitted at the beginning, each to a peer of its own, and run side by side; a test waits for its own.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.docling_peer import KEY as DOCLING_KEY
from support.docling_peer import DoclingPeer, docling_document
from support.long_pdf import numbered_pdf
from support.mineru_peers import KEY, CloudPeer, ThreePeer, result_zip
from support.mineru_today import TodayPeer, structured_zip
from support.model_peer import CHAT, INVOICE_SCHEMA, ModelPeer
from support.peers import Fault, ProviderPeer
from support.serving import Etl, Service

SAMPLES = Path(__file__).parents[2] / "samples"
REPORT = (SAMPLES / "report.en.pdf").read_bytes()
PAGES = 2000
BUDGET = 10
MB = 1024 * 1024
MOST_GROWTH_MB = 160
SECRETS = ("localhost", "inner.host", "10.0.0.7", "10.1.2.3", KEY, DOCLING_KEY, "sk-test-secret")
"""What no user shall read: names and addresses of hosts, keys."""

Where = tuple[str, str]


@dataclass(frozen=True)
class Kind:
    """A provider, and where it is asked for what."""

    peer: Callable[..., ProviderPeer]
    submit: Where
    look: Where
    result: Where
    too_long: bytes
    """A result with more pages than were sent."""
    key: str = KEY
    speaks: str = "mineru"
    result_peer: Callable[[Any], ProviderPeer] = lambda peer: peer


KINDS = {
    "today": Kind(
        TodayPeer,
        ("POST", "/v1/parse/jobs"),
        ("GET", "/v1/parse/jobs/.*"),
        ("GET", "/v1/files/.*"),
        structured_zip(["page"] * 9),
    ),
    "three": Kind(
        ThreePeer,
        ("POST", "/tasks"),
        ("GET", "/tasks/[^/]+"),
        ("GET", "/tasks/.*/result"),
        result_zip(["page"] * 9, "", "full", layout="full_middle.json"),
    ),
    "cloud": Kind(
        CloudPeer,
        ("POST", "/api/v4/file-urls/batch"),
        ("GET", "/api/v4/extract-results/.*"),
        ("GET", "/cdn/.*"),
        result_zip(["page"] * 9, "", "full", layout="layout.json"),
        result_peer=lambda peer: peer.storage,
    ),
    "docling": Kind(
        DoclingPeer,
        ("POST", "/v1/convert/file/async"),
        ("GET", "/v1/status/poll/.*"),
        ("GET", "/v1/result/.*"),
        json.dumps({"document": {"json_content": docling_document(["page"] * 9)}, "status": "success"}).encode(),
        key=DOCLING_KEY,
        speaks="docling",
    ),
}
PASSING: dict[str, Callable[[Kind], tuple[str, Fault]]] = {
    "429": lambda kind: ("submit", Fault(*kind.submit, status=429, headers={"Retry-After": "0"}, times=2)),
    "5xx": lambda kind: ("look", Fault(*kind.look, status=502, times=2)),
    "cut": lambda kind: ("result", Fault(*kind.result, cut=True)),
    "silence": lambda kind: ("submit", Fault(*kind.submit, hang_up=True, after=True)),
    "no JSON": lambda kind: ("look", Fault(*kind.look, body=b"<html>moved to http://10.0.0.7/")),
    "wrong JSON": lambda kind: ("look", Fault(*kind.look, body=b'{"status": ["http://gpu.inner.host"]}')),
    "no result": lambda kind: ("result", Fault(*kind.result, body=b"PK at gpu.inner.host")),
    "slow": lambda kind: ("look", Fault(*kind.look, slow_s=6)),
    "promises more": lambda kind: ("result", Fault(*kind.result, promise=2)),
    "promises less": lambda kind: ("look", Fault(*kind.look, promise=0.5)),
    "too many pages": lambda kind: ("result", Fault(*kind.result, body=kind.too_long)),
}
"""What passes, and the task is done all the same."""
STAYING: dict[str, tuple[str, Callable[[Kind], list[Fault]], str]] = {
    "500 for ever": ("three", lambda kind: [Fault(*kind.submit, status=500, times=999)], "provider_unreachable"),
    "429 for ever": (
        "cloud",
        lambda kind: [Fault(*kind.submit, status=429, headers={"Retry-After": "3600"}, times=999)],
        "provider_busy",
    ),
    "wrong for ever": (
        "docling",
        lambda kind: [Fault(*kind.result, body=b'{"at": "http://gpu.inner.host"}', times=999)],
        "provider_answer_invalid",
    ),
    "forbidden": ("today", lambda kind: [Fault(*kind.submit, status=403, times=999)], "provider_refused"),
}
"""What stays, and ends in an error with a code that says what it was."""


@dataclass
class House:
    etl: Etl
    service: Service
    model: ModelPeer
    peers: dict[str, ProviderPeer]
    tasks: dict[str, int] = field(default_factory=dict)
    report: str = ""

    def send(self, provider: str) -> int:
        """The report, to the provider of that name."""
        wish = {"s3_key": self.report, "engine": provider.replace(" ", "-"), "no_cache": True}
        return int(self.etl.post("/submit", json=wish).json()["task_id"])

    def ended(self, name: str) -> dict[str, Any]:
        return self.etl.wait(self.tasks[name], seconds=150)

    def says_no_secrets(self, task: dict[str, Any]) -> None:
        told = json.dumps([task, self.etl.events(task["task_id"])])
        assert [] == [secret for secret in SECRETS if secret in told]


CASES = {f"{kind} {what}": (kind, what) for kind in KINDS for what in PASSING}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    peers: dict[str, ProviderPeer] = {}
    providers: dict[str, Any] = {}
    with ExitStack() as stack:

        def add(name: str, kind: str, **options: Any) -> ProviderPeer:
            peer = stack.enter_context(KINDS[kind].peer(**options))
            slug = name.replace(" ", "-")
            # By a name, so that whoever tells it can be caught.
            providers[slug] = {
                "kind": KINDS[kind].speaks,
                "url": peer.url.replace("127.0.0.1", "localhost"),
                "api_key": KINDS[kind].key,
                "tries": 3,
                "timeout": 3 if "slow" in name else 60,
            }
            peers[name] = peer
            return peer

        for name, (kind, what) in CASES.items():
            peer = add(name, kind)
            at, fault = PASSING[what](KINDS[kind])
            (KINDS[kind].result_peer(peer) if at == "result" else peer).faults.append(fault)
        for what, (kind, faults, _) in STAYING.items():
            add(what, kind).faults += faults(KINDS[kind])
        for kind in KINDS:
            add(f"endless {kind}", kind, looks=100_000)
        add("patient", "three", looks=5)
        add("long", "cloud")
        add("outside", "cloud")
        add("home", "cloud")
        providers["long"]["home"] = providers["home"]["home"] = True
        model = stack.enter_context(ModelPeer())
        model.faults.append(Fault("POST", CHAT, status=429, headers={"Retry-After": "3600"}, times=999))
        service = Service(
            tmp_path_factory.mktemp("docmill"),
            DOCMILL_PROVIDERS=json.dumps(providers),
            DOCMILL_ROUTING=json.dumps({"budget_pages": BUDGET}),
            DOCMILL_LLM=model.settings(tries=1),
            DOCMILL_JOBS="12",
        )
        service.log = deque()
        stack.enter_context(service)
        found = House(Etl(stack.enter_context(service.client())), service, model, peers)
        rule = found.etl.post("/rules", json={"name": "invoice", "json_schema": INVOICE_SCHEMA}).json()["rule_id"]
        found.tasks["model"] = found.etl.submit("a.md", b"# Invoice 2026-0147\n", rule_id=rule)
        found.report = found.etl.upload("report.en.pdf", REPORT)["key"]
        for name in (*STAYING, *CASES):
            found.tasks[name] = found.send(name)
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_passes_is_waited_out(house: House, name: str) -> None:
    task = house.ended(name)

    assert "completed" == task["status"], task
    assert (2, []) == (task["metadata"]["pages_total"], task["metadata"]["damaged_pages"] or [])
    content = next(iter(task["result"].values()))["content"]
    assert content.index("River Monitoring 2025") < content.index("3.1 Outlook")
    peer = house.peers[name]
    faults = peer.faults + KINDS[CASES[name][0]].result_peer(peer).faults
    assert {0} == {fault.times for fault in faults}, "it did go wrong"
    house.says_no_secrets(task)


@pytest.mark.slow
def test_a_long_document_in_slices_is_whole_in_order_and_small_in_memory(house: House, tmp_path: Path) -> None:
    peer = house.peers["long"]
    assert isinstance(peer, CloudPeer)
    peer.fail_batch_with = {"P00601": 2}
    pdf = numbered_pdf(tmp_path / "long.pdf", PAGES).read_bytes()
    before = house.service.memory()

    task_id = house.etl.submit("long.pdf", pdf, engine="long")
    seen: list[int] = []
    while (task := house.etl.task(task_id, wait=1))["status"] not in ("completed", "failed"):
        seen.append(task["progress"])
    grown = house.service.memory(peak=True) - before

    assert "completed" == task["status"], task
    assert (PAGES, []) == (task["metadata"]["pages_total"], task["metadata"]["damaged_pages"] or [])
    content = task["result"]["long"]["content"]
    places = [content.index(f"P{number:05d} of") for number in range(1, PAGES + 1)]
    assert places == sorted(places)
    assert {200} == {len(job.pages) for job in peer.jobs.values()}
    assert 12 == len(peer.jobs), "ten slices, one of them three times"
    assert seen == sorted(seen)
    assert 1 < len(set(seen)), "it moves"
    document = house.etl.http.get(f"/api/v1/documents/{task['metadata']['document_id']}").json()
    images = [asset for asset in document["assets"] if asset["media_type"].startswith("image/")]
    assert list(range(0, PAGES, 200)) == sorted(image["page_index"] for image in images)
    assert grown < MOST_GROWTH_MB * MB, f"{grown / MB:.0f} MB"


def test_a_budget_holds_for_one_document(house: House, tmp_path: Path) -> None:
    outside, home = house.peers["outside"], house.peers["home"]
    small = numbered_pdf(tmp_path / "small.pdf", BUDGET).read_bytes()
    large = numbered_pdf(tmp_path / "large.pdf", BUDGET + 1).read_bytes()

    def sent(data: bytes, engine: str, **options: Any) -> dict[str, Any]:
        return house.etl.wait(house.etl.submit("a.pdf", data, engine=engine, options=options))

    too_dear = [
        sent(large, "outside"),
        sent(large, "outside", budget_pages=999),
        sent(small, "outside", budget_pages=9),
    ]
    assert {("failed", "provider_forbidden")} == {(one["status"], one["metadata"]["error_code"]) for one in too_dear}
    assert f"{BUDGET + 1} pages are more than the budget of {BUDGET}" in too_dear[1]["error"]
    assert [] == outside.seen
    assert "completed" == sent(small, "outside")["status"]
    assert "completed" == sent(large, "home")["status"], "at home it costs nothing"
    assert 1 == len(home.asked(*KINDS["cloud"].submit))


@pytest.mark.slow
def test_a_cancelled_task_is_called_off_where_they_know_how_and_left_alone_elsewhere(house: House) -> None:
    names = {kind: f"endless {kind}" for kind in KINDS}
    tasks = {kind: house.send(name) for kind, name in names.items()}
    for kind, name in names.items():
        house.peers[name].wait_for(*KINDS[kind].look, count=2, seconds=90)

    for task_id in tasks.values():
        assert house.etl.post(f"/tasks/{task_id}/cancel?force=true").is_success
    today = house.peers[names["today"]]
    today.wait_for("DELETE", "/v1/parse/jobs/.*")

    assert isinstance(today, TodayPeer)
    assert ["canceled"] == [job.status for job in today.jobs.values()]
    assert {"cancelled"} == {house.etl.task(task_id)["status"] for task_id in tasks.values()}
    # Long enough for another look of each of them, if there were one.
    looks = {kind: len(house.peers[name].asked(*KINDS[kind].look)) for kind, name in names.items()}
    assert "completed" == house.etl.wait(house.send("patient"))["status"]
    assert looks == {kind: len(house.peers[name].asked(*KINDS[kind].look)) for kind, name in names.items()}
    assert {1} == {len(house.peers[name].asked(*KINDS[kind].submit)) for kind, name in names.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", STAYING)
def test_what_stays_ends_in_a_code_that_says_what_it_was(house: House, name: str) -> None:
    task = house.ended(name)

    assert ("failed", STAYING[name][2]) == (task["status"], task["metadata"]["error_code"])
    assert "mineru" == task["metadata"]["error_stage"]
    assert name.replace(" ", "-") in task["error"], "the provider has the name that the user gave it"
    house.says_no_secrets(task)


@pytest.mark.slow
def test_a_model_that_is_busy_for_ever_has_its_code_too(house: House) -> None:
    task = house.ended("model")

    assert ("failed", "llm_rate_limit") == (task["status"], task["metadata"]["error_code"])
    assert "postprocess" == task["metadata"]["error_stage"]
    assert 1 < len(house.model.bodies()), "it was asked again later"
    house.says_no_secrets(task)


@pytest.mark.slow
def test_the_log_tells_no_secrets_either(house: House) -> None:
    """Last of all: by now everything has gone wrong that can."""
    for name in house.tasks:
        house.ended(name)
    log = "".join(house.service.log)

    assert "provider_job" in log
    assert [] == [secret for secret in SECRETS if secret in log]
    assert [] == [name for name, peer in house.peers.items() if f":{peer.port}" in log]
