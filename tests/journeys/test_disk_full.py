"""The disk is full, and so is the one for the log: clients are told, nothing breaks, and it goes on by itself (R13)."""

import shutil
import sys
import time
from pathlib import Path

import apsw
import pytest

from support import hostile
from support.serving import Etl, Service

SIZE = "24m"
SCRIPT = 'mount -t tmpfs -o "size=$1" none "$2" && shift 2 && exec "$@" 2>/dev/full'
"""A small disk that only this process sees. No privileges are needed for it."""


class OnSmallDisk(Service):
    def __init__(self, data: Path, *flags: str, **environment: str) -> None:
        super().__init__(data, *flags, **environment)
        data.mkdir()
        small = ("unshare", "-Urm", "sh", "-c", SCRIPT, "sh", SIZE, str(data))
        self.program = (*small, sys.executable, "-m", "docmill")

    @property
    def disk(self) -> Path:
        return Path(f"/proc/{self.pid}/root{self.data}")

    def fill(self) -> None:
        with (self.disk / "filler").open("wb", buffering=0) as filler:
            size = 1 << 20
            while size:
                try:
                    filler.write(b"\0" * size)
                except OSError:
                    size //= 2

    def clear(self) -> None:
        (self.disk / "filler").unlink()


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux'")
def test_a_full_disk_is_said_and_got_over_without_a_restart(tmp_path: Path) -> None:
    pace = {"DOCMILL_LEASE": "2", "DOCMILL_HEARTBEAT": "0.5", "DOCMILL_SWEEP": "0.3"}
    with OnSmallDisk(tmp_path / "data", "--jobs", "1", **pace) as service, service.client() as client:
        etl = Etl(client)
        before = etl.done("before.txt", b"before the disk was full")
        stored = etl.upload("later.txt", b"uploaded while there was room")
        running = etl.submit("scan.pdf", hostile.scans(2), no_cache=True)
        etl.wait(running, until=("mineru_parsing",))
        service.fill()

        said = {}
        for _ in range(3):
            files = {"file": ("big.bin", b"x" * 500_000)}
            said["upload"] = etl.post("/upload", data={"project_id": "1"}, files=files)
            body = {"project_id": 1, "filename": "later.txt", "s3_key": stored["key"]}
            said["submit"] = etl.post("/submit", json=body, headers={"Idempotency-Key": "once"})
            time.sleep(0.3)

        assert {"upload": 507, "submit": 507} == {name: answer.status_code for name, answer in said.items()}
        assert {"storage_full"} == {answer.json()["code"] for answer in said.values()}
        assert all("retry-after" in answer.headers for answer in said.values())
        assert before["result"] == etl.task(before["task_id"])["result"], "what is there can be read"
        assert 200 == etl.get("/tasks").status_code
        service.clear()

        done = etl.wait(running, seconds=90)
        assert "completed" == done["status"], done
        assert 1 == [event["kind"] for event in etl.events(running)].count("completed")
        body = {"project_id": 1, "filename": "later.txt", "s3_key": stored["key"]}
        later = etl.post("/submit", json=body, headers={"Idempotency-Key": "once"})
        assert later.is_success, later.text
        assert "completed" == etl.wait(int(later.json()["task_id"]))["status"]
        assert 3 == etl.get("/tasks").json()["total"]
        for path in service.disk.glob("docmill.db*"):
            shutil.copy(path, tmp_path)
        ledger = apsw.Connection(str(tmp_path / "docmill.db"))
        assert [("ok",)] == list(ledger.execute("PRAGMA integrity_check"))
        ledger.close()
        for path in (service.disk / "objects").rglob("*"):
            assert not path.is_file() or path.stat().st_size, f"{path} is empty"
