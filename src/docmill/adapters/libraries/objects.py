"""Twins in the object store, below `twins/`.

    twins/<place>/report.pdf
    twins/<place>/_report.pdf/.docmill.json          which generation holds the twin, and its manifest
    twins/<place>/_report.pdf/@<generation>/report.md, page_001.png, ...

Objects cannot be moved together. So every twin is a generation of its own, complete before the manifest names it: who
starts from the manifest sees the old twin or the new one. The generation before stays for readers that are under way;
what is older goes with the next write. Within a generation relative links work.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, Final, TypeVar
from unicodedata import category, is_normalized

from docmill.adapters.libraries.remote import (
    MANIFEST_NAME,
    Assets,
    Turns,
    adapted,
    address_of,
    check_digest,
    check_original,
    cut,
    escaped,
    material,
    names_of,
)
from docmill.core.access import Owner
from docmill.core.errors import BadRequest, Conflict, DocmillError, Invalid, NotFound, StageFailed
from docmill.core.keys import MAX_KEY, twin_owner_folder
from docmill.core.twin import Manifest, Twin, drifted, parse_manifest, shortened
from docmill.ports import Place, Store, Written

T = TypeVar("T")

SCHEME: Final = "objects"
ROOT: Final = "twins"
CHUNK: Final = 1 << 20
LONGEST_NAME: Final = 200
LEAST_ROOM: Final = 40
MANIFEST_LIMIT: Final = 16 << 20
LEFTOVER_AGE: Final = 3600.0

_GENERATION = re.compile(r"@([0-9a-f]{16})/")


class ObjectLibrary:
    """Writes twins into a store."""

    def __init__(self, store: Store, root: str = ROOT) -> None:
        self._store = store
        self._root = root
        self._turns = Turns()

    def folder(self, who: Owner, project_id: int, task_id: int, wanted: str, *, is_single_user: bool = False) -> Place:
        mine = twin_owner_folder(who, is_single_user=is_single_user)
        place = address_of(SCHEME, mine, project_id, task_id, wanted)
        self._prefix(place)
        return place

    async def close(self) -> None:
        """The store is not ours to close."""

    async def keep_original(self, folder: Place, name: str, source: Path) -> None:
        prefix, room = self._prefix(folder)
        key = prefix + key_name(shortened(check_original(name)), room)
        async with self._turns.at(folder):
            await _guarded(self._keep_original(key, name, source))

    async def write(self, folder: Place, twin: Twin, assets: Assets, *, force: bool = False) -> Written:
        prefix, room = self._prefix(folder)
        fitting = adapted(twin, lambda name: key_name(name, room))
        async with self._turns.at(folder):
            return await _guarded(self._write(folder, prefix, fitting, assets, force=force))

    async def _keep_original(self, key: str, name: str, source: Path) -> None:
        digest = await asyncio.to_thread(_digest_of_file, source)
        if await self._store.stat(key) is None:
            await self._store.put_file(key, source)
        elif digest != await self._digest(key):
            raise Invalid("twin_target_invalid", why=f"another '{name}' lies there")

    async def _write(self, place: Place, prefix: str, twin: Twin, assets: Assets, *, force: bool) -> Written:
        twin, there = await self._choose(prefix, twin)
        own = there.own(twin)
        if there.drift and not force:
            raise Conflict("twin_drift", path=f"{place}/{_key(twin, own, there.drift[0])}")
        if own and there.is_same(twin, own):
            return Written(f"{place}/{_key(twin, own, twin.document)}", replaced=False, kept=there.extras)
        new = _Index(token_hex(8), own.generation if own else "", twin.manifest)
        hashes = {}
        for file in twin.files:
            with material(file, assets) as stream:
                stored = await self._store.put(prefix + _key(twin, new, file.path), _chunks(stream))
            hashes[file.path] = stored.sha256 or await self._digest(stored.key)
            check_digest(file, hashes[file.path])
        new = _Index(new.generation, new.previous, twin.manifest_for(hashes))
        await self._store.put_bytes(prefix + twin.manifest_path, new.to_json())
        await self._clear(prefix, twin, {**there.indexes, twin.manifest_path: new})
        return Written(f"{place}/{_key(twin, new, twin.document)}", replaced=True, kept=there.extras)

    async def _choose(self, prefix: str, twin: Twin) -> tuple[Twin, _There]:
        """The twin under its first names, or under its other ones if those are another source's."""
        candidate = twin
        there = await self._survey(prefix, candidate)
        if twin.otherwise and there.is_foreign(twin):
            candidate = twin.otherwise
            there = await self._survey(prefix, candidate)
        return candidate, there

    async def _survey(self, prefix: str, twin: Twin) -> _There:
        start = f"{prefix}{twin.folder_name}/"
        names = [key.removeprefix(start) async for key, _, _ in self._store.list(start)]
        indexes: dict[str, _Index] = {}
        for name in names:
            if MANIFEST_NAME.fullmatch(name) and (index := await self._index(start + name)):
                indexes[f"{twin.folder_name}/{name}"] = index
        own = indexes.get(twin.manifest_path)
        hashes = await self._hashes(prefix, twin, own) if own else {}
        inside = {name.partition("/")[0] for name in names if not _GENERATION.match(name)}
        extras = tuple(sorted(inside - {path.partition("/")[2] for path in (*indexes, twin.manifest_path)}))
        return _There(indexes, hashes, drifted(own.manifest, hashes) if own else (), extras)

    async def _hashes(self, prefix: str, twin: Twin, own: _Index) -> dict[str, str]:
        keys = {path: prefix + _key(twin, own, path) for path in own.manifest.files}
        return {path: await self._digest(key) for path, key in keys.items() if await self._store.stat(key)}

    async def _index(self, key: str) -> _Index | None:
        try:
            return _read_index(await self._store.read(key, limit=MANIFEST_LIMIT))
        except NotFound:
            return None

    async def _digest(self, key: str) -> str:
        found = await self._store.stat(key)
        if found and found.sha256:
            return found.sha256
        digest = hashlib.sha256()
        async for chunk in self._store.stream(key):
            digest.update(chunk)
        return digest.hexdigest()

    async def _clear(self, prefix: str, twin: Twin, indexes: Mapping[str, _Index]) -> None:
        """Delete generations that no manifest names any more, and that no writer is just filling."""
        start = f"{prefix}{twin.folder_name}/"
        named = {name for index in indexes.values() for name in (index.generation, index.previous)}
        known = {index.generation for index in indexes.values()}
        found = [(key, written) async for key, _, written in self._store.list(start)]
        for key, written in found:
            match = _GENERATION.match(key.removeprefix(start))
            if match and match[1] not in named | known and written < time.time() - LEFTOVER_AGE:
                await self._store.delete(key)

    def _prefix(self, place: Place) -> tuple[str, int]:
        """Where the place's keys begin, and how long a name may be there."""
        prefix = "".join(f"{name}/" for name in (self._root, *map(key_name, names_of(SCHEME, place))))
        room = (MAX_KEY - len(prefix) - len("/@0123456789abcdef/")) // 2 - 1
        if room < LEAST_ROOM:
            raise Invalid("twin_target_invalid", why="its path is too long for the object store")
        return prefix, min(room, LONGEST_NAME)


