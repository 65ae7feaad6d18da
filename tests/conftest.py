"""What every test may ask for. A service starts when the first test asks, is shared by all, and stops with the run."""

import asyncio
import os
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from support import leftovers
from support.databases import migrated
from support.servers import (
    MinerUServer,
    ObjectServer,
    Postgres,
    PostgresAddress,
    Redis,
    RedisAddress,
    Running,
    S3Address,
)
from support.servers.chromium import ensure_chromium
from support.serving import Mode, Service, Services

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # tests talk to loopback only
settings.register_profile("docmill", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("docmill")  # how long an example takes says something of the machine alone

RUNNING = pytest.StashKey[Running]()
SERVERS = {"postgres", "redis_server", "s3", "chromium", "mineru_server"}
SERVER_NAMES = ("postgres", "redis", "arq", "s3", "distributed")
"""Parameters of tests that ask for one of these servers while they run."""

LONGEST = (
    "journeys/test_mineru.py",  # it may have to install MinerU
    "unit/test_house.py",
    "browser/test_console.py",
    "journeys/test_cli.py",
    "unit/cli_service/test_howto.py",
    "journeys/test_fleet.py",
    "journeys/test_failpoints.py",
    "journeys/test_finals.py",
    "journeys/test_closed.py",
    "journeys/test_external_jobs.py",
    "journeys/test_operators.py",
    "journeys/test_two_docmills.py",
    "journeys/test_chaos.py",
    "journeys/test_kills.py",
    "journeys/test_disk_full.py",
    "journeys/test_callbacks.py",
    "journeys/test_flood.py",
)
"""Begun first, so that no worker is alone with one of them in the end."""

LONG = tuple(
    f"journeys/test_{name}.py"
    for name in ("callbacks", "clocks", "fairness", "isolation", "seed_003", "stop", "webhooks")
)
"""Their second walk, distributed, is for `make test-long`: `make test` has the fleet, the storm and all contracts."""


def pytest_configure(config: pytest.Config) -> None:
    config.option.anyio_mode = "auto"  # async tests and fixtures need no mark
    config.stash[RUNNING] = Running.taken_from(os.environ)
    os.environ.setdefault(leftovers.VARIABLE, uuid4().hex)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        place = place_of(config, item)
        if "[distributed" in item.name and place.startswith(LONG):
            item.add_marker("long")
        if needs_server(item):
            item.add_marker("server")
    order = {place: number for number, place in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(place_of(config, item), len(order)))


def place_of(config: pytest.Config, item: pytest.Item) -> str:
    return item.path.relative_to(config.rootpath / "tests").as_posix()


def needs_server(item: pytest.Item) -> bool:
    asked = set(getattr(item, "fixturenames", ()))
    parameters = item.name.partition("[")[2]
    return bool(asked & SERVERS) or any(name in parameters for name in SERVER_NAMES)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the services logged that run just now, whichever test started them."""
    report = yield
    if report.failed:
        for service in tuple(Service.started):
            if service.log:
                report.sections.append((f"log of the service at {service.data}", "".join(service.log)))
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nothing that a run starts may outlive it."""
    if hasattr(session.config, "workerinput"):
        return
    if left := leftovers.find_leftovers(os.environ[leftovers.VARIABLE]):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\nThese processes outlived the tests and were killed:\n{leftovers.end(left)}")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Iterator[PostgresAddress]:
    """A PostgreSQL server; `.url` is for a role that may create databases."""
    if running := pytestconfig.stash[RUNNING].postgres:
        yield running
        return
    with Postgres() as server:
        yield server.address


@pytest.fixture
def postgres_database(postgres: PostgresAddress) -> Iterator[str]:
    """The URL of an empty PostgreSQL database of this test's own."""
    with postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def migrated_postgres(postgres: PostgresAddress) -> Iterator[str]:
    """The URL of a PostgreSQL database with docmill's schema, for copies: they cost a fifth of a migration."""
    with postgres.database() as url:
        with ThreadPoolExecutor(1) as elsewhere:  # an async fixture may be asking, whose loop runs in this thread
            elsewhere.submit(asyncio.run, migrated(url)).result(60)
        yield url


@pytest.fixture
def postgres_copy(postgres: PostgresAddress, migrated_postgres: str) -> Iterator[str]:
    """The URL of a PostgreSQL database of this test's own with docmill's schema."""
    with postgres.copy_of(migrated_postgres) as url:
        yield url


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> Iterator[RedisAddress]:
    """A Redis server that keeps nothing."""
    if running := pytestconfig.stash[RUNNING].redis:
        yield running
        return
    with Redis() as server:
        yield server.address


@pytest.fixture
def redis_url(redis_server: RedisAddress) -> Iterator[str]:
    """The URL of an empty Redis database of this test's own."""
    with redis_server.database() as url:
        yield url


@pytest.fixture(scope="session")
def s3(pytestconfig: pytest.Config) -> Iterator[S3Address]:
    """An S3 server with a bucket."""
    if running := pytestconfig.stash[RUNNING].s3:
        running.create_bucket()
        yield running
        return
    with ObjectServer() as server:
        yield server.address


@pytest.fixture
def s3_prefix(s3: S3Address) -> Iterator[str]:
    """A prefix in the bucket of this test's own."""
    with s3.prefix() as prefix:
        yield prefix


@pytest.fixture(scope="module", params=["embedded", "distributed"])
def mode(request: pytest.FixtureRequest) -> Iterator[Mode]:
    """Both ways to run docmill. A journey that starts its service through this one is walked in each."""
    with ExitStack() as stack:
        services = None
        if request.param == "distributed":
            services = Services(*(request.getfixturevalue(name) for name in ("postgres", "redis_server", "s3")))
        yield Mode(request.param, services, stack)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The path of Chromium's executable."""
    return ensure_chromium()


@pytest.fixture(scope="session")
def mineru_server() -> Iterator[MinerUServer]:
    """A MinerU server in its flash tier. Who kills it starts it again."""
    with MinerUServer() as server:
        yield server
