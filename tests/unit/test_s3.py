"""What only a bucket has: links that it signs itself, puts with a condition, parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256

import httpx2
import obstore
import pytest

from docmill.adapters.links.presigned import PresignedLinks
from docmill.adapters.stores.s3 import CloudStore
from docmill.core.errors import BadRequest, Forbidden, Unavailable
from docmill.core.keys import tenant_prefix
from support.servers import S3Address

pytestmark = pytest.mark.anyio

PART = 5 << 20


@pytest.fixture
async def store(s3: S3Address, s3_prefix: str) -> CloudStore:
    return CloudStore(f"s3://{s3.bucket}/{s3_prefix}", part=PART, options=s3.options)


@pytest.fixture
async def web() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False) as client:
        yield client


async def test_a_link_gives_the_object_to_whoever_has_it(store: CloudStore, web: httpx2.AsyncClient) -> None:
    await store.put_bytes(tenant_prefix("acme") + "briefs/1.json", b"{}")
    links = PresignedLinks(store.sign)

    taken = await web.get(links.download("acme", "briefs/1.json", seconds=60))
    refused = await web.put(links.download("acme", "briefs/1.json", seconds=60), content=b"other")

    assert (200, b"{}") == (taken.status_code, taken.content)
    assert 403 == refused.status_code
    assert b"{}" == await store.read(tenant_prefix("acme") + "briefs/1.json")


async def test_a_link_takes_a_result(store: CloudStore, web: httpx2.AsyncClient) -> None:
    links = PresignedLinks(store.sign)

    left = await web.put(links.upload("acme", "jobs/1/result", seconds=60), content=b"# Result")

    assert 200 == left.status_code
    assert b"# Result" == await store.read(tenant_prefix("acme") + "jobs/1/result")


async def test_a_link_of_another_key_or_without_signature_is_refused(
    store: CloudStore, web: httpx2.AsyncClient
) -> None:
    await store.put_bytes(tenant_prefix("acme") + "a", b"mine")
    await store.put_bytes(tenant_prefix("acme") + "b", b"not yours")
    link = PresignedLinks(store.sign).download("acme", "a", seconds=60)

    for wrong in (link.replace("/a?", "/b?"), link.partition("?")[0]):
        assert 403 == (await web.get(wrong)).status_code
    with pytest.raises(Forbidden):
        PresignedLinks(store.sign).read("token", method="GET")


async def test_the_same_bytes_again_are_not_written_again(store: CloudStore, s3: S3Address, s3_prefix: str) -> None:
    await store.put_bytes("k", b"same")
    bucket = s3.store(s3_prefix)
    before = obstore.head(bucket, "k")["last_modified"]
    await asyncio.sleep(1.1)  # S3 counts in seconds

    again = await store.put_bytes("k", b"same")

    assert sha256(b"same").hexdigest() == again.sha256
    assert before == obstore.head(bucket, "k")["last_modified"]


async def test_the_digest_is_kept_with_the_object(store: CloudStore, tmp_path) -> None:  # type: ignore[no-untyped-def]
    big = tmp_path / "big"
    big.write_bytes(b"x" * (PART + 1))
    await store.put_file("file", big)
    await store.put_bytes("small", b"y")

    for key, data in (("file", big.read_bytes()), ("small", b"y")):
        found = await store.stat(key)
        assert found
        assert (len(data), sha256(data).hexdigest()) == (found.size, found.sha256)


async def test_many_parts_are_hashed_on_the_way(store: CloudStore) -> None:
    async def stream() -> AsyncIterator[bytes]:
        for n in range(17):
            yield bytes([n]) * 1_000_000

    stored = await store.put("big", stream())

    data = await store.read("big")
    assert (17_000_000, sha256(data).hexdigest()) == (stored.size, stored.sha256)


async def test_a_key_longer_than_the_store_allows_is_refused(store: CloudStore) -> None:
    with pytest.raises(BadRequest):
        await store.put_bytes("报" * 400, b"")


async def test_a_store_that_is_not_there_is_unavailable() -> None:
    options = {"endpoint": "http://127.0.0.1:9", "access_key_id": "x", "secret_access_key": "x", "region": "r"}
    store = CloudStore("s3://nowhere/x", options=options, retry_s=0)

    for attempt in (store.put_bytes("k", b""), store.stat("k"), store.read("k")):
        with pytest.raises(Unavailable) as caught:
            await attempt
        assert "storage_unavailable" == caught.value.code
        assert caught.value.retryable
