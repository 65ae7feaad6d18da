"""The embedded process is killed again and again while it parses one document: the document is innocent.

python -m bench.chaos.kills --kills 50
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import bench.chaos  # noqa: F401 - finds the tests' support
from support import hostile
from support.serving import Etl, Service


@dataclass(frozen=True)
class Killed:
    status: str
    lost_workers: int
    kinds: list[str]
    """Of the events of the document that was parsed at every kill."""
    neighbour: str
    """The status of a document that waited all the time."""


def kill_while_parsing(data: Path, *, kills: int) -> Killed:
    service = Service(data, "--jobs", "1").start()
    try:
        with service.client() as client:
            etl = Etl(client)
            task_id = etl.submit("scan.pdf", hostile.scans(2), no_cache=True)
            other_id = etl.submit("neighbour.txt", b"it waits")
        for _ in range(kills):
            with service.client() as client:
                Etl(client).wait(task_id, until=("mineru_parsing",), seconds=60)
            service.kill()
            service.start()
        with service.client() as client:
            etl = Etl(client)
            status = etl.wait(task_id, seconds=120)["status"]
            kinds = [event["kind"] for event in etl.events(task_id)]
            return Killed(status, kinds.count("worker_lost"), kinds, etl.wait(other_id, seconds=60)["status"])
    finally:
        service.stop()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=50)
    kills = options.parse_args().kills
    with TemporaryDirectory() as folder:
        killed = kill_while_parsing(Path(folder) / "data", kills=kills)
    print(f"kills {kills}, document {killed.status}, ran alone {killed.kinds.count('isolated')} times")
    print(f"the document that waited: {killed.neighbour}")
    raise SystemExit(killed.status != "completed" or killed.neighbour != "completed")


if __name__ == "__main__":
    main()
