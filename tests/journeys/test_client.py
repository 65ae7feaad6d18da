"""The Python clients against a real service. Every walk is walked twice: with `Client`, and with `AsyncClient`."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from docmill.client import (
    AsyncClient,
    Client,
    Conflict,
    NotFound,
    Refused,
    TaskEnded,
    TimedOut,
    TwinDrift,
    Unexpected,
    Unreachable,
)
from docmill.client import calls as all_calls
from support.servers.process import free_ports
from support.serving import Service

SAMPLES = Path(__file__).parents[2] / "samples"
REPORT = SAMPLES / "report.en.pdf"
SCAN = SAMPLES / "scan.de.pdf"


class Awaited:
    """An AsyncClient with the face of a Client: calls run on an event loop in a thread."""

    def __init__(self, url: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.inner = self._now(self._make(url, options))

    async def _make(self, url: str, options: dict[str, Any]) -> AsyncClient:
        return AsyncClient(url, **options)

    def _now(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            made = getattr(self.inner, name)(*args, **kwargs)
            return self._now(made) if inspect.isawaitable(made) else self._each(made)

        return call

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while (item := self._now(anext(items, self))) is not self:  # type: ignore[arg-type]
            yield item

    def close(self) -> None:
        self._now(self.inner.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


KINDS: dict[str, Callable[..., Any]] = {"sync": Client, "async": Awaited}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("client") / "data", "--jobs", "1") as running:
        yield running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return KINDS[request.param]


@pytest.fixture
def docmill(service: Service, kind: Callable[..., Any]) -> Iterator[Any]:
    client = kind(service.url)
    yield client
    client.close()


def test_a_document_goes_in_and_its_result_comes_out(docmill: Any) -> None:
    sent = docmill.submit(REPORT, project=7)

    events = list(docmill.follow(sent.task_id))

    assert list(range(1, len(events) + 1)) == [event.seq for event in events]
    assert "completed" == events[-1].kind
    assert "report.en.pdf" == docmill.result(sent.task_id)["report.en"]["filename"]
    assert docmill.markdown(sent.task_id) == docmill.result(sent.task_id)["report.en"]["content"]
    task = docmill.task(sent.task_id)
    assert (7, "completed", 100, 2) == (task.project_id, task.status, task.progress, task.metadata.pages_total)
    document = docmill.document(task.metadata.document_id)
    assert (str(sent.task_id), "7") == (
        document.meta.external_ref["task_id"],
        document.meta.external_ref["project_id"],
    )


def _pieces() -> Iterator[bytes]:
    yield "# Grüße\n\n".encode()
    yield b"in pieces"


@pytest.mark.parametrize(
    "source",
    [lambda: b"# Bytes\n\nbytes", lambda: BytesIO(b"# File\n\nfile"), _pieces],
    ids=["bytes", "file", "pieces"],
)
def test_whatever_holds_bytes_can_be_sent(docmill: Any, source: Callable[[], Any]) -> None:
    sent = docmill.submit(source(), filename='a "quoted" näme.md')

    assert "completed" == docmill.wait(sent.task_id).status
    assert 'a "quoted" näme.md' == docmill.task(sent.task_id).filename


async def test_an_asynchronous_stream_is_sent_as_it_comes(service: Service) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"# From"
        await asyncio.sleep(0)
        yield b" afar\n"

    async with AsyncClient(service.url) as docmill:
        sent = await docmill.submit(pieces(), filename="afar.md")
        assert "From afar" in await docmill.markdown(sent.task_id)
    with Client(service.url) as docmill_now, pytest.raises(TypeError, match="AsyncClient"):
        docmill_now.submit(pieces(), filename="afar.md")


def test_the_same_key_gives_the_same_task_even_if_the_file_is_sent_again(docmill: Any, kind: Any) -> None:
    key = f"mine-{kind.__name__}"
    first = docmill.submit(b"once", filename="once.txt", idempotency_key=key)
    again = docmill.submit(b"once", filename="once.txt", idempotency_key=key)

    assert (first.task_id, False, True) == (again.task_id, first.is_replay, again.is_replay)
    with pytest.raises(Refused) as refused:
        docmill.submit(b"other bytes", filename="once.txt", idempotency_key=key)
    assert ("idempotency_mismatch", 422) == (refused.value.code, refused.value.status)


def test_what_is_wished_arrives_with_the_file(docmill: Any, kind: Any) -> None:
    project = 30 + list(KINDS.values()).index(kind)
    table = docmill.add_table(project, "all", {"papers": {}})
    rule = docmill.add_rule(f"keep {kind.__name__}")

    sent = docmill.submit(
        b"# Wish\n",
        filename="wish.md",
        project=project,
        rule=rule.id,
        twin={"layout": "sidecar"},
        mount={"table_id": table.id, "json_path": "/papers"},
        options={"language": "de"},
        priority=3,
        no_cache=True,
    )
    task = docmill.wait(sent.task_id)

    assert ("completed", rule.id) == (task.status, task.rule_id), task
    assert task.metadata.twin_path.endswith("wish.de.md")
    assert "wish.md" == docmill.table_data(table.id, "/papers/wish")["filename"]
    assert rule.id in {one.id for one in docmill.rules()}
    assert [table.id] == [one.id for one in docmill.tables(project)]
    assert "/papers/wish" == docmill.mount(sent.task_id, table.id, "/papers").mounted_path
    docmill.delete_table(table.id)
    docmill.delete_rule(rule.id)
    with pytest.raises(NotFound) as missing:
        docmill.table_data(table.id)
    assert "table_not_found" == missing.value.code
    assert missing.value.next_step


def test_lists_come_page_by_page_and_whole(docmill: Any, kind: Any) -> None:
    project = 50 + list(KINDS.values()).index(kind)
    ids = [docmill.submit(b"%d" % n, filename=f"{n}.txt", project=project).task_id for n in range(5)]

    found = [task.id for task in docmill.tasks(project=project, page_size=2)]

    assert sorted(ids, reverse=True) == found
    assert ids[:3] == [task.id for task in docmill.batch(ids[:3])]
    for task_id in ids:
        docmill.wait(task_id)
    documents = {document.meta.external_ref["task_id"] for document in docmill.documents(page_size=2)}
    assert {str(one) for one in ids} <= documents


def test_a_twin_is_saved_and_an_edit_is_kept(docmill: Any, tmp_path: Path) -> None:
    sent = docmill.submit(REPORT)

    path = docmill.save_twin(sent.task_id, tmp_path)

    assert tmp_path / "_report.en.pdf" / "report.en.md" == path
    assert "source_file" in path.read_text()
    for target in (name for name in path.read_text().split("](")[1:] if not name.startswith("http")):
        assert (path.parent / target.split(")")[0]).exists()
    (path.parent / "notes.txt").write_text("added by a person")
    assert path == docmill.save_twin(sent.task_id, tmp_path)
    path.write_text("edited by a person")
    with pytest.raises(TwinDrift) as drift:
        docmill.save_twin(sent.task_id, tmp_path)
    assert ("twin_drift", ("report.en.md",)) == (drift.value.code, drift.value.paths)
    docmill.save_twin(sent.task_id, tmp_path, force=True)
    assert "source_file" in path.read_text()
    assert "added by a person" == (path.parent / "notes.txt").read_text()
    assert ["_report.en.pdf"] == [one.name for one in tmp_path.iterdir()]


def test_originals_and_assets_are_saved_as_they_are(docmill: Any, tmp_path: Path) -> None:
    task = docmill.wait(docmill.submit(REPORT).task_id)

    docmill.save_original(task.metadata.document_id, tmp_path / "copy.pdf")
    for asset in docmill.assets(task.metadata.document_id, page_size=1):
        docmill.save_asset(asset.ref.asset_id, tmp_path / str(asset.ref.asset_id))

    assert REPORT.read_bytes() == (tmp_path / "copy.pdf").read_bytes()
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(NotFound):
        docmill.save_asset("00000000-0000-0000-0000-000000000000", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_every_error_has_its_code(docmill: Any, kind: Any) -> None:
    with pytest.raises(NotFound) as missing:
        docmill.task(999_999)
    assert ("task_not_found", 404) == (missing.value.code, missing.value.status)
    assert missing.value.request_id
    with pytest.raises(NotFound):
        list(docmill.follow(999_999))

    broken = docmill.submit(b"%PDF-1.7 nothing", filename="broken.pdf")
    with pytest.raises(TaskEnded) as ended:
        docmill.result(broken.task_id)
    assert "document_broken" == ended.value.code
    assert "failed" == ended.value.task.status
    with pytest.raises(TaskEnded):
        docmill.save_twin(broken.task_id)
    with pytest.raises(Conflict) as finished:
        docmill.cancel(broken.task_id)
    assert "task_finished" == finished.value.code
    assert "pending" == docmill.retry(broken.task_id).status
    docmill.wait(broken.task_id)

    with pytest.raises(Refused) as invalid:
        docmill.submit(b"x", filename="x.txt", engine="none-such")
    assert "engine_unknown" == invalid.value.code


def test_a_waiting_task_is_cancelled_and_a_waiter_may_give_up(docmill: Any) -> None:
    docmill.submit(SCAN, no_cache=True)
    waiting = docmill.submit(REPORT, no_cache=True)

    try:
        with pytest.raises(TimedOut) as tired:
            docmill.wait(waiting.task_id, timeout=0.001)
        assert "wait_timeout" == tired.value.code
    finally:
        docmill.cancel(waiting.task_id, force=True)
    with pytest.raises(TaskEnded) as ended:
        docmill.result(waiting.task_id)
    assert "task_cancelled" == ended.value.code


def test_nobody_there_and_somebody_else_there(kind: Callable[..., Any]) -> None:
    [port] = free_ports(1)
    nobody = kind(f"http://127.0.0.1:{port}", patience=0.1)
    with pytest.raises(Unreachable) as gone:
        list(nobody.follow(1))
    assert "service_unreachable" == gone.value.code
    nobody.close()
    with stranger() as url:
        other = kind(url)
        with pytest.raises(Unexpected) as odd:
            other.task(1)
        assert "answer_unexpected" == odd.value.code
        other.close()
    with pytest.raises(ValueError, match="not an address"):
        kind("ftp://example.org")


@contextmanager
def stranger() -> Iterator[str]:
    """Something that speaks HTTP and is not docmill."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            caller, _ = server.accept()
            with caller:
                caller.recv(65536)
                caller.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)


