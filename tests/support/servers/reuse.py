"""Servers that already run, named by environment variables: the tests use them and leave them running."""

from collections.abc import MutableMapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from support.servers.objects import BUCKET, REGION, S3Address
from support.servers.postgres import PostgresAddress
from support.servers.redis import RedisAddress

AWS = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@dataclass(frozen=True)
class Running:
    """What the environment names; None is for us to start."""

    postgres: PostgresAddress | None = None
    redis: RedisAddress | None = None
    s3: S3Address | None = None

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> "Running":
        """Take the names out of the environment: they choose the tests' servers, not the settings under test."""
        taken = {name: environment.pop(name, "") for name in ("DATABASE_URL", "REDIS_URL", *AWS)}
        database = environment.get("DOCMILL_TEST_DATABASE_URL") or taken["DATABASE_URL"]
        redis = environment.get("DOCMILL_TEST_REDIS_URL") or taken["REDIS_URL"]
        return cls(
            # The product may be set to SQLite; that says nothing about a PostgreSQL server.
            postgres=PostgresAddress(database) if database.startswith(("postgres://", "postgresql://")) else None,
            redis=RedisAddress(redis) if redis else None,
            s3=_s3(environment.get("DOCMILL_TEST_S3_URL", ""), environment.get("AWS_REGION") or REGION, taken),
        )


def _s3(url: str, region: str, taken: MutableMapping[str, str]) -> S3Address | None:
    if url:  # http://access:secret@host:port/bucket
        parts = urlsplit(url)
        endpoint = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        bucket = parts.path.strip("/") or BUCKET
        return S3Address(endpoint, unquote(parts.username or ""), unquote(parts.password or ""), bucket, region)
    endpoint, access_key, secret_key = (taken[name] for name in AWS)
    if endpoint and access_key and secret_key:
        return S3Address(endpoint, access_key, secret_key, region=region)
    return None
