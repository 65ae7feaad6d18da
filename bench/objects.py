"""Small synced puts into the local store: many at once against one after the other, in turns, best slice of each.

python bench/objects.py [folder]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from docmill.adapters.stores.local import LocalStore

SLICES = 7
PUTS = 150
BODY = bytes(4096)


async def one_by_one(store: LocalStore, slice_: int) -> float:
    start = time.perf_counter()
    for n in range(PUTS):
        await store.put_bytes(f"serial/{slice_}/{n}", BODY)
    return PUTS / (time.perf_counter() - start)


async def at_once(store: LocalStore, slice_: int) -> float:
    start = time.perf_counter()
    await asyncio.gather(*(store.put_bytes(f"parallel/{slice_}/{n}", BODY) for n in range(PUTS)))
    return PUTS / (time.perf_counter() - start)


async def main(folder: Path) -> None:
    store = LocalStore(folder)
    pairs = [(await one_by_one(store, n), await at_once(store, n)) for n in range(SLICES)]
    await store.close()
    serial, parallel = (max(rates) for rates in zip(*pairs, strict=True))
    print(
        f"4 KB synced puts: {parallel:.0f}/s at once, {serial:.0f}/s one by one, ratio {parallel / serial:.2f} (goal 3)"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        asyncio.run(main(Path(folder)))
