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
KINDS = ["bomb", "cut", "flipped", "office", "pdf", "picture", *(["sample"] if ALL else []), "text"]
PICTURES = frozenset({"png", "jpg", "gif", "bmp", "webp", "tiff", "scan"})


def parsed(bench: Bench, folder: Path, file: broken.Broken) -> Parsed:
    path = folder / "source"
    path.write_bytes(file.data)
    # What stands on a broken picture is not the question here, and would take a second each.
    options = {} if ALL or not (file.whole in PICTURES or file.kind == "picture") else {"ocr": "never"}
    return bench.parse(path, file.filename, **options)


@pytest.fixture(scope="module")
def files() -> list[broken.Broken]:
    """Made when they are needed: they take longer than all other tests take to be found."""
    return list(broken.all_files() if ALL else broken.some_files())


@pytest.fixture(scope="module")
def whole(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("sound")
    files = [broken.Broken("", data, kind) for kind, data in broken.sound().items()]
    return {file.whole: parsed(bench, folder, file).markdown for file in files}


@pytest.mark.parametrize("kind", KINDS)
def test_broken_files_end_well(
    bench: Bench, tmp_path: Path, whole: dict[str, str], files: list[broken.Broken], kind: str
) -> None:
    wrong = []
    chosen = [file for file in files if file.kind == kind]
    assert chosen
    for file in chosen:
        try:
            ended: Parsed | DocumentError | StageFailed = parsed(bench, tmp_path, file)
        except (DocumentError, StageFailed) as error:
            ended = error
        if complaint := broken.complaint(file, ended, whole):
            wrong.append(f"{file.name}: {complaint}")

    assert [] == wrong


def test_no_kind_is_left_out(files: list[broken.Broken]) -> None:
    assert KINDS == sorted({file.kind for file in files})


def test_sound_files_are_read(whole: dict[str, str]) -> None:
    assert [] == [kind for kind, markdown in whole.items() if not markdown.strip()]


@pytest.mark.parametrize(("kind", "seed"), [("jpg", seed) for seed in (5, 8, 11)])
def test_corrupt_pictures_are_read_with_a_warning(bench: Bench, tmp_path: Path, kind: str, seed: int) -> None:
    file = broken.Broken("", broken.flipped(broken.sound()[kind], seed), kind)
    path = tmp_path / "source"
    path.write_bytes(file.data)

    parsed = bench.parse(path, file.filename)

    assert ["words may be missing"] == [what.rpartition(": ")[2] for what in parsed.facts["warnings"]]


def test_a_pdf_with_a_hurt_header_is_not_read_as_text(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(broken.flipped(broken.sound()["pdf"], 4))

    with pytest.raises(DocumentError) as caught:
        bench.parse(tmp_path / "source", "broken.pdf")

    assert "document_broken" == caught.value.code
