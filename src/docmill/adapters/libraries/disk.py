"""Twins beside their sources on a disk.

A twin is built in a hidden folder beside the source and swapped in: a reader sees the old one or the new one, also when
the writer is killed. A sidecar is two things, a folder and a file; the folder goes first, and a writer that died in
between is finished by the next one. Writers of one folder take turns by a lock on the folder itself.

All paths are walked from folder to folder without following links, so that a planted link leads nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, TypeVar

from docmill.core.access import Owner
from docmill.core.errors import FULL_ERRNOS, Conflict, DocmillError, Invalid, StageFailed, StorageFull
from docmill.core.keys import twin_owner_folder
from docmill.core.twin import (
    Layout,
    Manifest,
    Twin,
    TwinFile,
    check_folder_depth,
    drifted,
    is_twin_path,
    parse_manifest,
    shortened,
    twin_folders,
)
from docmill.ports import Place, Written

T = TypeVar("T")

CHUNK: Final = 1 << 20
THREADS: Final = 4
LEFTOVER_AGE: Final = 3600.0
MANIFEST_LIMIT: Final = 16 << 20

Assets = Callable[[str], Path] | Mapping[str, Path]

_WORKSHOP = re.compile(r"[.]docmill-[0-9a-f]{16}[.]tmp")
_MANIFEST = re.compile(r"[.]docmill([.][A-Za-z0-9-]+)?[.]json")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DiskLibrary:
    """Writes twins into folders below the allowed roots, or anywhere if there are none."""

    def __init__(self, allowed_roots: tuple[Path, ...] | None = None) -> None:
        self._roots = None if allowed_roots is None else tuple(root.resolve() for root in allowed_roots)
        # Its own threads: waiting for another process's lock must not hold up anybody else.
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="library")

    def folder(self, who: Owner, project_id: int, task_id: int, wanted: str, *, is_single_user: bool = False) -> Place:
        """Where a task's twin goes. Users have folders of their own; the only user has the whole library.

        *wanted* is relative to the user's folder, or an absolute path inside it. Nothing: a folder of the task.
        """
        if not self._roots:
            raise Invalid("twin_target_invalid", why="there is no library")
        mine = twin_owner_folder(who, is_single_user=is_single_user)
        if not wanted:
            return str(self._roots[0].joinpath(*mine, str(project_id), str(task_id)))
        if ".." in Path(wanted).parts or not wanted.isprintable():
            raise Invalid("twin_target_invalid", why="it has '..' or control characters")
        for root in self._roots:
            inside = root.joinpath(*mine)
            if (inside / wanted).is_relative_to(inside):
                check_folder_depth((inside / wanted).relative_to(inside).parts)
                return str(inside / wanted)
        raise Invalid("twin_target_invalid", why="it lies outside the library")

    async def keep_original(self, folder: Place | Path, name: str, source: Path) -> None:
        """Lay the original into the folder, which is made if need be. The same file there already is fine."""
        await self._run(lambda: self._keep_original(Path(folder), shortened(name), source))

    async def write(self, folder: Place | Path, twin: Twin, assets: Assets, *, force: bool = False) -> Written:
        """Put the twin into the folder, beside its source.

        Conflict `twin_drift` if a person edited the one that is there and *force* is not set; Invalid
        `twin_target_invalid` for a folder that is not allowed; StageFailed `twin_failed`, StorageFull `storage_full`.
        A cancelled caller still waits for the write to end.
        """
        asset = assets if callable(assets) else assets.__getitem__
        return await self._run(lambda: self._write(Path(folder), twin, asset, force=force))

    async def read_manifest(self, source: Path, layout: Layout, language: str | None = None) -> Manifest | None:
        """The manifest of the source's twin, if one is there with all its files; of several languages the newest."""
        return await self._run(lambda: self._read_manifest(source, layout, language))

    async def ours(self, folder: Path) -> frozenset[str]:
        """Names in the folder that are twins, not sources."""
        return await self._run(lambda: self._ours(folder))

    async def close(self) -> None:
        """Finish what is under way."""
        await asyncio.to_thread(self._pool.shutdown)

    async def _run(self, function: Callable[[], T]) -> T:
        """Call it in a thread. A cancelled caller still waits, so that nothing is taken away under the thread."""
        future = asyncio.get_running_loop().run_in_executor(self._pool, _guarded, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            future.exception()
            raise

    def _keep_original(self, folder: Path, name: str, source: Path) -> None:
        if not is_twin_path(name) or "/" in name:
            raise Invalid("twin_target_invalid", why="the original's name is not a file name")
        with self._opened(folder, create=True) as (where, _), _locked(where):
            if _kind(where, name) is None:
                _lay_down(where, name, source)
            elif _hash_of(where, name) != _digest(source):
                raise Invalid("twin_target_invalid", why=f"another '{name}' lies there")

    def _write(self, folder: Path, twin: Twin, asset: Callable[[str], Path], *, force: bool) -> Written:
        with self._opened(folder) as (where, real), _locked(where) as alone:
            _clear_workshops(where, LEFTOVER_AGE if not alone else 0)
            twin = _choose(where, twin)
            there = _survey(where, twin)
            if there.drift and not force:
                raise Conflict("twin_drift", path=str(real / there.drift[0]))
            if there.is_same(twin):
                return Written(str(real / twin.document), replaced=False, kept=there.extras)
            with _workshop(where) as workshop:
                _build(workshop, twin, asset, there)
                _swap_in(where, workshop, twin, there)
            return Written(str(real / twin.document), replaced=True, kept=there.extras)

    def _read_manifest(self, source: Path, layout: Layout, language: str | None) -> Manifest | None:
        try:
            with self._opened(source.parent) as (where, _):
                found = [
                    manifest
                    for folder in twin_folders(source.name, layout)
                    for manifest in _manifests(where, folder).values()
                    if manifest.source_file == source.name and language in {None, manifest.language}
                ]
                newest = max(found, key=lambda manifest: manifest.generated_at, default=None)
                whole = newest and all(_is_file(where, path) for path in newest.files)
                return newest if whole else None
        except Invalid:
            return None

    def _ours(self, folder: Path) -> frozenset[str]:
        names: set[str] = set()
        with self._opened(folder) as (where, _):
            for name in _listed(where):
                if name.startswith(("_", ".")) and (manifests := _manifests(where, name)):
                    names.add(name)
                    names.update(manifest.document.partition("/")[0] for manifest in manifests.values())
        return frozenset(names)

    @contextlib.contextmanager
    def _opened(self, folder: Path, *, create: bool = False) -> Iterator[tuple[int, Path]]:
        try:
            real = folder.resolve(strict=not create)
        except (OSError, RuntimeError) as error:
            raise Invalid("twin_target_invalid", why="the folder does not exist") from error
        if self._roots is not None and not any(real.is_relative_to(root) for root in self._roots):
            raise Invalid("twin_target_invalid", why="it lies outside the allowed folders")
        fd = _descend(real, create=create)
        try:
            yield fd, real
        finally:
            os.close(fd)


# --- what is there


@dataclass(frozen=True, slots=True)
class _There:
    """A twin as it lies on the disk."""

    own: Manifest | None
    hashes: Mapping[str, str]
    """Of the files that we would replace."""
    drift: tuple[str, ...]
    extras: tuple[str, ...]
    """Names in the twin's folder that are not ours to replace."""

    def is_same(self, twin: Twin) -> bool:
        new = twin.manifest
        return (
            self.own is not None
            and self.own.is_current(new.source_sha256, new.fingerprint)
            and self.own.content == new.content
            and dict(self.own.files) == dict(self.hashes)
            and set(self.hashes) == {file.path for file in twin.files}
        )


def _choose(where: int, twin: Twin) -> Twin:
    """The twin under its first names, or under its other ones if those are somebody else's."""
    for candidate in (twin, twin.otherwise):
        if candidate and _is_free(where, candidate):
            return candidate
    last = twin.otherwise or twin
    if _kind(where, last.folder_name) not in {None, "folder"}:
        raise Invalid("twin_target_invalid", why=f"'{last.folder_name}' is a file, not a folder")
    return last


def _is_free(where: int, twin: Twin) -> bool:
    kind = _kind(where, twin.folder_name)
    if kind == "link":
        raise Invalid("twin_target_invalid", why=f"'{twin.folder_name}' is a link")
    if kind not in {None, "folder"}:
        return False
    if twin.layout == "folder":
        return True
    manifests = _manifests(where, twin.folder_name).values()
    foreign = any(manifest.source_file != twin.source_name for manifest in manifests)
    listed = any(twin.document in manifest.files for manifest in manifests)
    return not foreign and (listed or _kind(where, twin.document) is None)


def _survey(where: int, twin: Twin) -> _There:
    manifests = _manifests(where, twin.folder_name)
    own = manifests.get(twin.manifest_path)
    ours = {file.path for file in twin.files} | set(own.files if own else ())
    # A manifest that can no longer be read is rubbish, not somebody's work.
    inside = {f"{twin.folder_name}/{name}" for name in _names_in(where, twin.folder_name)} - {twin.manifest_path}
    hashes = {path: _hash_of(where, path) for path in ours if path in inside or _kind(where, path)}
    extras = tuple(sorted(path.partition("/")[2] for path in inside - ours))
    return _There(own, hashes, drifted(manifests.values(), hashes), extras)


def _manifests(where: int, folder: str) -> dict[str, Manifest]:
    found: dict[str, Manifest] = {}
    for name in _names_in(where, folder):
        if _MANIFEST.fullmatch(name):
            path = f"{folder}/{name}"
            with contextlib.suppress(OSError), _reading(where, path) as file:
                if manifest := parse_manifest(file.read(MANIFEST_LIMIT)):
                    found[path] = manifest
    return found


def _names_in(where: int, folder: str) -> list[str]:
    try:
        fd = os.open(folder, _FOLDER, dir_fd=where)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            return []
        raise
    try:
        return _listed(fd)
    finally:
        os.close(fd)


def _listed(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _kind(where: int, path: str) -> str | None:
    try:
        mode = os.stat(path, dir_fd=where, follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "file"


def _is_file(where: int, path: str) -> bool:
    return _kind(where, path) == "file"


def _hash_of(where: int, path: str) -> str:
    """The file's digest; nothing for what is no file, which is then never what we wrote."""
    try:
        with _reading(where, path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


@contextlib.contextmanager
def _reading(where: int, path: str) -> Iterator[Any]:
    """Open a file of the twin; its folder, if it has one, is no link."""
    folder, _, name = path.rpartition("/")
    inside = os.open(folder, _FOLDER, dir_fd=where) if folder else where
    try:
        fd = os.open(name, _READ, dir_fd=inside)
    finally:
        if folder:
            os.close(inside)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        yield file


# --- building the new one


@contextlib.contextmanager
def _workshop(where: int) -> Iterator[int]:
    """A hidden folder beside the source. In the end it is gone, with everything that is still in it."""
    name = f".docmill-{token_hex(8)}.tmp"
    os.mkdir(name, 0o700, dir_fd=where)
    try:
        fd = os.open(name, _FOLDER, dir_fd=where)
        try:
            yield fd
        finally:
            os.close(fd)
    finally:
        shutil.rmtree(name, ignore_errors=True, dir_fd=where)


def _build(workshop: int, twin: Twin, asset: Callable[[str], Path], there: _There) -> None:
    """Write `new/`, for a sidecar also `document`, and `plan.json`, by which a dead writer's swap can be completed."""
    os.mkdir("new", dir_fd=workshop)
    new = os.open("new", _FOLDER, dir_fd=workshop)
    try:
        hashes = {}
        for file in twin.files:
            folder, _, name = file.path.rpartition("/")
            place = (new, name) if folder else (workshop, "document")
            hashes[file.path] = _write_file(*place, file, asset)
        manifest = twin.manifest_for(hashes).to_json().encode()
        _create(new, twin.manifest_path.rpartition("/")[2], (manifest,))
        plan = {
            "folder": twin.folder_name,
            "document": "" if "/" in twin.document else twin.document,
            "old_document": there.hashes.get(twin.document, ""),
            "manifest_path": twin.manifest_path,
            "manifest": hashlib.sha256(manifest).hexdigest(),
        }
        _create(workshop, "plan.json", (json.dumps(plan).encode(),))
        _sync_all(new)
        _sync_all(workshop)
    finally:
        os.close(new)


def _write_file(folder: int, name: str, file: TwinFile, asset: Callable[[str], Path]) -> str:
    if file.text is not None:
        return _create(folder, name, (file.text.encode("utf-8", "replace"),))
    try:
        # The engine's folder is not to be trusted: a link in it may point anywhere.
        fd = os.open(asset(file.asset or ""), _READ)
    except (KeyError, FileNotFoundError) as error:
        raise StageFailed("twin_failed", why=f"the asset '{file.asset}' is missing") from error
    with os.fdopen(fd, "rb") as source:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise StageFailed("twin_failed", why=f"the asset '{file.asset}' is not a file")
        digest = _create(folder, name, iter(lambda: source.read(CHUNK), b""))
    if file.sha256 and file.sha256 != digest:
        raise StageFailed("twin_failed", why=f"the asset '{file.asset}' is not the one that was parsed")
    return digest


def _create(folder: int, name: str, chunks: Iterator[bytes] | tuple[bytes, ...]) -> str:
    digest = hashlib.sha256()
    with os.fdopen(os.open(name, _CREATE, 0o666, dir_fd=folder), "wb") as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
    return digest.hexdigest()


def _sync_all(folder: int) -> None:
    """Sync the files, then the folder. After all are written, because syncing together is far cheaper than in turns."""
    for name in _listed(folder):
        if _is_file(folder, name):
            fd = os.open(name, _READ, dir_fd=folder)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
    os.fsync(folder)


def _lay_down(where: int, name: str, source: Path) -> None:
    """Copy a file under a name that nobody has: whole, or not at all."""
    with _workshop(where) as workshop, source.open("rb") as file:
        _create(workshop, "original", iter(lambda: file.read(CHUNK), b""))
        _sync_all(workshop)
        try:
            os.link("original", name, src_dir_fd=workshop, dst_dir_fd=where)
        except FileExistsError as error:
            raise Invalid("twin_target_invalid", why=f"another '{name}' lies there") from error
        except OSError as error:
            if error.errno in FULL_ERRNOS:
                raise
            os.rename("original", name, src_dir_fd=workshop, dst_dir_fd=where)  # no hard links here
        os.fsync(where)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- swapping it in


def _swap_in(where: int, workshop: int, twin: Twin, there: _There) -> None:
    if _kind(where, twin.folder_name) is None:
        os.rename("new", twin.folder_name, src_dir_fd=workshop, dst_dir_fd=where)
    else:
        _carry_over(there.extras, (where, twin.folder_name), (workshop, "new"))
        if _exchange(workshop, "new", where, twin.folder_name):
            os.rename("new", "old", src_dir_fd=workshop, dst_dir_fd=workshop)
        else:
            os.rename(twin.folder_name, "old", src_dir_fd=where, dst_dir_fd=workshop)
            os.rename("new", twin.folder_name, src_dir_fd=workshop, dst_dir_fd=where)
        ours = {path.rpartition("/")[2] for path in (*there.hashes, twin.manifest_path)}
        late = tuple(name for name in _names_in(workshop, "old") if name not in ours)
        _carry_over(late, (workshop, "old"), (where, twin.folder_name))
    if "/" not in twin.document:
        os.rename("document", twin.document, src_dir_fd=workshop, dst_dir_fd=where)
    os.fsync(where)


def _carry_over(names: tuple[str, ...], source: tuple[int, str], target: tuple[int, str]) -> None:
    """Give the new folder what people had added to the old one: the same files under a second name, until one goes."""
    old = os.open(source[1], _FOLDER, dir_fd=source[0])
    new = os.open(target[1], _FOLDER, dir_fd=target[0])
    try:
        for name in names:
            _carry(name, old, new)
        os.fsync(new)
    finally:
        os.close(old)
        os.close(new)


def _carry(name: str, old: int, new: int) -> None:
    kind = _kind(old, name)
    if kind is None or _kind(new, name) not in {None, "folder"}:
        return
    if kind == "folder":
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=new)
        _carry_over(tuple(_names_in(old, name)), (old, name), (new, name))
        return
    try:
        os.link(name, name, src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)
    except OSError as error:
        if error.errno in FULL_ERRNOS:
            raise
        _copy(name, old, new)


def _copy(name: str, old: int, new: int) -> None:
    if _kind(old, name) == "link":
        os.symlink(os.readlink(name, dir_fd=old), name, dir_fd=new)
        return
    with _reading(old, name) as file:
        _create(new, name, iter(lambda: file.read(CHUNK), b""))
        fd = os.open(name, _READ, dir_fd=new)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _exchange(one: int, name: str, other: int, other_name: str) -> bool:
    """Swap two names at once, where the system can."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(one, os.fsencode(name), other, os.fsencode(other_name), ctypes.c_uint(2)) == 0:
        return True
    number = ctypes.get_errno()
    if number in {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}:
        return False
    raise OSError(number, os.strerror(number))


# --- after a crash


def _clear_workshops(where: int, age: float) -> None:
    """Complete or undo what dead writers began. Holding the folder's lock, every workshop found is a dead writer's."""
    for name in _listed(where):
        if _WORKSHOP.fullmatch(name) and _kind(where, name) == "folder":
            if age and os.stat(name, dir_fd=where).st_mtime > time.time() - age:
                continue
            workshop = os.open(name, _FOLDER, dir_fd=where)
            try:
                _settle(where, workshop)
            finally:
                os.close(workshop)
            shutil.rmtree(name, ignore_errors=True, dir_fd=where)


def _settle(where: int, workshop: int) -> None:
    plan = _plan(workshop)
    if plan is None:
        return
    folder, document = plan["folder"], plan["document"]
    if _kind(where, folder) is None and _kind(workshop, "old") == "folder":
        os.rename("old", folder, src_dir_fd=workshop, dst_dir_fd=where)
    elif document and _is_file(workshop, "document") and _hash_of(where, plan["manifest_path"]) == plan["manifest"]:
        untouched = _kind(where, document) is None or _hash_of(where, document) == plan["old_document"]
        if untouched:
            os.rename("document", document, src_dir_fd=workshop, dst_dir_fd=where)
    os.fsync(where)


def _plan(workshop: int) -> dict[str, str] | None:
    try:
        with _reading(workshop, "plan.json") as file:
            plan: dict[str, str] = json.loads(file.read(CHUNK))
        names = plan["folder"], plan["document"] or plan["folder"]
        sound = all(is_twin_path(name) and "/" not in name for name in names) and is_twin_path(plan["manifest_path"])
        return plan if sound and plan.keys() >= {"old_document", "manifest"} else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


# --- the outside


def _descend(folder: Path, *, create: bool) -> int:
    fd = os.open(folder.anchor, _STEP)
    try:
        for part in folder.parts[1:]:
            inner = _step(fd, part, create=create)
            os.close(fd)
            fd = inner
        return os.open(".", _FOLDER, dir_fd=fd)
    except OSError as error:
        if error.errno in FULL_ERRNOS | {errno.EACCES, errno.EROFS}:
            raise
        raise Invalid("twin_target_invalid", why=error.strerror or "it cannot be opened") from error
    finally:
        os.close(fd)


def _step(parent: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _STEP, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return os.open(name, _STEP, dir_fd=parent)


@contextlib.contextmanager
def _locked(folder: int) -> Iterator[bool]:
    """Wait for the folder's lock. False where the file system has none: then writers are told apart by age only."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def _guarded(function: Callable[[], T]) -> T:
    try:
        return function()
    except DocmillError:
        raise
    except OSError as error:
        if error.errno in FULL_ERRNOS:
            raise StorageFull("storage_full") from error
        raise StageFailed("twin_failed", why=error.strerror or type(error).__name__) from error
