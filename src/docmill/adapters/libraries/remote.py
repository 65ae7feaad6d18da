"""What libraries elsewhere share: addresses of places, names that suit the place, and the twin's material.

An address is `<scheme>:/folder/folder`, with the names that people gave. What a place cannot spell is mapped on the
way, so that distinct names stay distinct.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final
from urllib.parse import quote
from weakref import WeakValueDictionary

from docmill.core.errors import Invalid, StageFailed
from docmill.core.twin import Twin, TwinFile, check_folder_depth, is_twin_path
from docmill.ports import Place

Assets = Callable[[str], Path] | Mapping[str, Path]

MANIFEST_NAME: Final = re.compile(r"[.]docmill([.][A-Za-z0-9-]+)?[.]json")


# --- addresses


def address_of(scheme: str, mine: tuple[str, ...], project_id: int, task_id: int, wanted: str) -> Place:
    """Where a task's twin goes: *wanted* is relative to the user's folder *mine*, or an absolute path inside it."""
    path = wanted.removeprefix(f"{scheme}:")
    names = tuple(name for name in path.split("/") if name not in {"", "."})
    if not path:
        names = (*mine, str(project_id), str(task_id))
    elif ".." in names or not path.isprintable() or "\\" in path:
        raise Invalid("twin_target_invalid", why="it has '..', a backslash or control characters")
    elif not path.startswith("/"):
        names = (*mine, *names)
    elif names[: len(mine)] != mine:
        raise Invalid("twin_target_invalid", why="it lies outside the library")
    check_folder_depth(names[len(mine) :])
    return f"{scheme}:/{'/'.join(names)}"


def names_of(scheme: str, place: Place) -> tuple[str, ...]:
    """The folders of an address. One of another library's is refused."""
    start = f"{scheme}:/"
    names = tuple(name for name in place.removeprefix(start).split("/") if name)
    if not place.startswith(start) or not {".", ".."}.isdisjoint(names) or "\0" in place:
        raise Invalid("twin_target_invalid", why=f"it is not an address of the library '{scheme}'")
    return names


def check_original(name: str) -> str:
    if not is_twin_path(name) or "/" in name:
        raise Invalid("twin_target_invalid", why="the original's name is not a file name")
    return name


# --- names


def escaped(name: str, is_bad: Callable[[str], bool]) -> str:
    """The name with bad characters as %XX. To be readable back, a % that looks like such an escape is escaped, too."""
    plain = re.sub(r"%(?=[0-9A-Fa-f]{2})", "%25", name)
    return "".join(_percent(char) if is_bad(char) else char for char in plain)


def cut(name: str, room: int) -> str:
    """The name in at most *room* UTF-16 units; a cut one carries a hash of the whole, so that it stays distinct."""
    if _units(name) <= room:
        return name
    suffix = PurePosixPath(name).suffix
    ending = suffix if len(suffix) <= 17 else ""
    mark = "~" + sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    stem = name.removesuffix(ending)[: room - len(mark) - len(ending)]
    while _units(stem) > room - len(mark) - len(ending):
        stem = stem[:-1]
    return re.sub(r"%[0-9A-Fa-f]?$", "", stem) + mark + ending


def _units(name: str) -> int:
    return len(name.encode("utf-16-le", "surrogatepass")) // 2


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def adapted(twin: Twin, name_of: Callable[[str], str]) -> Twin:
    """The twin under names that suit the place, its links included."""
    otherwise = adapted(twin.otherwise, name_of) if twin.otherwise else None
    paths = [*(file.path for file in twin.files), twin.document, twin.manifest_path]
    new = {path: "/".join(map(name_of, path.split("/"))) for path in paths}
    links = {}
    for file in twin.files:
        if new[file.path] != file.path:
            links[_url(file.path)] = _url(new[file.path])
            links[_url(file.path.rpartition("/")[2])] = _url(new[file.path].rpartition("/")[2])
    files = tuple(
        replace(file, path=new[file.path], text=relinked(file.text, links) if file.text is not None else None)
        for file in twin.files
    )
    return replace(
        twin,
        folder_name=name_of(twin.folder_name),
        document=new[twin.document],
        manifest_path=new[twin.manifest_path],
        files=files,
        manifest=replace(twin.manifest, document=new[twin.document]),
        otherwise=otherwise,
    )


def relinked(text: str, links: Mapping[str, str]) -> str:
    """Point links at other names. Where no name had to change, as nearly always, the text is left alone."""
    if not links:
        return text
    known = "|".join(map(re.escape, sorted(links, key=len, reverse=True)))
    target = re.compile(rf"""(\]\(\s*<?|\]:[ \t]*<?|=["'])({known})(?=[)>\s"'])""")
    return target.sub(lambda match: match[1] + links[match[2]], text)


def _url(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"), safe="/")


# --- material


@contextmanager
def material(file: TwinFile, assets: Assets) -> Iterator[BinaryIO]:
    """The bytes of a file of the twin. The engine's folder is not to be trusted: a link in it may point anywhere."""
    if file.text is not None:
        yield BytesIO(file.text.encode("utf-8", "replace"))
        return
    name = file.asset or ""
    try:
        path = assets(name) if callable(assets) else assets[name]
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except (KeyError, OSError) as error:
        raise StageFailed("twin_failed", why=f"the asset '{name}' is missing") from error
    with os.fdopen(fd, "rb") as stream:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise StageFailed("twin_failed", why=f"the asset '{name}' is not a file")
        yield stream


def check_digest(file: TwinFile, digest: str) -> None:
    if file.sha256 and file.sha256 != digest:
        raise StageFailed("twin_failed", why=f"the asset '{file.asset}' is not the one that was parsed")


class Turns:
    """Writers of one place in this process take turns."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def at(self, place: Place) -> asyncio.Lock:
        return self._locks.setdefault(place.casefold(), asyncio.Lock())
