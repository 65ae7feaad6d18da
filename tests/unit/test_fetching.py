"""Fetching from addresses that somebody else chose, on loopback only: the network is allowed where a test needs it."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from docmill.adapters.fetching.guarded import GuardedFetcher, Pace
from docmill.core.addresses import TrustedOrigin
from docmill.core.errors import DocmillError, Invalid, TooLarge

pytestmark = pytest.mark.anyio

LOOPBACK = (ip_network("127.0.0.1/32"),)
Answer = Callable[[asyncio.StreamWriter, str], Awaitable[None]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[str]]]:
    """A server that answers as told. Its port, and the requests that it saw."""
    seen: list[str] = []
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.current_task())  # type: ignore[arg-type]
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            seen.append(request)
            await answer(writer, request)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


def saying(body: bytes, status: str = "200 OK", **headers: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter, _: str) -> None:
        lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode() + body)
        await writer.drain()

    return answer


def resolving(*answers: list[str]) -> Any:
    """A name server whose answers change; it remembers how often it was asked."""

    async def resolve(host: str, port: int) -> list[str]:
        resolve.asked.append(host)  # type: ignore[attr-defined]
        return answers[min(len(resolve.asked), len(answers)) - 1]  # type: ignore[attr-defined]

    resolve.asked = []  # type: ignore[attr-defined]
    return resolve


def open_fetcher(resolve: Any = None, **changes: Any) -> GuardedFetcher:
    settings = {"allow_networks": LOOPBACK, "ports": None, **changes}
    return GuardedFetcher(resolve or resolving(["127.0.0.1"]), **settings)


def open_guarded() -> GuardedFetcher:
    """As the service has it: public addresses and the usual ports, and names that lead to loopback."""
    return GuardedFetcher(resolving(["127.0.0.1"]))


async def refusal(fetcher: GuardedFetcher, url: str, path: Path, **changes: Any) -> str:
    """The code of the failure; no file is left."""
    with pytest.raises(DocmillError) as caught:
        await fetcher.fetch(url, path, **{"limit_bytes": 1 << 20, "seconds": 30, **changes})
    assert [] == list(path.parent.iterdir())
    return caught.value.code


async def test_a_file_is_fetched_by_the_name_of_its_host(tmp_path: Path) -> None:
    body = bytes(range(256)) * 10_000
    async with serving(saying(body, Content_Type="Application/PDF; x=y")) as (port, seen):
        got = await open_fetcher().fetch(
            f"http://files.example:{port}/a?b=c", tmp_path / "file", limit_bytes=len(body), seconds=30
        )

    assert (len(body), hashlib.sha256(body).hexdigest(), "application/pdf") == (got.size, got.sha256, got.content_type)
    assert body == (tmp_path / "file").read_bytes()
    assert ["file"] == [path.name for path in tmp_path.iterdir()]
    assert seen[0].startswith("GET /a?b=c HTTP/1.1\r\n")
    assert f"Host: files.example:{port}\r\n" in seen[0]
    assert "identity" in seen[0]


async def test_loopback_is_refused_without_leave(tmp_path: Path) -> None:
    async with serving(saying(b"secret")) as (port, seen):
        for url in (f"http://127.0.0.1:{port}/", f"http://localhost:{port}/", f"http://evil.example:{port}/"):
            assert "address_refused" == await refusal(open_fetcher(allow_networks=()), url, tmp_path / "x")

    assert [] == seen


async def test_every_address_of_a_name_is_checked(tmp_path: Path) -> None:
    for addresses in (["93.184.216.34", "10.0.0.1"], ["::1"], ["::ffff:10.0.0.1"], ["nonsense"], ["fe80::1%eth0"]):
        fetcher = open_fetcher(resolving(addresses))
        assert "address_refused" == await refusal(fetcher, "http://evil.example/", tmp_path / "x")


async def test_a_name_that_changes_its_mind_changes_nothing(tmp_path: Path) -> None:
    """Rebinding: allowed when it is checked, somebody else's when the connection is made."""
    resolve = resolving(["127.0.0.1"], ["169.254.169.254"])
    async with serving(saying(b"the first")) as (port, _):
        await open_fetcher(resolve).fetch(f"http://evil.example:{port}/", tmp_path / "x", limit_bytes=99, seconds=30)

    assert b"the first" == (tmp_path / "x").read_bytes()
    assert ["evil.example"] == resolve.asked
    (tmp_path / "x").unlink()
    assert "address_refused" == await refusal(open_fetcher(resolve), "http://evil.example/", tmp_path / "x")


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "http://[::1]/",
        "file:///etc/passwd",
        "http://user:pass@example.com/",
        "//169.254.169.254/",
        "gopher://example.com/",
        "http://2852039166/",
    ],
)
async def test_a_redirect_is_checked_like_the_first_address(tmp_path: Path, location: str) -> None:
    async with serving(saying(b"", "302 Found", Location=location)) as (port, _):
        assert "address_refused" == await refusal(open_fetcher(), f"http://a.example:{port}/", tmp_path / "x")


