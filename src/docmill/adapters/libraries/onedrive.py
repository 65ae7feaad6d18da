"""Twins on OneDrive, beside their sources, through Microsoft Graph.

A twin is built in a folder of its own below `.docmill-work` and then moved into place. Graph cannot exchange two
folders, so for the moment between two requests a reader finds no twin, but never half of one. The work folder's name is
made of the twin, so that a writer that comes after a crash goes on where the last one stopped: what is up already stays
up, and what was moved away half-way is brought back or completed. Other dead writers are cleared up after an hour.

Beside each manifest lies a record with OneDrive's own hashes of what we wrote, so that edits are found without fetching
anything. A file that is not in our manifest is never deleted; people's files move along into the new folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from io import BytesIO
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import Any, BinaryIO, Final, TypeVar
from unicodedata import normalize

import httpx2

from docmill.adapters.libraries.graph import Graph, GraphError, Item, QuickXor
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
from docmill.core.errors import Conflict, Invalid, StageFailed
from docmill.core.keys import twin_owner_folder
from docmill.core.twin import Manifest, Twin, drifted, is_twin_path, parse_manifest, shortened
from docmill.ports import Place, Written

T = TypeVar("T")

SCHEME: Final = "onedrive"
WORK: Final = ".docmill-work"
PATH_ROOM: Final = 340
"""OneDrive takes paths of 400 characters; the address of a person's drive is part of them."""
LEAST_ROOM: Final = 40
LONGEST_NAME: Final = 250
LEFTOVER_AGE: Final = timedelta(hours=1)
RACES: Final = 5
CHUNK: Final = 1 << 20
SMALL_FILE: Final = 16 << 20

_RECORD_NAME = re.compile(MANIFEST_NAME.pattern + "[.]onedrive")
_WORKSHOP = re.compile(r"docmill-[0-9a-f]{16}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])([.].*)?|[.]lock|desktop[.]ini", re.IGNORECASE | re.DOTALL)
_RACE = {404, 409, 412}