class Scissors:
    """A proxy that cuts every connection after so many bytes of the answer."""

    def __init__(self, port: int, after: int) -> None:
        self.cuts = 0
        self._port, self._after = port, after
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        # A connection on which nothing is said any more may outlive its test.
        with (
            caller,
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self._port), timeout=60) as service,
        ):
            service.sendall(caller.recv(65536))
            left = self._after
            # The last answer is shorter: then the connection stays open, and nothing more comes.
            with suppress(TimeoutError):
                while left and (data := service.recv(left)):
                    caller.sendall(data)
                    left -= len(data)
            self.cuts += not left

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


def test_a_follower_that_is_cut_again_and_again_misses_nothing_and_sees_nothing_twice(
    service: Service, docmill: Any, kind: Callable[..., Any]
) -> None:
    sent = docmill.submit(REPORT, no_cache=True)
    docmill.wait(sent.task_id)
    whole = list(docmill.follow(sent.task_id))
    scissors = Scissors(service.port, after=750)
    torn = kind(scissors.url)

    seen = list(torn.follow(sent.task_id))

    torn.close()
    scissors.close()
    assert whole == seen
    assert scissors.cuts >= 2


def test_a_follower_outlives_a_kill_of_the_service(tmp_path: Path) -> None:
    with Service(tmp_path / "data", "--jobs", "1") as service:
        docmill = Client(service.url)
        sent = docmill.submit(REPORT, no_cache=True)
        stream = docmill.follow(sent.task_id)
        seen = [next(stream)]
        service.kill()
        service.start()

        seen += stream

        assert list(range(1, len(seen) + 1)) == [event.seq for event in seen]
        assert "completed" == seen[-1].kind
        assert seen == list(docmill.follow(sent.task_id))
        assert seen[3:] == list(docmill.follow(sent.task_id, after=3))
        docmill.close()


def test_both_clients_have_every_call_under_its_own_parameters() -> None:
    for name, call in vars(all_calls).items():
        if inspect.isgeneratorfunction(call) and not name.startswith("_") and name not in ("completed", "answered"):
            ours = list(inspect.signature(call).parameters)
            for client in (Client, AsyncClient):
                assert ["self", *ours] == list(inspect.signature(getattr(client, name)).parameters), name
                assert call.__doc__ == getattr(client, name).__doc__
