"""The page of the settings says what the settings are."""

from pathlib import Path

import pytest

from docmill import settings
from docmill.core.errors import Invalid

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


SHARED = {"database_url": "postgresql://u:p@x", "objects_url": "s3://b/p"}
WORKER = {"dialect": "secretary", "url": "http://w"}


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
        ({"redis_url": "redis://x"}, "Set DATABASE_URL=postgresql"),
        ({"redis_url": "http://x", **SHARED}, "redis_url must start with redis://"),
        ({"redis_url": "redis://x", "database_url": "postgresql://x"}, "Set OBJECTS_URL=s3://bucket/prefix"),
        ({"redis_url": "redis://x", **SHARED, "database_url": "postgresql://x"}, "Set DOCMILL_SECRET"),
        ({"redis_url": "redis://x", **SHARED, "workers": {"w": WORKER}}, "Set APP_URL"),
        ({"objects_url": "ftp://x"}, "objects_url must start with"),
        ({"jobs": 0}, "jobs is 0"),
    ],
)
def test_an_impossible_setting_is_refused_with_its_name(flags: dict[str, object], word: str) -> None:
    with pytest.raises(Invalid, match=word) as refused:
        settings.load(**flags)
    assert "setting_invalid" == refused.value.code


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"database_url": "postgresql://x"},
        {"objects_url": "s3://b/p"},
        {"redis_url": "redis://x", **SHARED},
        {"redis_url": "rediss://x", **SHARED, "jobs": 0},
        {"redis_url": "redis://x", **SHARED, "objects_url": "file:///srv/o"},
        {"redis_url": "redis://x", **SHARED, "database_url": "postgresql://x", "secret": "s"},
        {"redis_url": "redis://x", **SHARED, "workers": {"w": WORKER}, "app_url": "http://a"},
    ],
)
def test_possible_mixes_are_taken(flags: dict[str, object]) -> None:
    assert settings.load(**flags).is_distributed == ("redis_url" in flags)


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