class OneDriveLibrary:
    """Writes twins below a folder of one drive."""

    def __init__(self, graph: Graph, root: str = "/") -> None:
        self._graph = graph
        self._root = names_of(SCHEME, f"{SCHEME}:/{root.strip('/')}")
        self._turns = Turns()

    def folder(self, who: Owner, project_id: int, task_id: int, wanted: str, *, is_single_user: bool = False) -> Place:
        mine = (*self._root, *map(_caseless, twin_owner_folder(who, is_single_user=is_single_user)))
        place = address_of(SCHEME, mine, project_id, task_id, wanted)
        for name in names_of(SCHEME, place):
            if not _is_storable(name):
                raise Invalid("twin_target_invalid", why=f"OneDrive takes no folder named '{name}'")
        _room(names_of(SCHEME, place))
        return place

    async def keep_original(self, folder: Place, name: str, source: Path) -> None:
        names = names_of(SCHEME, folder)
        stored = onedrive_name(shortened(check_original(name)), _room(names))
        async with self._turns.at(folder):
            await _guarded(self._keep_original(names, stored, source))

    async def write(self, folder: Place, twin: Twin, assets: Assets, *, force: bool = False) -> Written:
        names = names_of(SCHEME, folder)
        room = _room(names)
        fitting = adapted(twin, lambda name: onedrive_name(name, room))
        async with self._turns.at(folder):
            return await _guarded(self._write(folder, names, fitting, assets, force=force))

    async def close(self) -> None:
        await self._graph.close()

    # --- originals

    async def _keep_original(self, names: tuple[str, ...], name: str, source: Path) -> None:
        where = await self._open(names)
        with source.open("rb") as stream:
            facts = await asyncio.to_thread(_facts, stream)
            there = await self._graph.find((name,), parent_id=where.id)
            if there is None:
                try:
                    there = await self._graph.upload(where.id, name, stream)
                except GraphError as error:
                    if error.status != 409:
                        raise
                    there = await self._graph.find((name,), parent_id=where.id)
                else:
                    await self._note_change(where, name, there, facts)
        if there is None or not await self._is_same_original(where, name, there, facts):
            raise Invalid("twin_target_invalid", why=f"another '{name}' lies there")

    async def _note_change(self, where: Item, name: str, there: Item, facts: _Facts) -> None:
        """SharePoint writes its own properties into office files; then the note knows what the file was made of."""
        if there.quick_xor and there.quick_xor != facts.quick_xor:
            note = json.dumps({"sha256": facts.sha256, "ctag": there.ctag}).encode()
            await self._graph.upload(where.id, _note_name(name), BytesIO(note), conflicts="replace")

    async def _is_same_original(self, where: Item, name: str, there: Item, facts: _Facts) -> bool:
        if there.is_folder:
            return False
        if there.quick_xor == facts.quick_xor or there.sha256 == facts.sha256:
            return True
        note = await self._graph.find((_note_name(name),), parent_id=where.id)
        if note and {"sha256": facts.sha256, "ctag": there.ctag} == await self._read_json(note):
            return True
        return not there.quick_xor and there.size == facts.size and await self._graph.digest(there) == facts.sha256

    # --- twins

    async def _write(self, place: Place, names: tuple[str, ...], twin: Twin, assets: Assets, *, force: bool) -> Written:
        swapped, own = False, _workshop_name(place, twin)
        for _ in range(RACES):
            try:
                where = await self._open(names)
                work = await self._open((*self._root, WORK))
                await self._settle_leftovers(work, names, own)
                chosen, there = await self._choose(where, twin)
                if there.drift and not force:
                    raise Conflict("twin_drift", path=f"{place}/{there.drift[0]}")
                if not there.is_same(chosen):
                    workshop = await self._graph.make_folder(work.id, own)
                    new = await self._build(workshop, chosen, assets, there, names)
                    swapped = True
                    await self._swap_in(where, workshop, new, chosen, there, assets)
                await self._settle_leftovers(work, names, own, done=True)
                return Written(f"{place}/{chosen.document}", replaced=swapped, kept=there.extras)
            except GraphError as error:
                if error.status not in _RACE:
                    raise
        raise StageFailed("twin_unavailable", why="others write to the same place on OneDrive")

    async def _open(self, names: tuple[str, ...]) -> Item:
        """The folder, made if need be, step by step from the deepest one that is there."""
        for depth in range(len(names), -1, -1):
            if found := await self._graph.find(names[:depth]):
                break
        else:
            raise StageFailed("twin_unavailable", why="OneDrive has no such drive")
        if not found.is_folder:
            raise Invalid("twin_target_invalid", why=f"'{found.name}' is a file, not a folder")
        for name in names[depth:]:
            found = await self._graph.make_folder(found.id, name)
        return found

    async def _choose(self, where: Item, twin: Twin) -> tuple[Twin, _There]:
        """The twin under its first names, or under its other ones if those are somebody else's."""
        candidates = [candidate for candidate in (twin, twin.otherwise) if candidate]
        for candidate in candidates:
            there = await self._survey(where, candidate)
            if there.is_free(candidate):
                break
        if there.folder and not there.folder.is_folder:
            raise Invalid("twin_target_invalid", why=f"'{candidate.folder_name}' is a file, not a folder")
        if candidate.layout == "folder" and there.is_foreign(candidate):
            # OneDrive does not tell `Report.pdf` from `report.pdf`.
            raise Invalid("twin_target_invalid", why=f"'{candidate.folder_name}' is the twin of another source")
        return candidate, there

    async def _survey(self, where: Item, twin: Twin) -> _There:
        folder = await self._graph.find((twin.folder_name,), parent_id=where.id)
        inside = await self._inside(folder) if folder and folder.is_folder else {}
        manifests, records = await self._bookkeeping(twin.folder_name, inside)
        document = await self._graph.find((twin.document,), parent_id=where.id) if "/" not in twin.document else None
        own = manifests.get(twin.manifest_path)
        ours = {file.path for file in twin.files} | set(own.files if own else ())
        found = {path: inside.get(_alike(path.partition("/")[2])) if "/" in path else document for path in ours}
        hashes = {path: await self._digest(item, records.get(path, [])) for path, item in found.items() if item}
        own_names = {_alike(path.partition("/")[2]) for path in (*ours, twin.manifest_path, _record_path(twin))}
        extras = tuple(sorted(item.name for name, item in inside.items() if name not in own_names))
        drift = drifted(manifests.values(), hashes)
        return _There(folder, inside, document, manifests, hashes, drift, extras)

    async def _inside(self, folder: Item) -> dict[str, Item]:
        return {_alike(item.name): item for item in await self._graph.children(folder.id)}

    async def _bookkeeping(
        self, folder: str, inside: Mapping[str, Item]
    ) -> tuple[dict[str, Manifest], dict[str, list[_Facts]]]:
        manifests: dict[str, Manifest] = {}
        records: dict[str, list[_Facts]] = {}
        for item in inside.values():
            if item.is_folder or item.size > SMALL_FILE:
                continue
            if MANIFEST_NAME.fullmatch(item.name):
                if manifest := parse_manifest(await self._graph.read(item, limit=SMALL_FILE)):
                    manifests[f"{folder}/{item.name}"] = manifest
            elif _RECORD_NAME.fullmatch(item.name):
                for path, facts in _read_record(await self._read_json(item)).items():
                    records.setdefault(path, []).append(facts)
        return manifests, records

    async def _digest(self, item: Item, records: list[_Facts]) -> str:
        """The SHA-256 of a file of the twin, by the records where they know it; nothing for what is no file."""
        if item.is_folder:
            return ""
        for facts in records:
            if facts.quick_xor == item.quick_xor or (not item.quick_xor and facts.ctag and facts.ctag == item.ctag):
                return facts.sha256
        if item.sha256:
            return item.sha256
        return "changed" if records and item.quick_xor else await self._graph.digest(item)

    # --- building the new one

    async def _build(self, workshop: Item, twin: Twin, assets: Assets, there: _There, names: tuple[str, ...]) -> Item:
        """Fill `new`, for a sidecar also `document`, and write `plan.json`, by which a dead writer's work is ended."""
        new = await self._graph.make_folder(workshop.id, "new")
        already = await self._inside(new)
        hashes, record = {}, {}
        for file in twin.files:
            folder, _, name = file.path.rpartition("/")
            with material(file, assets) as stream:
                facts = await asyncio.to_thread(_facts, stream)
                check_digest(file, facts.sha256)
                if folder:
                    item = already.get(_alike(name))
                    if item is None or (item.size, item.quick_xor) != (facts.size, facts.quick_xor):
                        item = await self._put(new, name, stream, facts)
                    record[file.path] = {"sha256": facts.sha256, "quickxor": facts.quick_xor, "ctag": item.ctag}
                else:
                    await self._put(workshop, "document", stream, facts)
                    record[file.path] = {"sha256": facts.sha256, "quickxor": facts.quick_xor, "ctag": ""}
            hashes[file.path] = facts.sha256
        manifest = twin.manifest_for(hashes).to_json().encode()
        plan = {
            "place": list(names),
            "folder": twin.folder_name,
            "document": "" if "/" in twin.document else twin.document,
            "old_document": there.document.ctag if there.document else "",
            "manifest_path": twin.manifest_path,
            "manifest": sha256(manifest).hexdigest(),
            "ours": sorted(there.own_names(twin)),
        }
        await self._put_bytes(new, _record_path(twin).partition("/")[2], json.dumps({"version": 1, "files": record}))
        await self._put_bytes(new, twin.manifest_path.partition("/")[2], manifest.decode())
        await self._put_bytes(workshop, "plan.json", json.dumps(plan))
        return new

    async def _put_bytes(self, folder: Item, name: str, text: str) -> None:
        stream = BytesIO(text.encode())
        await self._put(folder, name, stream, _facts(stream))

    async def _put(self, folder: Item, name: str, stream: BinaryIO, facts: _Facts) -> Item:
        item = await self._graph.upload(folder.id, name, stream, conflicts="replace")
        if item.quick_xor and item.quick_xor != facts.quick_xor:
            raise StageFailed("twin_unavailable", why="OneDrive stored other bytes than were sent")
        return item

    # --- swapping it in

    async def _swap_in(self, where: Item, workshop: Item, new: Item, twin: Twin, there: _There, assets: Assets) -> None:
        if there.folder:
            if there.versions() != {name: item.etag for name, item in (await self._inside(there.folder)).items()}:
                raise GraphError(412, "changedMeanwhile")
            old = await self._graph.move(there.folder, parent_id=workshop.id, name=f"old-{token_hex(4)}")
            try:
                await self._graph.move(new, parent_id=where.id, name=twin.folder_name, guarded=False)
            except BaseException:
                with contextlib.suppress(GraphError, StageFailed, httpx2.HTTPError):
                    await self._graph.move(old, parent_id=where.id, name=twin.folder_name, guarded=False)
                raise
        else:
            await self._graph.move(new, parent_id=where.id, name=twin.folder_name, guarded=False)
        if "/" not in twin.document:
            document = next(file for file in twin.files if file.path == twin.document)
            with material(document, assets) as stream:
                await self._lay_document(where, twin.document, stream, there.document)

    async def _lay_document(self, where: Item, name: str, stream: BinaryIO, old: Item | None) -> None:
        """Replace just the version that we saw, or none."""
        if old:
            await self._graph.upload(where.id, name, stream, conflicts="replace", etag=old.etag)
        else:
            await self._graph.upload(where.id, name, stream)

    # --- after a crash, and after every write

    async def _settle_leftovers(self, work: Item, names: tuple[str, ...], own: str, *, done: bool = False) -> None:
        """Complete or undo what dead writers began.

        What ourselves began in an earlier life is settled at once, and so is anybody's half-done exchange at our place,
        where a twin seems missing or edited. If its writer lives after all, it finds out, and begins again. All other
        work folders wait an hour.
        """
        for item in await self._graph.children(work.id):
            if not item.is_folder or not _WORKSHOP.fullmatch(item.name):
                continue
            is_own = item.name == own
            is_old = item.modified < datetime.now(UTC) - LEFTOVER_AGE
            inside = await self._inside(item)
            plan = await self._plan(inside.get("plan.json"))
            is_near = plan is not None and plan.place == names and any(map(_is_old_twin, inside))
            if is_own or is_old or is_near:
                settled = await self._settle(inside, plan)
                if settled and (done if is_own else is_old):
                    await self._graph.delete(item)

    async def _settle(self, inside: Mapping[str, Item], plan: _Plan | None) -> bool:
        """Whether nothing is in it any more that anybody could miss."""
        olds = [item for name, item in inside.items() if _is_old_twin(name)]
        if plan is None:
            return not olds
        where = await self._graph.find(plan.place)
        if where is None:
            return not olds  # a person took the place away; the rest is theirs to decide
        target = await self._graph.find((plan.folder,), parent_id=where.id)
        for old in olds:
            if target is None:
                target = await self._graph.move(old, parent_id=where.id, name=plan.folder, guarded=False)
            else:
                await self._carry_over(old, target, plan.ours)
                await self._graph.delete(old)
        if target and plan.document and (draft := inside.get("document")):
            await self._finish_document(where, target, plan, draft)
        return True

    async def _carry_over(self, old: Item, target: Item, ours: frozenset[str]) -> None:
        """Give the new folder what people had added to the old one."""
        for item in await self._graph.children(old.id):
            if _alike(item.name) in ours:
                continue
            try:
                await self._graph.move(item, parent_id=target.id, name=item.name, guarded=False)
            except GraphError as error:
                if error.status != 409:
                    raise
                name = PurePosixPath(item.name)
                kept = f"{name.stem} ({token_hex(3)}){name.suffix}"
                await self._graph.move(item, parent_id=target.id, name=kept, guarded=False)

    async def _finish_document(self, where: Item, target: Item, plan: _Plan, draft: Item) -> None:
        """A sidecar's folder is new, its document still the old one: then the writer died in between."""
        manifest = await self._graph.find((plan.manifest_path.partition("/")[2],), parent_id=target.id)
        if manifest is None or await self._graph.digest(manifest) != plan.manifest:
            return
        there = await self._graph.find((plan.document,), parent_id=where.id)
        if (there.ctag if there else "") == plan.old_document:
            content = BytesIO(await self._graph.read(draft, limit=draft.size))
            await self._lay_document(where, plan.document, content, there)

    async def _plan(self, item: Item | None) -> _Plan | None:
        plan = _read_plan(await self._read_json(item)) if item else None
        inside = plan and plan.place[: len(self._root)] == self._root and all(map(_is_storable, plan.place))
        return plan if inside else None

    async def _read_json(self, item: Item) -> Any:
        try:
            return json.loads(await self._graph.read(item, limit=SMALL_FILE))
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class _Facts:
    size: int
    sha256: str
    quick_xor: str
    ctag: str = ""