async def test_a_redirect_to_a_name_that_leads_inside_is_refused(tmp_path: Path) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host == "a.example" else ["10.0.0.1"]

    async with serving(saying(b"", "302 Found", Location="http://b.example/")) as (port, _):
        assert "address_refused" == await refusal(open_fetcher(resolve), f"http://a.example:{port}/", tmp_path / "x")


async def test_a_trusted_origin_is_fetched_wherever_it_is_and_gets_its_headers(tmp_path: Path) -> None:
    async with serving(saying(b"mine")) as (port, seen):
        for host in ("127.0.0.1", "worker.internal", "localhost"):
            trusted = TrustedOrigin(f"http://{host}:{port}", {"X-Service-Token": "secret"})
            url = trusted.resolve("/api/jobs/1/zip?x=y")
            await open_guarded().fetch(url, tmp_path / "x", limit_bytes=9, seconds=30, trusted=trusted)
            assert b"mine" == (tmp_path / "x").read_bytes()
            assert seen[-1].startswith("GET /api/jobs/1/zip?x=y HTTP/1.1\r\n")
            assert "X-Service-Token: secret\r\n" in seen[-1]


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/", "http://worker.internal:{}/", "https://127.0.0.2:{}/", "/x"])
async def test_what_is_not_the_trusted_origin_is_guarded_as_ever(tmp_path: Path, url: str) -> None:
    """Another host, scheme or port is another origin."""
    async with serving(saying(b"inside")) as (port, seen):
        trusted = TrustedOrigin(f"http://127.0.0.2:{port}", {"X-Service-Token": "secret"})
        code = await refusal(open_guarded(), url.format(port), tmp_path / "x", trusted=trusted)
        assert ("address_refused", []) == (code, seen)
        other = TrustedOrigin(f"http://127.0.0.1:{port + 1 if port < 65535 else 1}", {"X-Service-Token": "secret"})
        assert "address_refused" == await refusal(open_guarded(), url.format(port), tmp_path / "x", trusted=other)
    assert [] == seen


async def test_a_redirect_away_from_the_trusted_origin_loses_its_headers_for_good(tmp_path: Path) -> None:
    async with serving(saying(b"end")) as (end, seen_at_end):
        target = f"http://127.0.0.1:{end}/end"
        async with serving(saying(b"", "302 Found", Location=target)) as (way, seen_on_the_way):
            trusted = TrustedOrigin(f"http://127.0.0.1:{end}", {"X-Service-Token": "secret"})
            # Through a stranger, who may redirect anywhere, back to the origin itself.
            await open_fetcher().fetch(
                f"http://a.example:{way}/", tmp_path / "x", limit_bytes=9, seconds=30, trusted=trusted
            )
            assert "X-Service-Token" not in seen_on_the_way[0] + seen_at_end[0]
            (tmp_path / "x").unlink()
            trusted = TrustedOrigin(f"http://127.0.0.1:{way}", {"X-Service-Token": "secret"})
            url = f"http://127.0.0.1:{way}/"
            await open_fetcher().fetch(url, tmp_path / "x", limit_bytes=9, seconds=30, trusted=trusted)
            assert "X-Service-Token: secret" in seen_on_the_way[1]
            assert "X-Service-Token" not in seen_at_end[1]
            (tmp_path / "x").unlink()
            assert "address_refused" == await refusal(open_guarded(), url, tmp_path / "x", trusted=trusted)
    assert 2 == len(seen_at_end)


async def test_three_redirects_are_followed_and_no_more(tmp_path: Path) -> None:
    async def answer(writer: asyncio.StreamWriter, request: str) -> None:
        left = int(request.split()[1][1:])
        step = saying(b"", "307 There", Location=f"/{left - 1}") if left else saying(b"here")
        await step(writer, request)

    async with serving(answer) as (port, seen):
        await open_fetcher().fetch(f"http://a.example:{port}/3", tmp_path / "x", limit_bytes=9, seconds=30)
        assert b"here" == (tmp_path / "x").read_bytes()
        (tmp_path / "x").unlink()
        assert "address_refused" == await refusal(open_fetcher(), f"http://a.example:{port}/4", tmp_path / "x")
    assert 8 == len(seen)


async def test_more_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    for headers in ({}, {"Content_Length": "2000"}):
        async with serving(saying(b"x" * 2000, **headers)) as (port, _):
            with pytest.raises(TooLarge):
                await open_fetcher().fetch(f"http://a.example:{port}/", tmp_path / "x", limit_bytes=1999, seconds=30)
    assert [] == list(tmp_path.iterdir())


