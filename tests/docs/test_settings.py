"""The page of the settings says what the settings are."""

import json
import re
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
        ({"redis_url": "redis://x", **SHARED, "object_links": "service"}, "Set APP_URL"),
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
    secret = "hunter2" * 5
    assert "hunter2" not in repr(settings.load(jwt_secret=secret, secret=secret))


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


SAMPLES = {
    "data": "/srv/d",
    "library": "/srv/l",
    "database_url": "postgresql://u:p@db/x",
    "redis_url": "redis://r",
    "objects_url": "s3://b/p",
    "object_links": "service",
    "sandbox": "require",
    "jwt_secret": "0123456789abcdef" * 3,
    "max_connections": "64",
    "allowed_origins": "https://a.example.org,https://b.example.org",
    "log_format": "json",
    "log_level": "debug",
    "workers": '{"w": {"dialect": "secretary", "url": "http://w"}}',
    "providers": '{"mineru": {"url": "http://m"}}',
    "routing": '{"stay_home": true}',
    "llm": '{"url": "http://l", "model": "m"}',
    "captions": '{"url": "http://c", "model": "m"}',
    "inbox": '{"folder": "/srv/in"}',
    "onedrive": '{"client_id": "c"}',
    "memory_mb": "4096",
    "heartbeat": "3",
    "lease": "20",
}
TOGETHER = {"REDIS_URL": "redis://r", "DATABASE_URL": "postgresql://u:p@db/x", "OBJECTS_URL": "s3://b/p"}


def sample(name: str) -> str:
    """A value of the setting that is not its default."""
    field = settings.Settings.model_fields[name]
    if name in SAMPLES:
        return SAMPLES[name]
    if "tuple[int" in str(field.annotation):
        return "8080,8443"
    if "tuple" in str(field.annotation):
        return "10.0.0.0/8" if "hosts" not in name and "origins" not in name else "a.example.org"
    if field.annotation is bool:
        return str(not field.default).lower()
    return "7" if any(kind in str(field.annotation) for kind in ("int", "float")) else "http://x.example.org"


ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \|", re.MULTILINE)