@dataclass(frozen=True, slots=True)
class _Plan:
    place: tuple[str, ...]
    folder: str
    document: str
    old_document: str
    manifest_path: str
    manifest: str
    ours: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _There:
    """A twin as it lies on OneDrive."""

    folder: Item | None
    inside: Mapping[str, Item]
    document: Item | None
    """A sidecar's, which lies outside the folder."""
    manifests: Mapping[str, Manifest]
    hashes: Mapping[str, str]
    """Of the files that we would replace."""
    drift: tuple[str, ...]
    extras: tuple[str, ...]

    def is_foreign(self, twin: Twin) -> bool:
        return any(manifest.source_file != twin.source_name for manifest in self.manifests.values())

    def is_free(self, twin: Twin) -> bool:
        if self.folder and not self.folder.is_folder:
            return False
        if twin.layout == "folder":
            return True
        listed = any(twin.document in manifest.files for manifest in self.manifests.values())
        return not self.is_foreign(twin) and (listed or self.document is None)

    def is_same(self, twin: Twin) -> bool:
        own, new = self.manifests.get(twin.manifest_path), twin.manifest
        return (
            own is not None
            and own.is_current(new.source_sha256, new.fingerprint)
            and own.content == new.content
            and dict(own.files) == dict(self.hashes)
            and set(self.hashes) == {file.path for file in twin.files}
        )

    def own_names(self, twin: Twin) -> set[str]:
        """What the new folder replaces."""
        paths = (*self.hashes, twin.manifest_path, _record_path(twin))
        return {_alike(path.partition("/")[2]) for path in paths if "/" in path}

    def versions(self) -> dict[str, str]:
        return {name: item.etag for name, item in self.inside.items()}


