"""A client that TypeScript's tools generate from the OpenAPI compiles strictly, and takes a document through."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.servers.node import PROJECT, ensure_packages
from support.serving import Service

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
STEP_S = 120


@pytest.fixture(scope="module")
def packages() -> Path:
    return ensure_packages()


def run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=STEP_S,
    )
    assert 0 == done.returncode, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def test_a_generated_typescript_client_takes_a_document_through(packages: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = run([sys.executable, "-m", "docmill", "keys", "create", "ts", "--data", str(data), "--json"], tmp_path)
    key = json.loads(made)["secret"]
    project = tmp_path / "client"
    shutil.copytree(PROJECT, project)
    (project / "node_modules").symlink_to(packages)
    [example] = re.findall(r"^```ts\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (project / "page.ts").write_text(example, "utf-8")

    with Service(data, "--jobs", "1") as service, service.client() as http:
        (project / "openapi.json").write_bytes(http.get("/openapi.json").content)
        programs = project / "node_modules" / ".bin"
        generate = [str(programs / "openapi-typescript"), "openapi.json", "-o", "api.ts"]
        run([*generate, "--default-non-nullable", "false"], project)
        run([str(programs / "tsc"), "-p", "."], project)
        said = json.loads(run(["node", "built/walk.js"], project, DOCMILL_URL=service.url, DOCMILL_API_KEY=key))

    assert "completed" == said["status"]
    assert ["submitted", "started"] == said["events"][:2]
    assert ["completed", "end"] == said["events"][-2:]
    assert "# Minutes\n\nAll agreed." == said["markdown"].strip()
    assert said["missing"], "a problem says what to do"
