"""The page of the settings says what the settings are."""

from pathlib import Path

import pytest

from docmill import settings
from docmill.core.errors import Invalid

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_is_current() -> None:
    assert settings.reference() == PAGE.read_text(encoding="utf-8"), "run: python -m docmill.settings " + str(PAGE)


def test_a_flag_beats_the_environment_which_beats_the_file(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 8321 == settings.load().port
    (elsewhere / "docmill.toml").write_text("port = 1\n")
    assert 1 == settings.load().port
    monkeypatch.setenv("DOCMILL_PORT", "2")
    assert 2 == settings.load().port
    assert 3 == settings.load(port=3).port
    assert 2 == settings.load(port=None).port


@pytest.mark.parametrize("name", ["ETL_TASK_TIMEOUT", "DOCMILL_ETL_TASK_TIMEOUT"])
def test_settings_that_the_wire_contracts_name_keep_their_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "7")

    assert 7 == settings.load().etl_task_timeout


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"port": 99999}, "port"),
        ({"heartbeat": 10.0, "lease": 15.0}, "half of lease"),
        ({"database_url": "mysql://x"}, "postgresql://"),
        ({"log_format": "xml"}, "log_format"),
    ],
)
def test_an_impossible_setting_is_refused_with_its_name(flags: dict[str, object], word: str) -> None:
    with pytest.raises(Invalid, match=word) as refused:
        settings.load(**flags)
    assert "setting_invalid" == refused.value.code


def test_secrets_do_not_show() -> None:
    assert "hunter2" not in repr(settings.load(jwt_secret="hunter2"))


@pytest.mark.parametrize(
    ("providers", "word"),
    [
        ({"local": {"url": "http://x"}}, "built-in"),
        ({"cloud": {"url": "http://x"}}, "needs a kind"),
        ({"mineru": {"url": "ftp://x"}}, "url"),
        ({"mineru": {"url": "http://x", "colour": "red"}}, "colour"),
    ],
)
def test_an_impossible_provider_is_refused(providers: dict[str, object], word: str) -> None:
    with pytest.raises(Invalid, match=word):
        settings.load(providers=providers)


def test_a_provider_comes_from_the_environment_or_a_table(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "docmill.toml").write_text('[providers.mineru]\nurl = "http://a"\napi_key = "hunter2"\n')
    assert "http://a" == settings.load().providers["mineru"].url
    assert "hunter2" not in repr(settings.load())
    monkeypatch.setenv("DOCMILL_PROVIDERS", '{"docling": {"url": "http://b", "concurrency": 2}}')
    assert 2 == settings.load().providers["docling"].concurrency
