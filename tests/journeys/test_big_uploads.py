"""Uploads that are large, too large, cut off or wrong, over real sockets."""

from __future__ import annotations

import select
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import httpx2
import psutil
import pytest

from support.serving import Etl, Service

MiB = 1024**2
GiB = 1024**3
LIMIT_MB = 8
BOUNDARY = "----docmill"
HEAD = (
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="project_id"\r\n\r\n1\r\n'
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="big.bin"\r\n\r\n'
).encode()
TAIL = f"\r\n--{BOUNDARY}--\r\n".encode()
FORM = f"multipart/form-data; boundary={BOUNDARY}"
BLOCK = bytes(range(256)) * (4 * MiB // 1024)


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("roomy")
    with Service(folder / "data") as running:
        yield running
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("strict") / "data", DOCMILL_MAX_UPLOAD_MB=str(LIMIT_MB)) as running:
        yield running


def stored(service: Service) -> list[Path]:
    """Every file in the store, also half-written ones."""
    return [path for path in (service.data / "objects").rglob("*") if path.is_file()]


def becomes_empty(service: Service, seconds: float = 30) -> bool:
    ends = time.monotonic() + seconds
    while stored(service):
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


class Watch:
    """The largest resident size of a process, looked at all the time."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.idle = self.peak = self._process.memory_info().rss
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._stop.wait(0.02):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    @property
    def grown_mb(self) -> int:
        return (self.peak - self.idle) // MiB


def test_a_gigabyte_costs_hardly_any_memory(roomy: Service) -> None:
    digest = sha256()

    def body() -> Iterator[bytes]:
        yield HEAD
        for _ in range(GiB // len(BLOCK)):
            digest.update(BLOCK)
            yield BLOCK
        yield TAIL

    with roomy.client() as client:
        Etl(client).upload("first.txt", b"warm")
        with Watch(roomy.pid) as watch:
            answer = client.post(f"{Etl.BASE}/upload", content=body(), headers={"Content-Type": FORM}, timeout=120)

    assert 201 == answer.status_code, answer.text
    assert (GiB, digest.hexdigest()) == (answer.json()["size"], answer.json()["sha256"])
    assert watch.grown_mb < 100, f"the service grew by {watch.grown_mb} MB"


@contextmanager
def request(service: Service, *headers: str) -> Iterator[socket.socket]:
    """A connection on which the head of an upload was sent."""
    host, port = service.url.removeprefix("http://").split(":")
    lines = (f"POST {Etl.BASE}/upload HTTP/1.1", f"Host: {host}:{port}", f"Content-Type: {FORM}", *headers, "", "")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall("\r\n".join(lines).encode())
        yield line


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def refusal(line: socket.socket) -> bytes:
    """The answer, whole: its body may come in a packet of its own."""
    answer = b""
    while not answer.endswith(b"}"):
        more = line.recv(65536)
        assert more, answer
        answer += more
    return answer


def answers(line: socket.socket, seconds: float = 0) -> bool:
    return bool(select.select([line], [], [], seconds)[0])


def test_a_length_over_the_limit_is_refused_before_the_first_byte(strict: Service) -> None:
    began = time.monotonic()
    with request(strict, f"Content-Length: {GiB}") as line:
        assert answers(line, 30)
        answer = refusal(line)
    assert time.monotonic() - began < 30
    assert b" 413 " in answer.split(b"\r\n")[0]
    assert b"upload_too_large" in answer
    assert [] == stored(strict)


def test_a_stream_over_the_limit_is_answered_soon_after_it(strict: Service) -> None:
    with request(strict, "Transfer-Encoding: chunked") as line:
        line.sendall(chunk(HEAD))
        sent = 0
        while not answers(line):
            line.sendall(chunk(BLOCK[: 64 * 1024]))
            sent += 64 * 1024
            assert sent < 64 * MiB, "nobody stops it"
        answer = refusal(line)
    assert b" 413 " in answer.split(b"\r\n")[0]
    # What is on its way in both sockets' buffers comes on top.
    assert LIMIT_MB * MiB < sent < (LIMIT_MB + 16) * MiB
    assert becomes_empty(strict)


def test_who_never_looks_for_the_answer_is_hung_up_on(strict: Service) -> None:
    began, sent = time.monotonic(), 0
    with request(strict, "Transfer-Encoding: chunked") as line:
        line.sendall(chunk(HEAD))
        try:
            while sent < GiB:
                line.sendall(chunk(BLOCK[: 256 * 1024]))
                sent += 256 * 1024
        except OSError:
            pass
    assert sent < 128 * MiB
    assert time.monotonic() - began < 60
    assert becomes_empty(strict)


def test_an_ordinary_client_sees_the_refusal(strict: Service) -> None:
    for size, status in ((LIMIT_MB * MiB, 201), (LIMIT_MB * MiB + 1, 413), (64 * MiB, 413)):
        with strict.client() as client:
            answer = client.post(
                f"{Etl.BASE}/upload", data={"project_id": "1"}, files={"file": ("big.bin", b"x" * size)}
            )
        assert status == answer.status_code, answer.text
    left = stored(strict)
    assert [LIMIT_MB * MiB] == [path.stat().st_size for path in left]
    left[0].unlink()


@pytest.mark.parametrize("framing", ["Transfer-Encoding: chunked", f"Content-Length: {6 * MiB}"])
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_who_hangs_up_in_the_middle_leaves_nothing(strict: Service, framing: str, how: str) -> None:
    is_chunked = "chunked" in framing
    with request(strict, framing) as line:
        for part in (HEAD, BLOCK[:MiB], BLOCK[:MiB]):
            line.sendall(chunk(part) if is_chunked else part)
        ends = time.monotonic() + 30
        while not stored(strict):
            assert time.monotonic() < ends, "the file is not on its way to the store"
            time.sleep(0.01)
        if how == "reset":
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert becomes_empty(strict)
    with strict.client() as client:
        assert 200 == client.get("/ready").status_code


def part(disposition: str, body: str = "x", *more: str) -> str:
    return "\r\n".join((f"--{BOUNDARY}", f"Content-Disposition: {disposition}", *more, "", body, ""))


PROJECT = part('form-data; name="project_id"', "1")
FILE = part('form-data; name="file"; filename="a.txt"', "hello")
END = f"--{BOUNDARY}--\r\n"


@pytest.mark.parametrize(
    ("content_type", "body", "status", "code"),
    [
        ("application/json", "{}", 415, "media_type_unsupported"),
        ("text/plain", "hello", 415, "media_type_unsupported"),
        ("multipart/mixed; boundary=x", "--x--", 415, "media_type_unsupported"),
        ("multipart/form-data", PROJECT + FILE + END, 400, "request_invalid"),
        ("multipart/form-data; boundary=other", PROJECT + FILE + END, 400, "request_invalid"),
        (FORM, "", 400, "upload_incomplete"),
        (FORM, END, 422, "upload_missing_file"),
        (FORM, PROJECT + END, 422, "upload_missing_file"),
        (FORM, PROJECT + FILE, 400, "upload_incomplete"),
        (FORM, PROJECT + FILE[:-3], 400, "upload_incomplete"),
        (FORM, FILE + PROJECT + END, 422, "project_required"),
        (FORM, FILE + END, 422, "project_required"),
        (FORM, part('form-data; name="project_id"', "-1") + FILE + END, 422, "project_invalid"),
        (FORM, part('form-data; name="project_id"', "9" * 30) + FILE + END, 422, "project_invalid"),
        (FORM, PROJECT + PROJECT + FILE + END, 422, "request_invalid"),
        (FORM, PROJECT + FILE + FILE + END, 400, "request_invalid"),
        (FORM, PROJECT + part('form-data; name="f"') * 10_000 + END, 400, "request_invalid"),
        (FORM, PROJECT + part('form-data; name="note"', "x" * 100_000) + FILE + END, 413, "body_too_large"),
        (FORM, PROJECT + part('form-data; name="file"; filename="' + "x" * 9_000 + '"') + END, 400, "request_invalid"),
        (FORM, PROJECT + part('form-data; name="file"; filename="a"', "x", *["X-A: b"] * 50) + END, 400, None),
        (
            FORM,
            PROJECT + part('form-data; name="file"; filename="a"', "aGk=", "Content-Transfer-Encoding: base64") + END,
            400,
            "request_invalid",
        ),
        (FORM, PROJECT + part("attachment") + END, 400, "request_invalid"),
    ],
)
def test_a_form_that_is_wrong_is_refused_and_stores_nothing(
    strict: Service, content_type: str, body: str, status: int, code: str | None
) -> None:
    with strict.client() as client:
        answer = client.post(f"{Etl.BASE}/upload", content=body.encode(), headers={"Content-Type": content_type})
    assert (status, code or "request_invalid") == (answer.status_code, answer.json()["code"]), answer.text
    assert becomes_empty(strict)


def test_memory_stays_flat_under_many_uploads_at_once(roomy: Service) -> None:
    """Twenty at a time, each slow enough to overlap with all others."""
    size = 16 * MiB
    failures: list[str] = []

    def one() -> None:
        def body() -> Iterator[bytes]:
            yield HEAD
            for _ in range(size // len(BLOCK)):
                yield BLOCK
            yield TAIL

        with httpx2.Client(base_url=roomy.url, timeout=60, trust_env=False) as client:
            answer = client.post(f"{Etl.BASE}/upload", content=body(), headers={"Content-Type": FORM})
            if 201 != answer.status_code:
                failures.append(answer.text)

    with Watch(roomy.pid) as watch:
        clients = [threading.Thread(target=one) for _ in range(20)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(60)
    assert [] == failures
    assert watch.grown_mb < 100, f"the service grew by {watch.grown_mb} MB"
