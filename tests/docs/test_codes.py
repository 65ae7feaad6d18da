"""The reference pages of the codes are those of the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from docmill.core.catalogue import LANGUAGES, entries
from docmill.core.catalogue.__main__ import PAGES, main

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_pages_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--check", str(REFERENCE)])

    assert (0, "") == (status, capsys.readouterr().err)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_code_has_its_anchor(lang: str) -> None:
    page = (REFERENCE / PAGES[lang][0]).read_text("utf-8")

    assert [] == [one.code for one in entries() if f'<a id="{one.code}"></a>' not in page]


def test_drift_is_noticed_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path)])
    (tmp_path / "codes.de.md").write_text("something else", "utf-8")

    assert 1 == main(["--check", str(tmp_path)])
    assert "codes.de.md differs from the catalogue" in capsys.readouterr().err
    assert 0 == main([str(tmp_path)])
    assert 0 == main(["--check", str(tmp_path)])
