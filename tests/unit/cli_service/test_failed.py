"""Which files failed is remembered outside of the documents' folders, and never in the way."""

from __future__ import annotations

from pathlib import Path

from docmill.cli.failed import failed, remember, state_file


def test_the_state_lies_where_the_system_keeps_states(tmp_path: Path) -> None:
    assert tmp_path / "docmill" / "convert.json" == state_file({"XDG_STATE_HOME": str(tmp_path), "HOME": "/nowhere"})
    assert Path("/home/anna/.local/state/docmill/convert.json") == state_file({"HOME": "/home/anna"})


def test_a_file_is_forgotten_once_it_succeeds_or_is_gone(tmp_path: Path) -> None:
    state, paths = tmp_path / "state" / "convert.json", [tmp_path / name for name in ("a.pdf", "b.pdf", "c.pdf")]
    for path in paths:
        path.touch()
    remember(state, failing=paths, fine=[])
    paths[2].unlink()

    assert remember(state, failing=[], fine=paths[:1])

    assert {str(paths[1])} == failed(state)


def test_a_state_that_cannot_be_read_or_written_stops_nobody(tmp_path: Path) -> None:
    for rubbish in ("", "[]", '{"failed": 7}', '{"failed": [7]}'):
        (tmp_path / "convert.json").write_text(rubbish)
        assert set() == failed(tmp_path / "convert.json")
    (tmp_path / "file").touch()

    assert not remember(tmp_path / "file" / "convert.json", failing=[], fine=[])
