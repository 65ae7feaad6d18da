"""A real service in a process of its own, on a free loopback port, with a data folder that outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from weakref import WeakSet

import httpx2

from support.servers import PostgresAddress, RedisAddress, S3Address
from support.servers.process import free_ports
from support.waiting import read_line

READY_S = 60.0

COLD = {"PYTHONDONTWRITEBYTECODE": "", "DOCMILL_WARM": "false"}
"""Dozens of services start for a few small documents each: none keeps processes ready for more."""


def hears_ctrl_c() -> None:
    """In the child, before it starts: a shell's background job ignores SIGINT, and hands that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Service:
    """`docmill serve` as a user starts it."""

    command: tuple[str, ...] = ("serve", "--data")
    program: tuple[str, ...] = (sys.executable, "-m", "docmill")
    started: ClassVar[WeakSet[Service]] = WeakSet()
    """Those that run: a test that fails shows what they logged."""

    def __init__(self, data: Path, *flags: str, **environment: str) -> None:
        self.data = data
        self.url = ""
        self.port = 0
        self.started_at = 0.0
        self._flags = flags
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.log: deque[str] = deque(maxlen=400)

    def start(self) -> Self:
        self.started_at = time.time()
        command = [
            *self.program,
            *self.command,
            str(self.data),
            "--port",
            str(self.port),
            *self._flags,
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | COLD | self._environment,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._keep_log, args=(self._process,), daemon=True)
        self._reader.start()
        self.started.add(self)
        line = self._read_ready()
        if "http://" not in line:
            self._process.wait(10)
            time.sleep(0.2)
            raise AssertionError(f"the service did not start: {line!r}\n" + "".join(self.log))
        self.url = next(word for word in line.split() if word.startswith("http://"))
        self.port = int(self.url.rsplit(":", 1)[1])  # after a kill others know it by this address
        return self

    def _read_ready(self) -> str:
        assert self._process
        try:
            return read_line(self._process, READY_S)
        except AssertionError as late:
            raise AssertionError(f"{late}\n" + "".join(self.log)) from None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    @property
    def working_pid(self) -> int:
        """The process whose children parse."""
        return self.pid

    def memory(self, *, peak: bool = False) -> int:
        """Bytes that the process holds, or held at most since this was asked without *peak*."""
        if not peak:
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        name = "VmHWM:" if peak else "VmRSS:"
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    def client(self, **options: Any) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=30, trust_env=False, **options)

    def kill(self) -> None:
        """-9, as a power cut would."""
        assert self._process
        self._process.kill()
        self._process.wait(30)
        self._close()

    def stop(self, seconds: float = 30) -> int:
        """Ask it to end; its exit code."""
        assert self._process
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(seconds)
            self._close()
            return code
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the service did not stop in {seconds} s\n" + "".join(self.log)) from None

    def _close(self) -> None:
        assert self._process
        assert self._process.stdout
        assert self._reader
        self.started.discard(self)
        self._reader.join(30)
        self._process.stdout.close()

    def _keep_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr
        with process.stderr as stream:
            for line in stream:
                self.log.append(line)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error:
            print("".join(self.log), file=sys.stderr)
        if self._process and self._process.poll() is None:
            if error:
                self.kill()
            else:
                self.stop()

    def tampered(self, **wanted: Any) -> Self:
        """To be started as a process that was tampered with: see bench.chaos.tampered."""
        self.program = tampering(wanted)
        return self


def tampering(wanted: dict[str, Any]) -> tuple[str, ...]:
    return (sys.executable, "-m", "bench.chaos.tampered", json.dumps(wanted))


class WorkerServer(Service):
    """`docmill worker-server`, with its spool as data."""

    command = ("worker-server", "--spool")

    def settings(self, **more: Any) -> str:
        """For DOCMILL_WORKERS."""
        kinds = {"secretary": "/pdf/process", "dispatcher": "/tasks"}
        return json.dumps({name: {"dialect": name, "url": self.url + path, **more} for name, path in kinds.items()})


class Etl:
    """The ETL API in the words of the tests."""

    BASE = "/api/v1/etl"

    def __init__(self, client: httpx2.Client) -> None:
        self.http = client

    def upload(self, name: str, data: bytes, *, project: int = 1) -> dict[str, Any]:
        answer = self.http.post(f"{self.BASE}/upload", data={"project_id": str(project)}, files={"file": (name, data)})
        assert 201 == answer.status_code, answer.text
        return answer.json()

    def submit(self, name: str, data: bytes, *, project: int = 1, **wishes: Any) -> int:
        key = self.upload(name, data, project=project)["key"]
        answer = self.http.post(
            f"{self.BASE}/submit", json={"project_id": project, "filename": name, "s3_key": key, **wishes}
        )
        assert answer.is_success, answer.text
        return int(answer.json()["task_id"])

    def task(self, task_id: int, **query: Any) -> dict[str, Any]:
        answer = self.http.get(f"{self.BASE}/tasks/{task_id}", params=query)
        assert 200 == answer.status_code, answer.text
        return answer.json()

    def wait(
        self, task_id: int, *, until: tuple[str, ...] = ("completed", "failed", "cancelled"), seconds: float = 60
    ) -> dict[str, Any]:
        ends = time.monotonic() + seconds
        while (task := self.task(task_id))["status"] not in until:
            assert time.monotonic() < ends, f"still {task}"
            task = self.task(task_id, wait=2)
            if task["status"] in until:
                break
        return task

    def done(self, name: str, data: bytes, **wishes: Any) -> dict[str, Any]:
        """Submit, wait, and expect success."""
        task = self.wait(self.submit(name, data, **wishes))
        assert "completed" == task["status"], task
        return task

    def events(self, task_id: int) -> list[dict[str, Any]]:
        answer = self.http.get(f"{self.BASE}/tasks/{task_id}/events", headers={"Accept": "application/json"})
        assert 200 == answer.status_code, answer.text
        return answer.json()["events"]

    def post(self, path: str, **options: Any) -> httpx2.Response:
        return self.http.post(f"{self.BASE}{path}", **options)

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.http.get(f"{self.BASE}{path}", **options)


