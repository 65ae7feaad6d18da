"""What the page about OneDrive says is so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from docmill.adapters.libraries.onedrive import OneDriveLibrary, onedrive_name
from docmill.core.access import LOCAL

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "twins-on-onedrive.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_names_are_spelled_as_the_page_says() -> None:
    rows = re.findall(r"^\| `(.+)` \| `(.+)` \|$", PAGE, re.MULTILINE)

    assert 6 == len(rows)
    assert [stored for _, stored in rows] == [onedrive_name(name) for name, _ in rows]


def test_the_program_of_the_page_makes_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [program] = blocks("python")
    [request] = blocks("json")
    made: dict[str, Any] = {}

    exec(program, made)

    library = made["library"]
    assert isinstance(library, OneDriveLibrary)
    wanted = json.loads(request)["twin"]["folder"]
    assert wanted == library.folder(LOCAL.owner, 1, 2, wanted, is_single_user=True)
