"""What the command tests share: the command in this process, and a document that keeps its contract."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from docmill.cli.group import root

SHA = "0f343b0931126a20f133d67c2b018a3b6d91ef1ed97e1a6f760fd9e3c8f2b518"
DOCUMENT = {
    "ref": {
        "tenant_id": "acme",
        "workflow_id": "ingest-2024",
        "document_id": "c7f8b4f4-1b7b-4ad2-9da6-0f8df1d96c90",
    },
    "meta": {"tenant_id": "acme", "workflow_id": "ingest-2024", "title": "Broschüre 手册", "tags": ["b", "a"]},
    "blob": {"type": "file", "uri": "memory://blob-42", "sha256": SHA, "size": 2048},
    "checksum": SHA,
    "created_at": "2024-05-02T10:15:00+00:00",
    "source": "upload",
    "assets": [],
}

Docmill = Callable[..., Result]


@pytest.fixture
def docmill() -> Docmill:
    """Run `docmill ARGS…` in this process."""

    def run(*args: object, stdin: bytes | None = None, env: dict[str, str] | None = None) -> Result:
        return CliRunner(env=env).invoke(root, [str(arg) for arg in args], input=stdin, catch_exceptions=False)

    return run


@pytest.fixture
def document() -> dict[str, Any]:
    return copy.deepcopy(DOCUMENT)