class Fleet(Service):
    """`docmill serve` with `docmill worker` beside it: each a process of its own, as on several machines.

    `--jobs` is for the workers; the API leaves the work to them.
    """

    def __init__(self, data: Path, *flags: str, workers: int = 1, **environment: str) -> None:
        flags, jobs = _without_jobs(flags)
        super().__init__(data, *flags, **environment)
        [self.port] = free_ports(1)
        self._environment.setdefault("APP_URL", f"http://127.0.0.1:{self.port}")
        self.workers = [Hand(data / f"worker-{n}", jobs, self._environment, self.log) for n in range(workers)]

    @property
    def working_pid(self) -> int:
        return self.workers[0].pid

    def start(self) -> Self:
        for worker in self.workers:
            worker.start()
        super().start()
        for worker in self.workers:
            worker.await_ready()
        return self

    def kill(self) -> None:
        super().kill()
        for worker in self.workers:
            worker.kill()

    def stop(self, seconds: float = 30) -> int:
        code = super().stop(seconds)
        return max([code, *(worker.stop(seconds) for worker in self.workers)])


class Hand:
    """`docmill worker`."""

    def __init__(self, data: Path, jobs: tuple[str, ...], environment: dict[str, str], log: deque[str]) -> None:
        self.program = Service.program
        self._command = ["worker", "--data", str(data), *jobs]
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.log = log

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def start(self) -> Self:
        self._process = subprocess.Popen(
            [*self.program, *self._command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | COLD | self._environment,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=_keep, args=(self._process, self.log), daemon=True)
        self._reader.start()
        return self

    def await_ready(self) -> None:
        assert self._process
        assert self._process.stdout
        line = read_line(self._process, READY_S)
        if "works as" not in line:
            self._process.wait(10)
            raise AssertionError(f"the worker did not start: {line!r}\n" + "".join(self.log))

    def kill(self) -> None:
        assert self._process
        self._process.kill()
        self._process.wait(30)
        self._close()

    def stop(self, seconds: float = 30) -> int:
        assert self._process
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the worker did not stop in {seconds} s\n" + "".join(self.log)) from None
        self._close()
        return code

    def _close(self) -> None:
        assert self._process
        assert self._process.stdout
        assert self._reader
        self._reader.join(30)
        self._process.stdout.close()


def _keep(process: subprocess.Popen[str], log: deque[str]) -> None:
    assert process.stderr
    with process.stderr as stream:
        for line in stream:
            log.append(line)


def _without_jobs(flags: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if "--jobs" not in flags:
        return flags, ()
    at = flags.index("--jobs")
    return flags[:at] + flags[at + 2 :], flags[at : at + 2]


class Mode:
    """A way to run docmill: all in one process, or on PostgreSQL, Redis and S3. A data folder names a deployment."""

    def __init__(self, name: str, services: Services | None, stack: ExitStack) -> None:
        self.name = name
        self._services = services
        self._stack = stack
        self._places: dict[Path, dict[str, str]] = {}

    @property
    def is_distributed(self) -> bool:
        return self._services is not None

    def environment(self, data: Path) -> dict[str, str]:
        """The variables by which every command finds the same deployment."""
        if self._services is None:
            return {}
        if data not in self._places:
            self._places[data] = self._services.open(self._stack)
        return self._places[data]

    def serve(self, data: Path, *flags: str, workers: int = 1, **environment: str) -> Service:
        if self._services is None:
            return Service(data, *flags, **environment)
        return Fleet(data, *flags, workers=workers, **(self.environment(data) | environment))


@dataclass(frozen=True)
class Services:
    """Running servers, of which each deployment gets a corner of its own."""

    postgres: PostgresAddress
    redis: RedisAddress
    s3: S3Address

    def open(self, stack: ExitStack) -> dict[str, str]:
        return {
            "DATABASE_URL": stack.enter_context(self.postgres.database()),
            "REDIS_URL": stack.enter_context(self.redis.database()),
            "OBJECTS_URL": f"s3://{self.s3.bucket}/{stack.enter_context(self.s3.prefix())}",
            **self.s3.environment,
        }
