"""What docmill keeps beside its data."""

from pathlib import Path

from docmill.compose.keeping import link_secret
from docmill.settings import Settings


def test_the_secret_is_made_once_and_an_empty_one_is_none(tmp_path: Path) -> None:
    """A file without its bytes is what a power cut leaves of one that was not synced."""
    settings = Settings(data=tmp_path)
    first = link_secret(settings)
    assert len(first) > 40
    assert first == link_secret(settings)
    assert 0o600 == (tmp_path / "secret").stat().st_mode & 0o777

    (tmp_path / "secret").write_bytes(b"")

    again = link_secret(settings)
    assert len(again) > 40
    assert first != again
