"""A service with secrets whose parser was taken over: what did it reach? Prints JSON. Started by `deployments`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from docmill.adapters.engines.local import Limits, LocalEngine
from docmill.adapters.engines.sandbox.kernel import hide_memory
from docmill.ports import Work


async def attack(attacker: Path, data: Path, order: dict[str, object]) -> dict[str, object]:
    scratch = data / "scratch"
    scratch.mkdir()
    engine = LocalEngine(1, Limits(seconds=60), spares=0, child_module=attacker, scratch=scratch)
    try:
        source = scratch / "source"
        source.write_text(json.dumps(order))
        work = Work(1, uuid4(), source, "order.json", scratch / "attempt", is_source_ours=True)
        work.folder.mkdir()
        parsed = await engine.start(work, lambda _done, _total: None)
        return {
            "isolation": parsed.facts["isolation"],
            "found": json.loads(parsed.pages[0].markdown),
            "source": source.read_text() == json.dumps(order) and source.stat().st_mode & 0o777 == 0o644,
        }
    finally:
        await engine.close()


def main() -> None:
    os.environ["DOCMILL_JWT_SECRET"] = "canary"
    hide_memory()
    data = Path(tempfile.mkdtemp(prefix="docmill-attacked-"))
    data.chmod(0o755)
    objects = data / "objects" / "other"
    objects.mkdir(parents=True)
    kept = {data / "docmill.db": b"rows", data / "secret": b"canary", objects / "contract.pdf": b"contract"}
    for path, content in kept.items():
        path.write_bytes(content)
        path.chmod(0o644)
    abstract = f"docmill-{uuid4().hex}"
    try:
        with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
            unix.bind(str(data / "socket"))
            unix.listen()
            with socket.socket(socket.AF_UNIX) as hidden:
                hidden.bind("\0" + abstract)
                hidden.listen()
                order = {
                    "data": str(data),
                    "port": tcp.getsockname()[1],
                    "socket": str(data / "socket"),
                    "abstract": abstract,
                }
                told = asyncio.run(attack(Path(sys.argv[1]), data, order))
        told["kept"] = all(path.exists() and path.read_bytes() == content for path, content in kept.items())
        told["left"] = sorted(path.name for path in data.iterdir())
        told["uid"] = os.getuid()
        sys.stdout.write(json.dumps(told))
    finally:
        shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    main()
