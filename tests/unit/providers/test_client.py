"""One client for all providers: patient with faults, strict with sizes, silent about where it called."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from docmill.adapters.providers.breaker import Breaker
from docmill.adapters.providers.client import Patience, ProviderClient, retry_after
from docmill.core.errors import StageFailed
from support.peers import Asked, Fault, ProviderPeer, Reply, route

KEY = "sk-very-secret"
QUICK = Patience(tries=3, first_pause_s=0.01, longest_pause_s=2, connect_s=2, silence_s=2, request_s=5)


class Echo(ProviderPeer):
    def __init__(self) -> None:
        super().__init__()
        self.at_once = self.most_at_once = 0

    @route("GET", "/hello")
    def hello(self, asked: Asked) -> Reply:
        return Reply(json={"hello": asked.headers.get("authorization", "")})

    @route("POST", "/jobs")
    def jobs(self, asked: Asked) -> Reply:
        return Reply(201, {"size": len(asked.body), "type": asked.headers.get("content-type", "")})

    @route("PUT", "/raw")
    def raw(self, asked: Asked) -> Reply:
        return Reply(json={"size": len(asked.body), "headers": asked.headers})

    @route("GET", "/big")
    def big(self, asked: Asked) -> Reply:
        return Reply(body=b"x" * 3_000_000)


@pytest.fixture
def peer() -> Iterator[Echo]:
    with Echo() as peer:
        yield peer


@pytest.fixture
async def client(peer: Echo) -> AsyncIterator[ProviderClient]:
    client = ProviderClient("echo", peer.url, {"Authorization": f"Bearer {KEY}"}, patience=QUICK)
    yield client
    await client.close()


async def test_an_answer_comes_with_our_key(client: ProviderClient) -> None:
    assert {"hello": f"Bearer {KEY}"} == (await client.ask("GET", "/hello")).table()


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET", "/hello", status=500, times=2),
        Fault("GET", "/hello", status=503, headers={"Retry-After": "0"}, times=2),
        Fault("GET", "/hello", status=429, headers={"Retry-After": "0"}, times=2),
        Fault("GET", "/hello", hang_up=True, times=2),
        Fault("GET", "/hello", cut=True, times=2),
    ],
    ids=["500", "503", "429", "no answer", "half an answer"],
)
async def test_a_passing_fault_is_waited_out(peer: Echo, client: ProviderClient, fault: Fault) -> None:
    peer.faults.append(fault)

    assert (await client.ask("GET", "/hello")).ok
    assert 3 == len(peer.asked("GET", "/hello"))


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault("GET", "/hello", status=502, times=9), "provider_unreachable"),
        (Fault("GET", "/hello", status=429, times=9), "provider_busy"),
        (Fault("GET", "/hello", hang_up=True, times=9), "provider_unreachable"),
    ],
)
async def test_a_lasting_fault_is_an_error_that_names_neither_host_nor_key(
    peer: Echo, client: ProviderClient, fault: Fault, code: str
) -> None:
    peer.faults.append(fault)

    with pytest.raises(StageFailed) as failed:
        await client.ask("GET", "/hello")

    assert code == failed.value.code
    assert failed.value.retryable
    assert "127.0.0.1" not in failed.value.message
    assert KEY not in failed.value.message
    assert 3 == len(peer.asked("GET", "/hello"))


async def test_nobody_at_home() -> None:
    client = ProviderClient("gone", "http://127.0.0.1:9", patience=QUICK)

    with pytest.raises(StageFailed, match="'gone' does not answer: ConnectError"):
        await client.ask("GET", "/hello")
    await client.close()


async def test_a_request_that_must_not_run_twice_does_not(peer: Echo, client: ProviderClient) -> None:
    """The answer got lost after the work was done: only the caller knows what to do about that."""
    peer.faults.append(Fault("POST", "/jobs", hang_up=True, after=True, times=9))

    with pytest.raises(StageFailed, match="does not answer"):
        await client.ask("POST", "/jobs", json={}, once=True)

    assert 1 == len(peer.asked("POST", "/jobs"))


async def test_but_it_is_sent_again_when_it_was_surely_not_taken(peer: Echo, client: ProviderClient) -> None:
    peer.faults.append(Fault("POST", "/jobs", status=503, times=2))

    assert 201 == (await client.ask("POST", "/jobs", json={}, once=True)).status


async def test_a_refusal_is_the_callers_to_read(peer: Echo, client: ProviderClient) -> None:
    peer.faults.append(Fault("GET", "/hello", status=401, body=b'{"error": "no"}'))

    answer = await client.ask("GET", "/hello")

    assert (401, {"error": "no"}) == (answer.status, answer.table())


async def test_who_wants_to_be_left_alone_for_long_is(peer: Echo, client: ProviderClient) -> None:
    peer.faults.append(Fault("GET", "/hello", status=503, headers={"Retry-After": "3600"}, times=9))

    with pytest.raises(StageFailed, match="left alone for 3600 s"):
        await client.ask("GET", "/hello")
    assert 1 == len(peer.asked("GET", "/hello"))


@pytest.mark.parametrize("body", [b"<html>", b"\xff\xfe", b"[1]", b"", b"[" * 100_000])
async def test_what_is_no_json_object_is_an_invalid_answer(peer: Echo, client: ProviderClient, body: bytes) -> None:
    peer.faults.append(Fault("GET", "/hello", status=200, body=body or b" "))
    answer = await client.ask("GET", "/hello")

    with pytest.raises(StageFailed) as failed:
        answer.table()
    assert "provider_answer_invalid" == failed.value.code


async def test_an_answer_beyond_the_cap_is_not_read(peer: Echo, client: ProviderClient, tmp_path: Path) -> None:
    for asked in (
        client.ask("GET", "/big", limit=1_000_000),
        client.download("/big", tmp_path / "big", limit=1_000_000),
    ):
        with pytest.raises(StageFailed) as failed:
            await asked
        assert "provider_answer_invalid" == failed.value.code
    assert not (tmp_path / "big").exists()
    assert (await client.download("/big", tmp_path / "big")).ok
    assert 3_000_000 == (tmp_path / "big").stat().st_size


async def test_a_download_that_is_cut_is_fetched_anew(peer: Echo, client: ProviderClient, tmp_path: Path) -> None:
    peer.faults.append(Fault("GET", "/big", cut=True, times=2))

    await client.download("/big", tmp_path / "big")

    assert 3_000_000 == (tmp_path / "big").stat().st_size


async def test_a_file_goes_up_whole_on_every_try_and_without_a_type(
    peer: Echo, client: ProviderClient, tmp_path: Path
) -> None:
    """Presigned addresses refuse a Content-Type that was not signed."""
    (tmp_path / "file").write_bytes(b"y" * 700_000)
    peer.faults.append(Fault("PUT", "/raw", status=500, times=2))

    answer = (await client.ask("PUT", "/raw", body=tmp_path / "file")).table()

    assert 700_000 == answer["size"]
    assert "content-type" not in answer["headers"]
    assert {700_000} == {len(one.body) for one in peer.asked("PUT", "/raw")}


async def test_our_key_goes_nowhere_else(peer: Echo, client: ProviderClient) -> None:
    with Echo() as stranger:
        assert {"hello": ""} == (await client.ask("GET", f"{stranger.url}/hello")).table()
    with pytest.raises(StageFailed, match="unsafe address"):
        await client.ask("GET", "file:///etc/passwd")
    with pytest.raises(StageFailed, match="unsafe address"):
        await client.ask("GET", "https://127.0.0.1/")


async def test_redirects_and_proxies_are_not_followed(
    peer: Echo, client: ProviderClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    peer.faults.append(Fault("GET", "/hello", status=302, headers={"Location": "/big"}))

    assert 302 == (await client.ask("GET", "/hello")).status
    assert [] == peer.asked("GET", "/big")


async def test_a_slow_answer_is_given_up(peer: Echo) -> None:
    client = ProviderClient("slow", peer.url, patience=QUICK)
    peer.faults.append(Fault("GET", "/hello", slow_s=1.0, times=9))

    with pytest.raises(StageFailed, match=r"longer than 0\.1 s"):
        await client.ask("GET", "/hello", seconds=0.1, tries=1)
    await client.close()


async def test_only_so_many_requests_at_once(peer: Echo) -> None:
    client = ProviderClient("narrow", peer.url, concurrency=2, patience=QUICK)
    peer.faults.append(Fault("GET", "/hello", slow_s=0.1, times=6))
    began = time.monotonic()

    await asyncio.gather(*(client.ask("GET", "/hello") for _ in range(6)))

    assert time.monotonic() - began >= 0.3
    await client.close()


async def test_who_fails_often_is_left_alone_and_then_tried_once(peer: Echo) -> None:
    now = 0.0
    client = ProviderClient("ill", peer.url, patience=QUICK, breaker=Breaker(3, 30, lambda: now))
    peer.faults.append(Fault("GET", "/hello", status=500, times=4))
    with pytest.raises(StageFailed):
        await client.ask("GET", "/hello")

    with pytest.raises(StageFailed, match="it failed often; asked again in 30 s"):
        await client.ask("GET", "/hello")
    assert 3 == len(peer.asked("GET", "/hello"))

    now = 31.0
    with pytest.raises(StageFailed):
        await client.ask("GET", "/hello", tries=1)
    with pytest.raises(StageFailed, match="it failed often"):
        await client.ask("GET", "/hello")
    assert 4 == len(peer.asked("GET", "/hello"))

    now = 62.0
    assert (await client.ask("GET", "/hello")).ok
    await client.close()


def test_one_probe_at_a_time() -> None:
    now = 0.0
    breaker = Breaker(1, 10, lambda: now)
    breaker.failed()
    now = 11.0

    assert 0 == breaker.wait_s()
    assert 0 < breaker.wait_s()
    breaker.left()
    assert 0 == breaker.wait_s()
    breaker.worked()
    assert [0, 0] == [breaker.wait_s(), breaker.wait_s()]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", None), ("3", 3.0), ("0.5", 0.5), ("soon", None), ("Thu, 01 Jan 1970 00:00:00 GMT", "past")],
)
def test_retry_after(text: str, seconds: float | str | None) -> None:
    found = retry_after(text)

    assert found == seconds if seconds != "past" else found is not None and found < 0
