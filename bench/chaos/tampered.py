"""docmill in a process that was tampered with before its first line: it dies at a named point, its clock is wrong, its
event loop is kept busy, its sweeper keeps a diary, or it says how much memory SQLite has.

    python -m bench.chaos.tampered '{"clock": {"off_s": -600}}' serve --data ...

The product has no switch for any of this: the seams are wrapped here, in the one process that a test starts.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import cycle
from pathlib import Path
from typing import Any

from bench.chaos.disk import Disk

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b\d+\b")
SQLITE_MEMORY_S = 1.0
SENT_S = 0.005
"""After that an answer that was given to the event loop has left the process."""


def tamper(wanted: dict[str, Any]) -> None:
    """In the process that will become docmill, before it does."""
    if points := wanted.get("points"):
        Points(Path(points)).install()
    if clock := wanted.get("clock"):
        Clock(**clock).install()
    if busy := wanted.get("busy"):
        keep_busy(**busy)
    if disk := wanted.get("disk"):
        _KEPT.append(one := Disk(Path(disk["data"]), Path(disk["image"])))
        one.install()
    if diary := wanted.get("diary"):
        Diary(Path(diary)).install()
    if sqlite := wanted.get("sqlite"):
        threading.Thread(target=write_sqlite_memory, args=(Path(sqlite),), daemon=True).start()


def write_sqlite_memory(file: Path) -> None:
    """The bytes that SQLite holds, again and again. Most are page caches, which fill as the database grows."""
    import apsw

    while True:
        file.write_text(str(apsw.memory_used()))
        time.sleep(SQLITE_MEMORY_S)


class Points:
    """Named points around every commit, rename, sync and HTTP message. Each one that is reached is written down; at the
    one that the order names, the process is gone, as by `kill -9`.

    SIGUSR1 says that there is a new order in `<folder>/order`: the name of a point with its number (`#2`: the second
    time that it is reached from now on), or nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = os.open(folder / f"{os.getpid()}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._seen: Counter[str] = Counter()
        self._guard = threading.RLock()
        self._order = ""

    def install(self) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: self._obey())
        self._obey()
        self._watch_files()
        self._watch_sqlite()
        self._watch_postgres()
        self._watch_objects()
        self._watch_queue()
        self._watch_http()

    def reach(self, name: str) -> None:
        with self._guard:
            self._seen[name] += 1
            point = f"{name}#{self._seen[name]}"
            os.write(self._log, f"{point}\n".encode())
            if point == self._order:
                os.kill(os.getpid(), signal.SIGKILL)

    def _obey(self) -> None:
        with self._guard:
            self._seen.clear()
            self._order = (self._folder / "order").read_text()
            os.write(self._log, b"\n")

    def _around(self, owner: Any, attribute: str, name: Callable[..., str]) -> None:
        """Reach `before` and `after` whatever this function does; a *name* that is empty: not this time."""
        inner = getattr(owner, attribute)

        def whole(*args: Any, **kwargs: Any) -> Any:
            label = name(*args, **kwargs)
            if label:
                self.reach(f"before {label}")
            result = inner(*args, **kwargs)
            if label:
                self.reach(f"after {label}")
            return result

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            label = name(*args, **kwargs)
            if label:
                self.reach(f"before {label}")
            result = await inner(*args, **kwargs)
            if label:
                self.reach(f"after {label}")
            return result

        is_async = asyncio.iscoroutinefunction(inner) or attribute.endswith("_async")
        wrapper = awaited if is_async else whole
        setattr(owner, attribute, functools.wraps(inner)(wrapper))

    def _watch_files(self) -> None:
        for call in ("rename", "replace", "link", "fsync", "unlink"):
            self._around(os, call, functools.partial(_file_point, call))
        from docmill.adapters.libraries import disk

        if hasattr(disk, "_exchange"):
            self._around(disk, "_exchange", lambda *_, **__: "exchange disk")

    def _watch_sqlite(self) -> None:
        import apsw

        from docmill.adapters.sql.sqlite import SqliteDatabase

        points, names = self, threading.local()
        run_one = SqliteDatabase._run_one

        def noted(database: Any, op: Any, **kwargs: Any) -> Any:
            if op.__name__ != "_beat":  # when it beats is chance
                names.ops = [*getattr(names, "ops", ()), op.__name__]
            return run_one(database, op, **kwargs)

        class Watched(apsw.Connection):
            def execute(self, statements: str, *args: Any, **kwargs: Any) -> Any:
                ops = getattr(names, "ops", []) if statements == "COMMIT" else []
                if not ops:
                    return super().execute(statements, *args, **kwargs)
                names.ops = []
                for op in ops:
                    points.reach(f"before commit {op}")
                done = super().execute(statements, *args, **kwargs)
                for op in ops:
                    points.reach(f"after commit {op}")
                return done

        SqliteDatabase._run_one = noted  # type: ignore[method-assign]
        apsw.Connection = Watched  # type: ignore[misc]

    def _watch_postgres(self) -> None:
        from docmill.adapters.sql.postgres import Connection, PostgresDatabase

        running: ContextVar[str] = ContextVar("running", default="")
        write = PostgresDatabase.write

        async def noted(database: Any, op: Any, **kwargs: Any) -> Any:
            running.set(op.__name__)
            return await write(database, op, **kwargs)

        PostgresDatabase.write = noted  # type: ignore[method-assign]
        self._around(
            Connection,
            "execute",
            lambda _, query, *args, **kwargs: (
                f"commit {running.get()}" if query == "COMMIT" and running.get() not in ("", "_beat") else ""
            ),
        )

    def _watch_objects(self) -> None:
        import obstore

        self._around(obstore, "put_async", lambda *_, **__: "put of an object")
        self._around(obstore, "delete_async", lambda *_, **__: "delete of an object")

    def _watch_queue(self) -> None:
        from docmill.adapters.queues.arq import ArqQueue

        self._around(ArqQueue, "_send", lambda *_, **__: "put into Redis")
        take = ArqQueue._take

        async def taken(queue: Any, *args: Any) -> bool:
            found = await take(queue, *args)
            if found:
                self.reach("after take from Redis")
            return found

        ArqQueue._take = taken  # type: ignore[method-assign]

    def _watch_http(self) -> None:
        import httpx2

        from docmill.http.app import App

        self._around(
            httpx2.AsyncClient,
            "send",
            lambda _, request, **__: f"call {request.method} {_ID.sub(':id', request.url.path)}",
        )
        points, serve = self, App.__call__

        async def served(app: Any, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
                await serve(app, scope, receive, send)
                return
            label = f"answer {scope['method']} {_ID.sub(':id', scope['path'])}"

            async def sent(message: Any) -> None:
                if message["type"] == "http.response.start":
                    points.reach(f"before {label}")
                await send(message)
                if message["type"] == "http.response.body" and not message.get("more_body"):
                    asyncio.get_running_loop().call_later(SENT_S, points.reach, f"after {label}")

            await serve(app, scope, receive, sent)

        App.__call__ = served  # type: ignore[method-assign]


def _file_point(call: str, *_: Any, **__: Any) -> str:
    """Named by the function of docmill's that asked for it; what others do with files is their own affair."""
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("docmill."):
            return f"{call} in {module.removeprefix('docmill.')}.{frame.f_code.co_name}"
        if not module.startswith(("pathlib", "shutil", "contextlib", __name__)):
            return ""
        frame = frame.f_back  # type: ignore[assignment]
    return ""


class Clock:
    """The time of day as this process sees it: *off_s* from the real one, and with every SIGUSR2 *step_s* further off,
    or by the next of *steps_s*.

    SQLite reads it, too: embedded, the database's clock is this one.
    """

    def __init__(self, off_s: float = 0.0, step_s: float = 0.0, steps_s: Sequence[float] = ()) -> None:
        self._off_s = off_s
        self._steps_s = cycle(steps_s or [step_s])

    def install(self) -> None:
        import apsw

        real, real_ns, off = time.time, time.time_ns, lambda: self._off_s
        time.time = lambda: real() + off()
        time.time_ns = lambda: real_ns() + int(off() * 1e9)
        signal.signal(signal.SIGUSR2, lambda *_: self._step())

        class Skewed(apsw.VFS):
            def __init__(self) -> None:
                super().__init__("skewed", "", makedefault=True)

            def xCurrentTimeInt64(self) -> int:  # noqa: N802 - SQLite's name
                return round((time.time() / 86_400 + 2_440_587.5) * 86_400_000)

        self._vfs = Skewed()
        _KEPT.append(self)

    def _step(self) -> None:
        self._off_s += next(self._steps_s)


_KEPT: list[object] = []


def keep_busy(seconds: float, name: str) -> None:
    """A parse of a document of this name keeps the event loop busy with the processor for so long."""
    from docmill.core.task import Stage
    from docmill.work import run

    parse = run.STAGES[Stage.PARSE]

    async def busy(ports: Any, step: Any) -> Any:
        if step.task.filename == name:
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                sum(range(10_000))
        return await parse(ports, step)

    run.STAGES[Stage.PARSE] = busy


class Diary:
    """What the sweeper of this process did and when, so that a slow recovery can be explained afterwards."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def install(self) -> None:
        from docmill import worker
        from docmill.work import sweep

        sweep_all, recover, start = sweep.sweep, sweep._recover, worker.Worker.start

        async def swept(*args: Any, **kwargs: Any) -> int:
            with self._noted("sweep") as said:
                said["mended"] = mended = await sweep_all(*args, **kwargs)
            return mended

        async def recovered(ports: Any, attempt: Any, lapsed_ms: int) -> bool:
            with self._noted("recover", attempt=str(attempt.id), lease_ms=attempt.lease_ms) as said:
                said["done"] = done = await recover(ports, attempt, lapsed_ms)
            return done

        def started(one: Any) -> None:
            self._write({"what": "up", "at": time.time()})
            start(one)

        sweep.sweep, sweep._recover = swept, recovered
        worker.Worker.start = started  # type: ignore[method-assign]

    @contextmanager
    def _noted(self, what: str, **about: Any) -> Iterator[dict[str, Any]]:
        """Written when it begins, for its process may not live to see the end, and again when it ends."""
        said: dict[str, Any] = {"what": what, "at": time.time(), **about}
        self._write(said)
        try:
            yield said
        except BaseException as error:
            said["error"] = getattr(error, "code", type(error).__name__)
            raise
        finally:
            self._write(said | {"until": time.time()})

    def _write(self, said: dict[str, Any]) -> None:
        os.write(self._file, f"{json.dumps(said)}\n".encode())


if __name__ == "__main__":
    tamper(json.loads(sys.argv[1]))
    from docmill.cli import main

    sys.argv = ["docmill", *sys.argv[2:]]
    main()
