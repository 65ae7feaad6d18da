"""Objects: small synced puts into the local store, and the processor time of an S3 client. In turns, best of each.

python bench/objects.py [folder]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from docmill.adapters.stores.local import LocalStore
from docmill.adapters.stores.s3 import CloudStore
from support.servers import ObjectServer, S3Address

SLICES = 7
PUTS = 150
BODY = bytes(4096)
SIDE_BY_SIDE, SHARE = 3.0, 0.2
CLIENT_SLICES, CLIENT_ROUNDS = 5, 200


async def one_by_one(store: LocalStore, slice_: int) -> float:
    start = time.perf_counter()
    for n in range(PUTS):
        await store.put_bytes(f"serial/{slice_}/{n}", BODY)
    return PUTS / (time.perf_counter() - start)


async def at_once(store: LocalStore, slice_: int) -> float:
    start = time.perf_counter()
    await asyncio.gather(*(store.put_bytes(f"parallel/{slice_}/{n}", BODY) for n in range(PUTS)))
    return PUTS / (time.perf_counter() - start)


async def local(folder: Path) -> bool:
    store = LocalStore(folder)
    pairs = [(await one_by_one(store, n), await at_once(store, n)) for n in range(SLICES)]
    await store.close()
    serial, parallel = (max(rates) for rates in zip(*pairs, strict=True))
    ratio = parallel / serial
    print(f"4 KB synced puts: {parallel:.0f}/s at once, {serial:.0f}/s one by one, ratio {ratio:.2f} (goal 3)")
    return ratio >= SIDE_BY_SIDE


async def ours_cpu(store: CloudStore, slice_: int) -> float:
    """Processor seconds of this process, all threads, for a put with its digest, a stat and a read."""
    start = time.process_time()
    for n in range(CLIENT_ROUNDS):
        key = f"ours/{slice_}/{n}"
        await store.put_bytes(key, BODY)
        await store.stat(key)
        assert len(BODY) == len(await store.read(key))
    return time.process_time() - start


def boto3_cpu(client: Any, bucket: str, slice_: int) -> float:
    from hashlib import sha256

    start = time.process_time()
    for n in range(CLIENT_ROUNDS):
        key = f"boto3/{slice_}/{n}"
        metadata = {"sha256": sha256(BODY).hexdigest()}
        client.put_object(Bucket=bucket, Key=key, Body=BODY, Metadata=metadata, IfNoneMatch="*")
        client.head_object(Bucket=bucket, Key=key)
        assert len(BODY) == len(client.get_object(Bucket=bucket, Key=key)["Body"].read())
    return time.process_time() - start


async def clients(s3: S3Address) -> bool:
    import boto3

    store = CloudStore(f"s3://{s3.bucket}/bench", options=s3.options)
    peer = boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=s3.secret_key,
        region_name=s3.region,
    )
    await ours_cpu(store, -1)
    boto3_cpu(peer, s3.bucket, -1)
    pairs = [(await ours_cpu(store, n), boto3_cpu(peer, s3.bucket, n)) for n in range(CLIENT_SLICES)]
    ours, theirs = (min(seconds) / CLIENT_ROUNDS * 1e6 for seconds in zip(*pairs, strict=True))
    print(
        f"S3, put + stat + read of 4 KB: {ours:.0f} µs of processor time, boto3 {theirs:.0f} µs, "
        f"ratio {ours / theirs:.3f} (goal {SHARE})"
    )
    return ours / theirs <= SHARE


async def main(folder: Path) -> bool:
    good = await local(folder)
    with ObjectServer() as server:
        return await clients(server.address) and good


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        sys.exit(0 if asyncio.run(main(Path(folder))) else 1)
