"""One frozen Settings. A value comes from a flag, the environment, `docmill.toml` or the default, in this order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from docmill.core.errors import Invalid

BUILT_IN = frozenset({"local", "auto"})
PROVIDER_KINDS = ("mineru", "docling")
OBJECTS = ("s3://", "gs://", "az://", "file:///")
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def _named(name: str) -> AliasChoices:
    """A setting that the wire contracts name keeps that name; ours has the prefix."""
    return AliasChoices(name.lower(), f"docmill_{name.lower()}", name)


class WorkerSettings(BaseModel):
    """Where an external worker is, and how it is spoken to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dialect: Literal["secretary", "dispatcher"]
    url: str = Field(pattern="^https?://")
    api_key: SecretStr | None = None
    timeout: float = Field(600.0, gt=0, le=7 * 24 * 3600)


class ProviderSettings(BaseModel):
    """Where a provider is, and how much may be asked of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["mineru", "docling"] | None = None
    """What it speaks; default: its name."""
    url: str = Field(pattern="^https?://")
    api_key: SecretStr | None = None
    timeout: float = Field(300.0, gt=0, le=24 * 3600)
    """Seconds of one request."""
    concurrency: int = Field(4, ge=1, le=256)
    """Requests at once."""
    tries: int = Field(4, ge=1, le=20)
    max_pages: int | None = Field(None, ge=1)
    """Pages that it takes in one go; longer documents are cut. Default: what the provider is known to take."""
    home: bool = False
    """It stands in the house: documents that must not leave may go there."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What goes along with every request, in the provider's own words: tier, ocr_mode, model_version."""


class RoutingSettings(BaseModel):
    """How the engine `auto` chooses, and what no document may do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefer: Literal["local", "provider"] = "local"
    """`local`: providers only when the local result is poor; `provider`: they come first."""
    stay_home: bool = False
    """No document leaves the house: only providers that stand in it are used."""
    budget_pages: int | None = Field(None, ge=0)
    """Pages of one document that may go to providers outside."""


class ModelSettings(BaseModel):
    """A model behind an OpenAI-compatible server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(pattern="^https?://")
    """Base address, as in the server's own documentation: `https://…/v1`."""
    model: str = Field(min_length=1)
    api_key: SecretStr | None = None
    timeout: float = Field(120.0, gt=0, le=24 * 3600)
    """Seconds of one request."""
    concurrency: int = Field(4, ge=1, le=256)
    """Requests at once."""
    tries: int = Field(4, ge=1, le=20)
    """Of a request that the server does not answer."""
    max_tokens: int = Field(8192, ge=1)
    """Of one answer."""
    budget_seconds: float = Field(300.0, gt=0)
    """For one document."""
    home: bool = False
    """It stands in the house: documents that must not leave may be shown to it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What goes along with every request; null takes a field of ours away."""


class LlmSettings(ModelSettings):
    budget_tokens: int = Field(1_000_000, ge=1)
    """For one document, in and out."""


class CaptionSettings(ModelSettings):
    max_tokens: int = Field(1024, ge=1)
    budget_seconds: float = Field(120.0, gt=0)
    min_confidence: float = Field(0.5, ge=0, le=1)
    """A caption of which the model is less sure is not taken."""
    max_images: int = Field(100, ge=0)
    """Of one document."""


class OneDriveSettings(BaseModel):
    """The app registration through which twins get to OneDrive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client_id: str
    tenant: str = "common"
    client_secret: SecretStr | None = None
    """With one the app speaks for itself, else for a user who signed in."""
    drive: str = "me/drive"
    root: str = "/"
    token_key: SecretStr | None = None
    """Encrypts the tokens on disk."""
    login: str = "https://login.microsoftonline.com"
    graph: str = "https://graph.microsoft.com/v1.0"


class InboxSettings(BaseModel):
    """A folder that the service watches: what is laid there becomes a task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    project: int = Field(0, ge=0)
    user: str = Field("local", min_length=1, max_length=128)
    tenant: str = Field("local", min_length=1, max_length=128)
    """Whose tasks they are; default: those of the one user of a service without credentials."""
    engine: str | None = None
    twin: bool = False
    """Also write a twin into the library."""
    settle: float = Field(1.0, ge=0.05, le=3600)
    """Seconds of quiet after which a file counts as written."""


def _check_places(chosen: Settings) -> None:
    """Where things lie must fit together, or two processes would each keep half of them."""
    objects = chosen.objects_url
    if objects is not None and not objects.startswith(OBJECTS):
        raise ValueError(f"objects_url must start with one of {', '.join(OBJECTS)} (leave it out for DATA/objects)")
    if chosen.redis_url is None:
        if chosen.jobs == 0:
            raise ValueError("jobs is 0, and without redis_url nobody else does the work: set jobs to 1 or more")
        return
    if not chosen.redis_url.get_secret_value().startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("redis_url must start with redis:// or rediss://")
    if not chosen.database_url:
        raise ValueError(
            "redis_url is set but database_url is not: processes that share a queue must share a database. "
            "Set DATABASE_URL=postgresql://..., or leave REDIS_URL out to run everything in one process"
        )
    if objects is None:
        raise ValueError(
            "redis_url is set but objects_url is not: workers would look for files on their own disks. "
            "Set OBJECTS_URL=s3://bucket/prefix, or OBJECTS_URL=file:///folder if all processes see that folder"
        )
    if chosen.secret is None and not urlsplit(chosen.database_url).password:
        raise ValueError(
            "database_url has no password and secret is not set: what one process signs must be good at another, and "
            "nobody may guess it. Set DOCMILL_SECRET to the same long random text everywhere"
        )
    if chosen.workers and not chosen.app_url:
        raise ValueError(
            "workers are set but app_url is not: their callbacks must reach the API, and workers run elsewhere. "
            "Set APP_URL to the address of the API"
        )