@pytest.mark.parametrize(("name", "variable"), ROW.findall(PAGE.read_text("utf-8")))
def test_every_variable_and_name_on_the_page_sets_its_setting(
    name: str, variable: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one, value in TOGETHER.items() if name == "redis_url" else ():
        monkeypatch.setenv(one, value)
    default = getattr(settings.Settings.model_construct(), name, None)
    monkeypatch.setenv(variable, sample(name))

    assert default != getattr(settings.load(), name)
    assert ("environment", variable) == (settings.origins()[name].kind, settings.origins()[name].place)

    monkeypatch.delenv(variable)
    (elsewhere / "docmill.toml").write_text(f"# a comment\n{name} = {json.dumps(sample(name))}\n")
    if name == "redis_url":
        return  # text, as any other
    assert default != getattr(settings.load(), name)
    assert "docmill.toml, line 2" == str(settings.origins()[name])


def test_the_page_names_every_setting() -> None:
    assert list(settings.Settings.model_fields) == [name for name, _ in ROW.findall(PAGE.read_text("utf-8"))]
    assert "`OTEL_EXPORTER_OTLP_ENDPOINT`" in PAGE.read_text("utf-8")


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("DOCMILL_ALLOWED_HOSTS", "a.b", ("a.b",)),
        ("DOCMILL_ALLOWED_HOSTS", " a.b , *.c ", ("a.b", "*.c")),
        ("DOCMILL_ALLOWED_HOSTS", '["a.b", "c.d"]', ("a.b", "c.d")),
        ("DOCMILL_TRUSTED_PROXIES", "10.0.0.0/8,::1", ("10.0.0.0/8", "::1")),
        ("DOCMILL_WEBHOOK_PORTS", "8080, 8443", (8080, 8443)),
        ("DOCMILL_WEBHOOK_PORTS", "[8080]", (8080,)),
        ("DOCMILL_ALLOWED_HOSTS", "", ()),
    ],
)
def test_lists_are_separated_by_commas_or_json(
    variable: str, text: str, expected: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)

    assert expected == getattr(settings.load(), variable.removeprefix("DOCMILL_").lower())


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("DOCMILL_WORKERS", "{bad", ("workers (DOCMILL_WORKERS)", "JSON object", "column 2")),
        ("DOCMILL_LLM", "http://x", ("llm (DOCMILL_LLM)", "JSON object")),
        ("DOCMILL_PORT", "http", ("port (DOCMILL_PORT)", "valid integer")),
        ("DOCMILL_PORT", "tcp://10.0.0.1:80", ("port (DOCMILL_PORT)", "enableServiceLinks: false")),
        ("DOCMILL_TRUSTED_PROXIES", "10.0.0.300", ("trusted_proxies (DOCMILL_TRUSTED_PROXIES)", "10.0.0.0/8")),
        ("DOCMILL_ALLOWED_HOSTS", "https://a.b", ("allowed_hosts (DOCMILL_ALLOWED_HOSTS)", "a.example.org")),
        ("DOCMILL_LOG_FORMAT", "xml", ("log_format (DOCMILL_LOG_FORMAT)", "auto, json or console")),
        (
            "DOCMILL_PROVIDERS",
            '{"mineru": {"url": "ftp://x"}}',
            ("providers.mineru.url (DOCMILL_PROVIDERS)", "http://"),
        ),
        ("DOCMILL_PROVIDERS", '{"mineru": {"urll": "http://x", "url": "http://x"}}', ("Did you mean 'url'?",)),
        ("DATABASE_URL", "mysql://x", ("database_url (DATABASE_URL)", "postgresql://")),
        ("DOCMILL_ALLOWED_HOST", "a.b", ("DOCMILL_ALLOWED_HOST.", "Did you mean DOCMILL_ALLOWED_HOSTS?")),
        ("DOCMILL_REQUIRE_AUHT", "true", ("Did you mean DOCMILL_REQUIRE_AUTH?",)),
    ],
)
def test_a_bad_variable_is_one_line_that_says_what_is_allowed(
    variable: str, text: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)

    with pytest.raises(Invalid) as refused:
        settings.load()

    for word in words:
        assert word in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port = 1\ndata = /srv\n", ("docmill.toml cannot be read: line 2, column 8", "data =")),
        ('data = "x"\n\nport = "high"\n', ("port (docmill.toml, line 3)", "integer")),
        ("prot = 1\n", ("'prot' (docmill.toml, line 1)", "Did you mean 'port'?")),
        ("colour = 1\n", ("'colour' (docmill.toml, line 1)", "docs/reference/settings.md")),
        ('[providers.mineru]\nurl = "x"\n', ("providers.mineru.url (docmill.toml, line 2)", "http://")),
        ('[providers.mineru]\nurl = "http://x"\nkeyy = 1\n', ("'providers.mineru.keyy' (docmill.toml, line 3)",)),
        ("heartbeat = 10\n", ("heartbeat (docmill.toml, line 1)", "half of lease")),
        ("port = 1\nport = 2\n", ("docmill.toml cannot be read: line 2",)),
        (b"data = '\xff'\n", ("not UTF-8",)),
    ],
)
def test_a_broken_file_is_one_line_with_its_place(text: str | bytes, words: tuple[str, ...], elsewhere: Path) -> None:
    (elsewhere / "docmill.toml").write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(Invalid) as refused:
        settings.load()

    for word in words:
        assert word in refused.value.message
    assert "\n" not in refused.value.message


def test_the_file_is_a_folder(elsewhere: Path) -> None:
    (elsewhere / "docmill.toml").mkdir()

    with pytest.raises(Invalid, match=r"docmill.toml cannot be read: Is a directory"):
        settings.load()


def test_variables_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCMILL_URL", "DOCMILL_SERVICE_HOST", "DOCMILL_PORT_80_TCP_ADDR", "DOCMILL_COLOUR_OF_THE_SKY"):
        monkeypatch.setenv(name, "x")

    assert 8321 == settings.load().port
    assert ["DOCMILL_COLOUR_OF_THE_SKY"] == settings.unknown_variables()


def test_of_a_secret_only_shows_that_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = {"url": "http://me:hunter2@x", "api_key": "hunter2", "options": {"token": "hunter2"}}
    monkeypatch.setenv("DOCMILL_PROVIDERS", json.dumps({"mineru": provider}))
    monkeypatch.setenv("DOCMILL_METRICS_TOKEN", "hunter2")
    monkeypatch.setenv("APP_URL", "http://me:hunter2@docmill.example.org")

    shown = settings.load(database_url="postgresql://u:hunter2@db").shown()

    assert "hunter2" not in json.dumps(shown)
    assert '{"mineru": {"url": "http://…@x", "api_key": "…", "options": {"token": "…"}}}' == shown["providers"]
    assert "…" == shown["metrics_token"]
