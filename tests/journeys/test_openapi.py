"""Schemathesis over the whole OpenAPI: no 5xx, no undocumented status, and no door open without a credential.

`make fuzz` does the same for longer, in all of its phases.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.serving import Etl, Service

ROOT = Path(__file__).parents[2]
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,no_open_door"
SECONDS = int(os.environ.get("DOCMILL_FUZZ_SECONDS", 0))
BUDGET = ["--max-time", str(SECONDS)] if SECONDS else ["--phases", "fuzzing", "-n", "3", "--seed", "1"]


@dataclass
class Guarded:
    service: Service
    key: str
    ids: dict[str, Any]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A service that wants credentials, with something of everything in it."""
    data = tmp_path_factory.mktemp("openapi") / "data"
    made = subprocess.run(
        [sys.executable, "-m", "docmill", "keys", "create", "fuzz", "--data", str(data), "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    key = json.loads(made.stdout)["secret"]
    hooks = {"DOCMILL_WEBHOOK_NETWORKS": '["127.0.0.1/32"]', "DOCMILL_WEBHOOK_PORTS": "[9]"}
    with (
        Service(data, "--jobs", "1", **hooks) as service,
        service.client(headers={"Authorization": f"Bearer {key}"}) as http,
    ):
        yield Guarded(service, key, fill(Etl(http)))


def fill(etl: Etl) -> dict[str, Any]:
    webhook = etl.http.post("/api/v1/webhooks", json={"url": "http://127.0.0.1:9/"}).json()
    task = etl.done("minutes.md", b"# Minutes\n\nAll agreed.\n")
    delivery = etl.http.get("/api/v1/webhooks/deliveries").json()["deliveries"][0]
    document = task["metadata"]["document_id"]
    table = etl.http.post("/api/v1/projects/1/tables", json={"name": "all", "data": {"a": [1]}}).json()
    rule = etl.http.post(f"{Etl.BASE}/rules", json={"name": "keep"}).json()
    announced = etl.http.post("/api/v4/file-urls/batch", json={"files": [{"name": "minutes.md"}]})
    assets = etl.http.get(f"/api/v1/documents/{document}/assets").json()["assets"]
    return {
        "task_id": task["task_id"],
        "conversion_id": f"{task['task_id']}.mjht.e.1-0.i",
        "parse_id": f"{task['task_id']}.mci.0-99999.auto.pipeline",
        "batch_id": announced.json()["data"]["batch_id"],
        "document_id": document,
        "asset_id": assets[0]["ref"]["asset_id"],
        "table_id": table["id"],
        "rule_id": rule["rule_id"],
        "project_id": 1,
        "webhook_id": webhook["id"],
        "delivery_id": delivery["id"],
    }


def fuzzed(guarded: Guarded, folder: Path, *headers: str, **environment: str) -> str:
    """What Schemathesis prints. It fails the test if a check failed."""
    given = [part for header in ("Accept: application/json", *headers) for part in ("-H", header)]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{guarded.service.url}/openapi.json"),
            *("--checks", CHECKS, "--no-color", "--no-shrink", "--continue-on-failure", "--request-timeout", "60"),
            *("--workers", "1", "--suppress-health-check", "all", "--generation-database", "none"),
            *("--warnings", "off", *BUDGET, *given),
        ],
        cwd=folder,
        env=os.environ
        | {
            "SCHEMATHESIS_HOOKS": "support.openapi_hooks",
            "PYTHONPATH": str(ROOT / "tests"),
            "PYTHONHASHSEED": "0",
            "DOCMILL_REAL_IDS": json.dumps(guarded.ids),
        }
        | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240 + 2 * SECONDS,
    )
    assert 0 == done.returncode, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def operations(url: str, **headers: str) -> int:
    with httpx2.Client(trust_env=False) as http:
        paths = http.get(f"{url}/openapi.json", headers=headers).json()["paths"]
    return sum(len(methods) for methods in paths.values())


@pytest.mark.slow
@pytest.mark.parametrize("has_credential", [True, False], ids=["with", "without"])
def test_whatever_is_sent_the_answer_is_a_documented_one(
    guarded: Guarded, tmp_path: Path, has_credential: bool
) -> None:
    if has_credential:
        said = fuzzed(guarded, tmp_path, f"Authorization: Bearer {guarded.key}")
    else:
        said = fuzzed(guarded, tmp_path, DOCMILL_NO_CREDENTIAL="1")

    [(selected, total)] = re.findall(r"Selected: (\d+)/(\d+)", said)
    [(cases,)] = [re.findall(r"(\d+) generated", said)]
    print(f"{cases} requests, {total} operations, credential: {has_credential}")
    assert operations(guarded.service.url) == int(selected) == int(total)
    assert int(cases) >= 2 * int(total)