def _facts(stream: BinaryIO) -> _Facts:
    digest, quick_xor, size = sha256(), QuickXor(), 0
    stream.seek(0)
    while chunk := stream.read(CHUNK):
        digest.update(chunk)
        quick_xor.update(chunk)
        size += len(chunk)
    return _Facts(size, digest.hexdigest(), quick_xor.value())


def _read_record(raw: Any) -> dict[str, _Facts]:
    try:
        return {
            str(path): _Facts(0, str(facts["sha256"]), str(facts["quickxor"]), str(facts["ctag"]))
            for path, facts in raw["files"].items()
        }
    except (TypeError, KeyError, AttributeError):
        return {}


def _read_plan(raw: Any) -> _Plan | None:
    """A plan, if it is one of ours: whoever may write to the drive may have written this file."""
    try:
        plan = _Plan(**raw | {"place": tuple(raw["place"]), "ours": frozenset(raw["ours"])})
        names = (plan.folder, plan.document or plan.folder)
        texts = (*plan.place, *plan.ours, *names, plan.old_document, plan.manifest)
        sound = all(isinstance(text, str) for text in texts) and is_twin_path(plan.manifest_path)
        return plan if sound and all(is_twin_path(name) and "/" not in name for name in names) else None
    except (TypeError, KeyError, AttributeError):
        return None


