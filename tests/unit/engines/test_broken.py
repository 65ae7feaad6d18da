"""Broken files end with a code or with pages marked as damaged. DOCMILL_BROKEN=all takes every one that we can make."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from docmill.core.errors import DocumentError, StageFailed
from docmill.core.parsed import Parsed
from support import broken
from unit.engines.conftest import Bench

ALL = os.environ.get("DOCMILL_BROKEN") == "all"
FILES = list(broken.all_files() if ALL else broken.some_files())
PICTURES = frozenset({"png", "jpg", "gif", "bmp", "webp", "tiff", "scan"})


def parsed(bench: Bench, folder: Path, file: broken.Broken) -> Parsed:
    path = folder / "source"
    path.write_bytes(file.data)
    # What stands on a broken picture is not the question here, and would take a second each.
    options = {} if ALL or not (file.whole in PICTURES or file.kind == "picture") else {"ocr": "never"}
    return bench.parse(path, file.filename, **options)


@pytest.fixture(scope="module")
def whole(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("sound")
    files = [broken.Broken("", data, kind) for kind, data in broken.sound().items()]
    return {file.whole: parsed(bench, folder, file).markdown for file in files}


@pytest.mark.parametrize("kind", sorted({file.kind for file in FILES}))
def test_broken_files_end_well(bench: Bench, tmp_path: Path, whole: dict[str, str], kind: str) -> None:
    wrong = []
    for file in FILES:
        if file.kind != kind:
            continue
        try:
            ended: Parsed | DocumentError | StageFailed = parsed(bench, tmp_path, file)
        except (DocumentError, StageFailed) as error:
            ended = error
        if complaint := broken.complaint(file, ended, whole):
            wrong.append(f"{file.name}: {complaint}")

    assert [] == wrong


def test_sound_files_are_read(whole: dict[str, str]) -> None:
    assert [] == [kind for kind, markdown in whole.items() if not markdown.strip()]