@dataclass(frozen=True, slots=True)
class _Index:
    """What a manifest object says."""

    generation: str
    previous: str
    manifest: Manifest

    def to_json(self) -> bytes:
        head = {"generation": self.generation, "previous": self.previous}
        return json.dumps({**head, "manifest": json.loads(self.manifest.to_json())}, indent=2).encode()


@dataclass(frozen=True, slots=True)
class _There:
    indexes: Mapping[str, _Index]
    hashes: Mapping[str, str]
    drift: tuple[str, ...]
    extras: tuple[str, ...]

    def own(self, twin: Twin) -> _Index | None:
        return self.indexes.get(twin.manifest_path)

    def is_foreign(self, twin: Twin) -> bool:
        return any(index.manifest.source_file != twin.source_name for index in self.indexes.values())

    def is_same(self, twin: Twin, own: _Index) -> bool:
        new = twin.manifest
        return (
            own.manifest.is_current(new.source_sha256, new.fingerprint)
            and own.manifest.content == new.content
            and dict(own.manifest.files) == dict(self.hashes)
            and set(self.hashes) == {file.path for file in twin.files}
        )


def _key(twin: Twin, index: _Index | None, path: str) -> str:
    """The key of a file of the twin, below the place."""
    inner = path.removeprefix(f"{twin.folder_name}/") if twin.layout == "folder" else path
    return f"{twin.folder_name}/@{index.generation if index else ''}/{inner}"


def _read_index(data: bytes) -> _Index | None:
    try:
        raw: dict[str, Any] = json.loads(data)
        manifest = parse_manifest(json.dumps(raw["manifest"]))
        generation, previous = raw["generation"], raw["previous"]
        if manifest and _GENERATION.fullmatch(f"@{generation}/"):
            return _Index(generation, str(previous), manifest)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def key_name(name: str, room: int = LONGEST_NAME) -> str:
    """The name as a segment of a key: what keys do not take as %XX, too long ones cut with a hash."""
    safe = escaped(name, _is_forbidden)
    if not is_normalized("NFKC", safe):
        safe = escaped(name, lambda char: not char.isascii() or _is_forbidden(char))
    return cut(safe, room)


def _is_forbidden(char: str) -> bool:
    return char in "/\\" or category(char) in {"Cc", "Cs", "Zl", "Zp"}


async def _chunks(stream: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(stream.read, CHUNK):
        yield chunk


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _guarded(work: Awaitable[T]) -> T:
    try:
        return await work
    except BadRequest as error:
        raise Invalid("twin_target_invalid", why=error.message) from error
    except DocmillError:
        raise
    except Exception as error:
        # Each store has errors of its own; to whoever wanted a twin they all say: later.
        raise StageFailed("twin_unavailable", why=type(error).__name__) from error