class Settings(BaseSettings):
    """What docmill can be told. `docmill doctor` shows what is in force."""

    model_config = SettingsConfigDict(
        env_prefix="DOCMILL_", frozen=True, extra="ignore", toml_file="docmill.toml", populate_by_name=True
    )

    data: Path = Field(Path(".docmill"), description="Folder of the embedded database, objects and twins.")
    host: str = Field("127.0.0.1", description="Address to serve on.")
    port: int = Field(8321, ge=0, le=65535, description="Port to serve on; 0 picks a free one.")
    database_url: str | None = Field(
        None, validation_alias=_named("DATABASE_URL"), description="postgresql://… instead of the embedded SQLite."
    )
    redis_url: SecretStr | None = Field(
        None,
        validation_alias=_named("REDIS_URL"),
        description="redis://… or rediss://…: several API and worker processes share the work.",
    )
    objects_url: str | None = Field(
        None,
        validation_alias=_named("OBJECTS_URL"),
        description="s3://bucket/prefix (or gs://, az://), or file:///folder; default: DATA/objects.",
    )
    etl_task_timeout: float = Field(
        600.0, gt=0, validation_alias=_named("ETL_TASK_TIMEOUT"), description="Seconds that a stage may take."
    )
    app_url: str | None = Field(
        None, validation_alias=_named("APP_URL"), description="Where workers and people reach this service."
    )
    callback_signing_key: SecretStr | None = Field(
        None,
        validation_alias=_named("CALLBACK_SIGNING_KEY"),
        description="Key with which dispatchers sign their callbacks; several, separated by commas, while rotating.",
    )
    workers: dict[str, WorkerSettings] = Field(
        default_factory=dict, description="External workers by name: dialect, url, api_key, timeout. JSON or a table."
    )
    providers: dict[str, ProviderSettings] = Field(
        default_factory=dict,
        description="Engines over the network by name (mineru, docling): url, api_key, timeout. JSON or a table.",
    )
    routing: RoutingSettings = Field(
        default_factory=RoutingSettings,
        description="What the engine auto may do: prefer (local, provider), stay_home, budget_pages. JSON or a table.",
    )
    llm: LlmSettings | None = Field(
        None,
        description="Language model for rules of mode llm: url, model, api_key, timeout, max_tokens, budget_tokens, "
        "budget_seconds, home, options. JSON or a table.",
    )
    captions: CaptionSettings | None = Field(
        None,
        description="Vision model for images: url, model, api_key, timeout, min_confidence, max_images, "
        "budget_seconds, home, options. JSON or a table.",
    )
    trusted_proxies: tuple[str, ...] = Field(
        (), description="Addresses or networks of proxies whose X-Forwarded-For is believed."
    )
    fetch_networks: tuple[str, ...] = Field(
        (), description="Private networks from which results may be fetched; public ones always may."
    )
    webhook_networks: tuple[str, ...] = Field(
        (), description="Private networks to which webhooks may be sent; public ones always may."
    )
    webhook_ports: tuple[int, ...] = Field((80, 443), description="Ports to which webhooks may be sent.")
    webhook_timeout: float = Field(
        20.0, gt=0, le=30, description="Seconds that the receiver of a webhook may take to answer."
    )
    webhook_days: float = Field(
        3.0, gt=0, le=30, description="Days over which a webhook is sent again that was not received."
    )
    otel_endpoint: str | None = Field(
        None,
        validation_alias=_named("OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="http://… of an OpenTelemetry collector (OTLP over HTTP): traces of tasks are sent there.",
    )
    retention_days: float | None = Field(
        None, gt=0, le=36_500, description="Days that a task is kept after it ended; default: for ever."
    )
    retention_failed_days: float | None = Field(
        None, gt=0, le=36_500, description="The same for tasks that failed or were cancelled; default: retention_days."
    )
    retention_documents: bool = Field(False, description="The documents that a task made are removed with it.")
    secret: SecretStr | None = Field(None, description="Secret of signed links; default: made once, kept in DATA.")
    jobs: int = Field(
        default_factory=lambda: os.cpu_count() or 2, ge=0, le=256, description="Documents parsed at once."
    )
    warm: bool = Field(
        True, description="Parsing processes are kept ready; false: each is started when a document needs it."
    )
    stage_jobs: int = Field(
        8, ge=1, le=256, description="Documents at once in the stages after parsing, and calls to external workers."
    )
    max_upload_mb: int = Field(2048, ge=1, description="Largest file that is taken, in MB.")
    memory_mb: int = Field(3072, ge=2048, description="Address space that parsing one document may use, in MB.")
    max_pages: int = Field(10_000, ge=1, description="Pages that a document may have.")
    library: Path | None = Field(None, description="Folder below which twins may be written; default: DATA/library.")
    inbox: InboxSettings | None = Field(
        None,
        description="Folder to watch: folder, project, user, tenant, engine, twin, settle. JSON or a table.",
    )
    onedrive: OneDriveSettings | None = Field(
        None,
        description="Where twins for onedrive: go: client_id, tenant, client_secret, drive, root. JSON or table.",
    )
    jwt_secret: SecretStr | None = Field(None, description="Secret of HS256 tokens (Supabase's JWT secret).")
    jwks_url: str | None = Field(None, description="Address or file of the JSON Web Key Set for signed tokens.")
    jwt_audience: str | None = Field(None, description="Audience that a token must name.")
    require_auth: bool = Field(False, description="Ask for credentials on loopback, too.")
    allowed_hosts: tuple[str, ...] = Field((), description="Host names under which the service may be called.")
    lease: float = Field(15.0, gt=0, description="Seconds after which a silent worker counts as dead.")
    heartbeat: float = Field(5.0, gt=0, description="Seconds between two signs of life of a worker.")
    sweep: float = Field(2.0, gt=0, description="Seconds between two rounds of the sweeper.")
    grace: float = Field(10.0, ge=0, description="Seconds that open requests get at shutdown.")
    log_format: str = Field("auto", pattern="^(auto|json|console)$", description="auto, json or console.")
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="debug, info, warning, error.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @model_validator(mode="after")
    def _possible(self) -> Settings:
        if self.heartbeat * 2 > self.lease:
            raise ValueError("heartbeat must be at most half of lease, or living workers count as dead")
        self._check_names()
        if self.database_url and not self.database_url.startswith(("postgresql://", "postgres://")):
            raise ValueError("database_url must start with postgresql:// (leave it out for the embedded SQLite)")
        _check_places(self)
        return self

    def _check_names(self) -> None:
        """Workers, providers and the built-in engines share one space of names: `engine` of a task picks by it."""
        for kind, names in (("worker", self.workers), ("provider", self.providers)):
            for taken in BUILT_IN & set(names):
                raise ValueError(f"a {kind} cannot be named '{taken}': that is a built-in engine")
        for twice in set(self.workers) & set(self.providers):
            raise ValueError(f"'{twice}' names both a worker and a provider")
        for name, one in self.providers.items():
            if one.kind is None and name not in PROVIDER_KINDS:
                raise ValueError(f"the provider '{name}' needs a kind: {', '.join(PROVIDER_KINDS)}")

    def shown(self) -> dict[str, str]:
        """Every setting in force, for people to read; of a secret only that it is set."""
        return {name: _shown(name, getattr(self, name)) for name in type(self).model_fields}

    @property
    def is_distributed(self) -> bool:
        """Whether other processes work beside this one."""
        return self.redis_url is not None

    @property
    def upload_bytes(self) -> int:
        return self.max_upload_mb * 1024 * 1024

    @property
    def library_root(self) -> Path:
        return (self.library or self.data / "library").resolve()

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK or self.host.startswith("127.")


def _shown(name: str, value: Any) -> str:
    if value in (None, (), {}):
        return "–"
    if isinstance(value, dict):
        return ", ".join(value)
    if name == "database_url":
        return urlsplit(str(value)).scheme + "://…"
    if isinstance(value, BaseModel | SecretStr):
        return "…"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def environment_name(name: str) -> str:
    """The variable that sets it: ours have a prefix, the ones that the wire contracts name do not."""
    alias = Settings.model_fields[name].validation_alias
    return name.upper() if alias else f"DOCMILL_{name.upper()}"


def reference() -> str:
    """The page `docs/reference/settings.md`."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = "number of cores" if name == "jobs" else field.get_default(call_default_factory=True)
        shown = "-" if default in (None, (), {}) or isinstance(default, BaseModel) else f"`{default}`"
        rows.append(f"| `{name}` | `{environment_name(name)}` | {shown} | {field.description} |")
    return PAGE.format(rows="\n".join(rows))


PAGE = """# Settings

A value comes from a flag of the command, the environment, `docmill.toml` in the current folder, or the default, in
this order. `docmill doctor` shows what is in force.

| setting | variable | default | meaning |
|---|---|---|---|
{rows}

In `docmill.toml` a setting stands under its own name:

```toml
port = 9000
data = "/srv/docmill"
jobs = 4
```

This page is made from the settings themselves by `python -m docmill.settings docs/reference/settings.md`.
"""


def load(**flags: Any) -> Settings:
    """The settings in force. Flags that were not given (None) leave the choice to the environment."""
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "settings"
        raise Invalid("setting_invalid", name=name, why=first["msg"]) from error


if __name__ == "__main__":
    import sys

    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
