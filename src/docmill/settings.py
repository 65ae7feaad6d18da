"""One frozen Settings. A value comes from a flag, the environment, `docmill.toml` or the default, in this order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from docmill import settings_sources as sources
from docmill.core.origins import parse_origin

BUILT_IN = frozenset({"local", "auto"})
PROVIDER_KINDS = ("mineru", "docling")
OBJECTS = ("s3://", "gs://", "az://", "file:///")
MIN_JWT_SECRET_BYTES = 32
"""HS256 needs a key at least as long as its hash (RFC 7518, section 3.2)."""
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
    """Encrypts the tokens on disk; default: the deployment's secret does."""
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
    if chosen.object_links == "service" and not chosen.app_url:
        raise ValueError(
            "object_links is service but app_url is not set: the links lead there. Set APP_URL to an address of the "
            "API that the workers reach"
        )
    if chosen.workers and not chosen.app_url:
        raise ValueError(
            "workers are set but app_url is not: their callbacks must reach the API, and workers run elsewhere. "
            "Set APP_URL to the address of the API"
        )


class Settings(BaseSettings):
    """What docmill can be told. `docmill doctor` shows what is in force."""

    model_config = SettingsConfigDict(
        env_prefix=sources.PREFIX, env_ignore_empty=True, frozen=True, extra="ignore", populate_by_name=True
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
    object_links: Literal["store", "service"] = Field(
        "store",
        description="Who signs the links by which external workers take and leave files: store (the bucket itself), or "
        "service (through APP_URL, for a bucket that workers cannot reach).",
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
    metrics_token: SecretStr | None = Field(
        None,
        description="Token with which Prometheus may read /metrics from other machines; without it only this machine "
        "and operators may.",
    )
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="Port of a worker's /metrics and /health, on host; default: none."
    )
    retention_days: float | None = Field(
        None, gt=0, le=36_500, description="Days that a task is kept after it ended; default: for ever."
    )
    retention_failed_days: float | None = Field(
        None, gt=0, le=36_500, description="The same for tasks that failed or were cancelled; default: retention_days."
    )
    retention_documents: bool = Field(False, description="The documents that a task made are removed with it.")
    secret: SecretStr | None = Field(
        None,
        description="Secret of the deployment: signs links and forms, encrypts secrets of webhooks; "
        "default: made once, kept in DATA.",
    )
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
    sandbox: Literal["prefer", "require"] = Field(
        "prefer",
        description="prefer: parsers are confined as far as the system allows; require: docmill does not start unless "
        "they are confined fully.",
    )
    library: Path | None = Field(None, description="Folder below which twins may be written; default: DATA/library.")
    inbox: InboxSettings | None = Field(
        None,
        description="Folder to watch: folder, project, user, tenant, engine, twin, settle. JSON or a table.",
    )
    onedrive: OneDriveSettings | None = Field(
        None,
        description="Where twins for onedrive: go: client_id, tenant, client_secret, drive, root. JSON or table.",
    )
    jwt_secret: SecretStr | None = Field(
        None, description="Secret of HS256 tokens (Supabase's JWT secret), 32 bytes or more."
    )
    jwks_url: str | None = Field(None, description="Address or file of the JSON Web Key Set for signed tokens.")
    jwt_audience: str | None = Field(None, description="Audience (aud) that a token must name.")
    jwt_issuer: str | None = Field(None, description="Issuer (iss) that a token must name.")
    require_auth: bool = Field(False, description="Ask for credentials on loopback, too.")
    max_connections: int = Field(
        4096, ge=16, le=1_000_000, description="Open connections; fewer where the system allows fewer open files."
    )
    max_connections_per_address: int = Field(
        1024, ge=4, description="Open connections of one address; trusted_proxies have no such limit."
    )
    max_event_streams: int = Field(1000, ge=1, description="Event streams that one caller may have open.")
    head_timeout: float = Field(10.0, gt=0, le=600, description="Seconds for the head of a request to arrive.")
    keep_alive: float = Field(75.0, gt=0, le=3600, description="Seconds that a connection may wait between requests.")
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="Host names under which the service may be called, besides loopback; *.example.org for all below. "
        "Default: any if a credential is required, else only loopback.",
    )
    allowed_origins: tuple[str, ...] = Field(
        (), description="Origins whose web pages may call the API (CORS): https://app.example.org. Exact, no wildcard."
    )
    lease: float = Field(15.0, gt=0, description="Seconds after which a silent worker counts as dead.")
    heartbeat: float = Field(5.0, gt=0, description="Seconds between two signs of life of a worker.")
    sweep: float = Field(2.0, gt=0, description="Seconds between two rounds of the sweeper.")
    failure_grace: float = Field(
        30.0,
        gt=0,
        le=24 * 3600,
        description="Seconds that a job waits for another report after its worker logged an error, before it fails.",
    )
    grace: float = Field(10.0, ge=0, description="Seconds that open requests get at shutdown.")
    log_format: str = Field("auto", pattern="^(auto|json|console)$", description="auto, json or console.")
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="debug, info, warning, error.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, sources.EnvironmentSource(settings_cls), sources.FileSource(settings_cls)

    @field_validator("*", mode="before")
    @classmethod
    def _decode(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        return sources.decode(name, cls.model_fields[name], value)

    @field_validator("trusted_proxies", "fetch_networks", "webhook_networks")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        sources.check_networks(value)
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        sources.check_hosts(value)
        return value

    @field_validator("allowed_origins")
    @classmethod
    def _parse_origins(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(parse_origin(one) for one in given)

    @model_validator(mode="after")
    def _possible(self) -> Settings:
        if self.heartbeat * 2 > self.lease:
            raise ValueError("heartbeat must be at most half of lease, or living workers count as dead")
        self._check_names()
        if self.database_url and not self.database_url.startswith(("postgresql://", "postgres://")):
            raise ValueError("database_url must start with postgresql:// (leave it out for the embedded SQLite)")
        _check_places(self)
        if self.jwt_secret and len(self.jwt_secret.get_secret_value().encode()) < MIN_JWT_SECRET_BYTES:
            raise ValueError(
                f"jwt_secret is shorter than {MIN_JWT_SECRET_BYTES} bytes: whoever sees one token could guess it and "
                "sign others. Use the secret of your identity provider, or a random one of that length"
            )
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
        return {name: sources.show(name, getattr(self, name)) for name in type(self).model_fields}

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


def environment_name(name: str) -> str:
    """The variable that sets it: ours have a prefix, the ones that the wire contracts name do not."""
    return sources.variables(name, Settings.model_fields[name])[0]


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
this order. `docmill doctor` shows every setting in force and where it comes from. A value that cannot be used, and a
name that is not known, keep docmill from starting, with a line that names the place and what is allowed.

In the environment a list is written as `a,b`, and a table as JSON; an empty variable counts as not set.

| setting | variable | default | meaning |
|---|---|---|---|
{rows}

In `docmill.toml` a setting stands under its own name:

```toml
port = 9000
data = "/srv/docmill"
jobs = 4
allowed_hosts = ["docmill.example.org"]

[providers.mineru]
url = "http://mineru.example.org:8000"
```

This page is made from the settings themselves by `python -m docmill.settings docs/reference/settings.md`.
"""


def load(**flags: Any) -> Settings:
    """The settings in force. Flags that were not given (None) leave the choice to the environment."""
    given = {name: value for name, value in flags.items() if value is not None}
    sources.refuse_misspelt_variables(Settings)
    try:
        return Settings(**given)
    except ValidationError as error:
        raise sources.explain(Settings, error, given) from error


def origins(**flags: Any) -> dict[str, sources.Origin]:
    """Where each setting of `load(**flags)` comes from."""
    return sources.find_origins(Settings, {name: value for name, value in flags.items() if value is not None})


def unknown_variables() -> list[str]:
    """Environment variables with our prefix that set nothing."""
    return sources.find_unknown_variables(Settings)


if __name__ == "__main__":
    import sys

    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