def _workshop_name(place: Place, twin: Twin) -> str:
    identity = "\n".join((place, twin.manifest_path, twin.manifest.to_json()))
    return f"docmill-{sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _is_old_twin(name: str) -> bool:
    return name.startswith("old-")


def _record_path(twin: Twin) -> str:
    return f"{twin.manifest_path}.onedrive"


def _note_name(name: str) -> str:
    return f".docmill-{sha256(_alike(name).encode()).hexdigest()[:16]}.source.json"


# --- names


def onedrive_name(name: str, room: int = LONGEST_NAME) -> str:
    """The name as OneDrive takes it: what is forbidden as %XX, too long ones cut with a hash. Distinct ones stay so."""
    safe = re.sub("_(?=vti_)", "%5F", escaped(name, _is_forbidden), flags=re.IGNORECASE)
    if safe.startswith((" ", "~$")) or _RESERVED.fullmatch(safe):
        safe = f"%{ord(safe[0]):02X}{safe[1:]}"
    if safe.endswith((" ", ".")):
        safe = f"{safe[:-1]}%{ord(safe[-1]):02X}"
    return cut(safe, room)


def _is_storable(name: str) -> bool:
    return (
        not any(map(_is_forbidden, name))
        and not name.startswith((" ", "~$"))
        and not name.endswith((" ", "."))
        and not _RESERVED.fullmatch(name)
        and "_vti_" not in name.lower()
        and len(name) <= LONGEST_NAME
    )


def _is_forbidden(char: str) -> bool:
    return char in '"*:<>?/\\|' or ord(char) < 32 or ord(char) == 127 or "\ud800" <= char <= "\udfff"


def _caseless(segment: str) -> str:
    """A user's folder. OneDrive does not tell `Anna` from `anna`, so whoever has capitals carries a hash."""
    if segment == segment.lower() and len(segment) <= 64:
        return onedrive_name(segment)
    return onedrive_name(f"{segment[:40]}~{sha256(segment.encode()).hexdigest()[:16]}")


def _alike(name: str) -> str:
    return normalize("NFC", name.casefold())


def _room(place: tuple[str, ...]) -> int:
    """How long a name may be at the place, where a file lies one folder deeper."""
    room = (PATH_ROOM - len("/".join(place))) // 2 - 1
    if room < LEAST_ROOM:
        raise Invalid("twin_target_invalid", why="its path is too long for OneDrive")
    return min(room, LONGEST_NAME)


async def _guarded(work: Awaitable[T]) -> T:
    try:
        return await work
    except GraphError as error:
        raise StageFailed("twin_failed", why=f"OneDrive refuses: {error.status} {error.code}") from error
    except (httpx2.HTTPError, OSError) as error:
        raise StageFailed("twin_unavailable", why=f"OneDrive: {type(error).__name__}") from error