async def test_a_gzip_bomb_is_counted_by_what_comes_out(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    assert len(bomb) < 100_000
    async with serving(saying(bomb, Content_Encoding="gzip")) as (port, _):
        assert "upload_too_large" == await refusal(open_fetcher(), f"http://a.example:{port}/", tmp_path / "x")
        await open_fetcher().fetch(f"http://a.example:{port}/", tmp_path / "x", limit_bytes=64 << 20, seconds=20)
    assert 64 << 20 == (tmp_path / "x").stat().st_size


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd"])
async def test_other_encodings_are_refused(tmp_path: Path, encoding: str) -> None:
    async with serving(saying(b"x", Content_Encoding=encoding)) as (port, _):
        assert "fetch_failed" == await refusal(open_fetcher(), f"http://a.example:{port}/", tmp_path / "x")


@pytest.mark.parametrize("body", [b"no gzip", gzip.compress(b"x" * 1000, mtime=0)[:-9]], ids=["none", "cut"])
async def test_a_broken_encoding_is_a_failure(tmp_path: Path, body: bytes) -> None:
    async with serving(saying(body, Content_Encoding="gzip")) as (port, _):
        assert "fetch_failed" == await refusal(open_fetcher(), f"http://a.example:{port}/", tmp_path / "x")


def dripping(seconds: float) -> Answer:
    async def answer(writer: asyncio.StreamWriter, _: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(seconds)

    return answer


async def test_a_slow_drip_is_cut_off(tmp_path: Path) -> None:
    url, path = "http://a.example:{}/", tmp_path / "x"
    async with serving(dripping(0.02)) as (port, _):
        slow = open_fetcher(pace=Pace(slowest=10_000, grace=0.2))
        assert "fetch_failed" == await asyncio.wait_for(refusal(slow, url.format(port), path, seconds=60), 30)
        brief = refusal(open_fetcher(), url.format(port), path, seconds=0.3)
        assert "fetch_failed" == await asyncio.wait_for(brief, 30)


@pytest.mark.parametrize("answer", [saying(b"", "404 Not Found"), saying(b"", "500 No"), saying(b"", "204 Nothing")])
async def test_anything_but_a_file_is_a_failure(tmp_path: Path, answer: Answer) -> None:
    async with serving(answer) as (port, _):
        assert "fetch_failed" == await refusal(open_fetcher(), f"http://a.example:{port}/", tmp_path / "x")


async def test_a_file_cut_short_is_a_failure(tmp_path: Path) -> None:
    async with serving(saying(b"half", Content_Length="8")) as (port, _):
        assert "fetch_failed" == await refusal(open_fetcher(), f"http://a.example:{port}/", tmp_path / "x")


async def test_who_does_not_answer_or_exist_is_a_failure(tmp_path: Path) -> None:
    async def nobody(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    async with serving(saying(b"")) as (port, _):
        pass
    for fetcher in (open_fetcher(), open_fetcher(nobody), open_fetcher(resolving([]))):
        assert "fetch_failed" == await refusal(fetcher, f"http://a.example:{port}/", tmp_path / "x")


async def test_a_dead_address_is_passed_over(tmp_path: Path) -> None:
    networks = (ip_network("127.0.0.0/8"),)
    async with serving(saying(b"alive")) as (port, _):
        fetcher = open_fetcher(resolving(["127.9.9.9", "127.0.0.1"]), allow_networks=networks)
        await fetcher.fetch(f"http://a.example:{port}/", tmp_path / "x", limit_bytes=99, seconds=30)
    assert b"alive" == (tmp_path / "x").read_bytes()


async def test_proxies_of_the_environment_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serving(saying(b"direct")) as (port, _):
        await open_fetcher().fetch(f"http://a.example:{port}/", tmp_path / "x", limit_bytes=99, seconds=30)
    assert b"direct" == (tmp_path / "x").read_bytes()


def a_certificate(folder: Path, host: str) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(1))
        .not_valid_after(now + datetime.timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "cert.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


async def test_the_certificate_is_of_the_name_not_of_the_address(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = a_certificate(tmp_path_factory.mktemp("tls"), "safe.example")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(path)
    names: list[str | None] = []
    server.sni_callback = lambda _, name, __: names.append(name)
    trust = ssl.create_default_context(cafile=str(path))
    async with serving(saying(b"over tls"), server) as (port, _):
        fetcher = open_fetcher(verify=trust)
        await fetcher.fetch(f"https://safe.example:{port}/", tmp_path / "x", limit_bytes=99, seconds=30)
        assert b"over tls" == (tmp_path / "x").read_bytes()
        (tmp_path / "x").unlink()
        assert "fetch_failed" == await refusal(fetcher, f"https://other.example:{port}/", tmp_path / "x")
        assert "fetch_failed" == await refusal(open_fetcher(), f"https://safe.example:{port}/", tmp_path / "x")
    assert "safe.example" == names[0]


async def test_a_cancelled_fetch_leaves_nothing(tmp_path: Path) -> None:
    async with serving(dripping(0.01)) as (port, _):
        fetching = asyncio.create_task(
            open_fetcher().fetch(f"http://a.example:{port}/", tmp_path / "x", limit_bytes=1 << 20, seconds=60)
        )
        await asyncio.sleep(0.2)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
    assert [] == list(tmp_path.iterdir())


async def test_a_refused_address_says_so_without_telling_our_network(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        await open_fetcher(resolving(["10.7.7.7"])).fetch("http://a.example/", tmp_path / "x", limit_bytes=1, seconds=1)

    assert "10.7.7.7" not in caught.value.message
