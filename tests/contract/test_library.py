"""What every library promises about twins, run over each adapter; then what concerns disks."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx2
import pytest

from docmill.adapters.libraries import Shelves, disk
from docmill.adapters.libraries.disk import DiskLibrary
from docmill.adapters.libraries.graph import Graph, Patience
from docmill.adapters.libraries.objects import ObjectLibrary
from docmill.adapters.libraries.onedrive import OneDriveLibrary
from docmill.adapters.stores.local import LocalStore
from docmill.core.access import LOCAL, Owner
from docmill.core.errors import Conflict, Invalid, StageFailed, StorageFull
from docmill.core.parsed import Figure, Page, Parsed
from docmill.core.twin import Layout, Manifest, Twin, parse_manifest, plan_twin
from docmill.ports import Library
from support.graph import GraphServer
from support.waiting import read_line

T = TypeVar("T")

pytestmark = pytest.mark.anyio

LAYOUTS: list[Layout] = ["folder", "sidecar"]
AT = datetime(2026, 5, 4, tzinfo=UTC)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Spot(Protocol):
    """A place in some library, and what a person could do there. Paths are those of the twin."""

    library: Library
    place: str
    root: str

    def tree(self) -> list[str]: ...
    def read(self, path: str) -> bytes: ...
    def edit(self, path: str, data: bytes) -> None: ...
    def remove(self, path: str) -> None: ...
    def stamp(self, path: str) -> object:
        """Changes when the file is written."""
        ...

    def address(self, path: str) -> str: ...


class DiskSpot:
    def __init__(self, folder: Path) -> None:
        self.root, self.folder = str(folder), folder / "Ablage 书"
        self.library, self.place = DiskLibrary((folder,)), str(self.folder)
        self.folder.mkdir()

    def tree(self) -> list[str]:
        return tree(self.folder)

    def read(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def edit(self, path: str, data: bytes) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(data)

    def remove(self, path: str) -> None:
        (self.folder / path).unlink()

    def stamp(self, path: str) -> object:
        facts = (self.folder / path).stat()
        return facts.st_ino, facts.st_mtime_ns

    def address(self, path: str) -> str:
        return str(self.folder / path)


class OneDriveSpot:
    def __init__(self, server: GraphServer, library: OneDriveLibrary) -> None:
        self.server, self.library = server, library
        self.place, self.root = "onedrive:/Bücher/Ablage 书", "onedrive:/Bücher"

    def tree(self) -> list[str]:
        start = "Bücher/Ablage 书/"
        assert not [path for path in self.server.files() if not path.startswith("Bücher/")]
        return sorted(
            path.removeprefix(start)
            for path in self.server.files()
            if path.startswith(start) and not path.endswith(".onedrive")
        )

    def _path(self, path: str) -> str:
        return f"Bücher/Ablage 书/{path}"

    def read(self, path: str) -> bytes:
        node = self.server.node(self._path(path))
        assert node is not None
        return node.data or b""

    def edit(self, path: str, data: bytes) -> None:
        self.server.put(self._path(path), data)

    def remove(self, path: str) -> None:
        self.server.remove(self._path(path))

    def stamp(self, path: str) -> object:
        node = self.server.node(self._path(path))
        return node and (node.id, node.version)

    def address(self, path: str) -> str:
        return f"{self.place}/{path}"


class ObjectSpot:
    """Each twin is a generation; its manifest tells which."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(folder / "objects")
        self.library = ObjectLibrary(self.store)
        self.place, self.root = "objects:/Ablage 书", "objects:"
        self.start = "twins/Ablage 书/"

    def keys(self) -> dict[str, str]:
        """Path -> key, of the twins that manifests name and of whatever else is there."""
        found = [key.removeprefix(self.start) for key in self.all()]
        paths = {}
        for name in found:
            if "/@" not in name:
                paths[name] = name
            if name.endswith(".json") and "/.docmill" in name:
                folder = name.partition("/")[0]
                index = json.loads(self.fetch(name))
                for path in index["manifest"]["files"]:
                    inner = path.removeprefix(f"{folder}/") if index["manifest"]["layout"] == "folder" else path
                    paths[path] = f"{folder}/@{index['generation']}/{inner}"
        return {path: key for path, key in paths.items() if key in found}

    def all(self) -> list[str]:
        async def listed() -> list[str]:
            return [key async for key, _, _ in self.store.list(self.start)]

        return apart(listed())

    def fetch(self, name: str) -> bytes:
        return apart(self.store.read(self.start + name))

    def tree(self) -> list[str]:
        return sorted(self.keys())

    def read(self, path: str) -> bytes:
        data = self.fetch(self.keys()[path])
        is_manifest = path.endswith(".json") and "/.docmill" in path
        return json.dumps(json.loads(data)["manifest"]).encode() if is_manifest else data

    def edit(self, path: str, data: bytes) -> None:
        apart(self.store.put_bytes(self.start + self.keys().get(path, path), data))

    def remove(self, path: str) -> None:
        assert apart(self.store.delete(self.start + self.keys()[path]))

    def stamp(self, path: str) -> object:
        return self.keys()[path]

    def address(self, path: str) -> str:
        return f"{self.place}/{self.keys()[path]}"


def apart(work: Coroutine[Any, Any, T]) -> T:
    """What somebody else does meanwhile, in a loop of their own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result(60)


@pytest.fixture(params=["disk", "objects", "onedrive"])
async def spot(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Spot]:
    if request.param == "disk":
        yield DiskSpot(tmp_path)
    elif request.param == "objects":
        there = ObjectSpot(tmp_path)
        yield there
        await there.store.close()
    else:
        with GraphServer() as server:
            client = httpx2.AsyncClient(trust_env=False, timeout=10, verify=False)
            graph = Graph(
                Good(), drive="drives/d1", base=server.base, client=client, patience=Patience(first_pause=0.01)
            )
            yield OneDriveSpot(server, OneDriveLibrary(graph, "/Bücher"))
            await client.aclose()


class Good:
    async def get(self, *, fresh: bool = False) -> str:
        return "good"


@pytest.fixture
def library(tmp_path: Path) -> DiskLibrary:
    return DiskLibrary((tmp_path,))


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    folder = tmp_path / "Ablage 书"
    folder.mkdir()
    return folder


@pytest.fixture
def assets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("assets")
    for name in ("fig 1.png", "p0.png"):
        (folder / name).write_bytes(name.encode() * 100)
    return {name: folder / name for name in ("fig 1.png", "p0.png")}


def a_twin(
    word: str = "old", *, name: str = "report.pdf", layout: Layout = "folder", pages: int = 2, **changes: Any
) -> Twin:
    digest = hashlib.sha256(b"fig 1.png" * 100).hexdigest()
    parsed = Parsed(
        engine="local",
        media_type="application/pdf",
        pages=tuple(Page(n, f"# {word} {n}\n\n![x](<assets/fig 1.png>)") for n in range(pages)),
        figures=(Figure("fig 1.png", "image", "image/png", digest, 900),),
        language="en",
        facts={"page_images": ["p0.png"]},
    )
    settings: dict[str, Any] = {
        "source_sha256": hashlib.sha256(word.encode()).hexdigest(),
        "generated_by": "docmill",
        "generated_at": AT,
        "fingerprint": "local-1",
        **changes,
    }
    return plan_twin(name, parsed, layout=layout, **settings)


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def assert_whole(shelf: Path, twin: Twin) -> None:
    """Every file is there with the bytes that the manifest tells."""
    manifest = parse_manifest((shelf / twin.manifest_path).read_bytes())
    assert manifest is not None
    assert {file.path for file in twin.files} == set(manifest.files)
    assert dict(manifest.files) == {path: digest_of(shelf / path) for path in manifest.files}


def assert_sound(spot: Spot, twin: Twin) -> None:
    """Every file of the twin is there with the bytes that the manifest tells."""
    manifest = manifest_of(spot, twin)
    assert {file.path for file in twin.files} == set(manifest.files)
    assert dict(manifest.files) == {path: sha(spot.read(path)) for path in manifest.files}


def manifest_of(spot: Spot, twin: Twin) -> Manifest:
    manifest = parse_manifest(spot.read(twin.manifest_path))
    assert manifest is not None
    return manifest


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def paths_of(twin: Twin) -> list[str]:
    return sorted([twin.manifest_path, *(file.path for file in twin.files)])


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_twin_is_written_beside_its_source(spot: Spot, assets: dict[str, Path], layout: Layout) -> None:
    twin = a_twin(layout=layout)

    written = await spot.library.write(spot.place, twin, assets)

    assert (spot.address(twin.document), (), True) == (written.path, written.kept, written.replaced)
    assert paths_of(twin) == spot.tree()
    assert_sound(spot, twin)


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_new_run_replaces_the_twin(spot: Spot, assets: dict[str, Path], layout: Layout) -> None:
    await spot.library.write(spot.place, a_twin("old", layout=layout, pages=3), assets)
    new = a_twin("new", layout=layout)

    written = await spot.library.write(spot.place, new, assets)

    assert (spot.address(new.document), True) == (written.path, written.replaced)
    assert paths_of(new) == spot.tree()
    assert b"# new 0" in spot.read(new.document)
    assert_sound(spot, new)


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_the_same_twin_again_is_left_alone(spot: Spot, assets: dict[str, Path], layout: Layout) -> None:
    twin = a_twin(layout=layout)
    await spot.library.write(spot.place, twin, assets)
    before = spot.stamp(twin.document)

    again = await spot.library.write(spot.place, a_twin(layout=layout, generated_at=AT + timedelta(days=1)), assets)

    assert again.replaced is False
    assert before == spot.stamp(twin.document)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("change", [{"fingerprint": "local-2"}, {"source_sha256": "f" * 64}])
async def test_other_options_or_bytes_renew_the_manifest(
    spot: Spot, assets: dict[str, Path], layout: Layout, change: dict[str, str]
) -> None:
    await spot.library.write(spot.place, a_twin(layout=layout), assets)
    twin = a_twin(layout=layout, **change)

    written = await spot.library.write(spot.place, twin, assets)

    assert written.replaced
    assert manifest_of(spot, twin).is_current(twin.manifest.source_sha256, twin.manifest.fingerprint)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("part", ["document", "image"])
async def test_an_edited_twin_is_kept_unless_forced(
    spot: Spot, assets: dict[str, Path], layout: Layout, part: str
) -> None:
    twin = a_twin(layout=layout)
    await spot.library.write(spot.place, twin, assets)
    edited = twin.document if part == "document" else twin.files[-1].path
    spot.edit(edited, spot.read(edited) + b"my note")
    before = {path: sha(spot.read(path)) for path in spot.tree()}

    for again in (a_twin("new", layout=layout), twin):
        with pytest.raises(Conflict) as caught:
            await spot.library.write(spot.place, again, assets)
        assert ("twin_drift", spot.address(edited)) == (caught.value.code, caught.value.facts["path"])
    assert before == {path: sha(spot.read(path)) for path in spot.tree()}

    forced = await spot.library.write(spot.place, a_twin("new", layout=layout), assets, force=True)
    assert forced.replaced
    assert_sound(spot, a_twin("new", layout=layout))


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_what_people_added_is_kept(spot: Spot, assets: dict[str, Path], layout: Layout) -> None:
    twin = a_twin(layout=layout)
    await spot.library.write(spot.place, twin, assets)
    note, deep = f"{twin.folder_name}/Notiz ü.txt", f"{twin.folder_name}/sub/deep/x"
    spot.edit(note, b"mine")
    spot.edit(deep, b"deep")

    written = await spot.library.write(spot.place, a_twin("new", layout=layout), assets)

    assert ("Notiz ü.txt", "sub") == written.kept
    assert (b"mine", b"deep") == (spot.read(note), spot.read(deep))
    assert_sound(spot, a_twin("new", layout=layout))


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_deleted_part_is_written_again(spot: Spot, assets: dict[str, Path], layout: Layout) -> None:
    twin = a_twin(layout=layout)
    await spot.library.write(spot.place, twin, assets)
    spot.remove(twin.files[-1].path)

    written = await spot.library.write(spot.place, twin, assets)

    assert written.replaced
    assert_sound(spot, twin)


async def test_a_broken_manifest_is_no_obstacle_to_force(spot: Spot, assets: dict[str, Path]) -> None:
    await spot.library.write(spot.place, a_twin(), assets)
    spot.edit(a_twin().manifest_path, b"{}")

    await spot.library.write(spot.place, a_twin("new"), assets, force=True)

    assert_sound(spot, a_twin("new"))


async def test_sidecars_of_one_stem_live_side_by_side(spot: Spot, assets: dict[str, Path]) -> None:
    names = ["a.pdf", "a.docx", "a"]
    for word in ("old", "new"):
        for name in names:
            await spot.library.write(spot.place, a_twin(f"{word} {name}", name=name, layout="sidecar"), assets)

    for name, document in zip(names, ["a.en.md", "a.docx.en.md", "_a.en.md"], strict=True):
        assert f"# new {name} 0".encode() in spot.read(document)


async def test_sidecars_in_several_languages_live_side_by_side(spot: Spot, assets: dict[str, Path]) -> None:
    english, german = a_twin(layout="sidecar"), a_twin(layout="sidecar", language="de", generated_at=AT + timedelta(1))

    for twin in (english, german, a_twin("new", layout="sidecar")):
        await spot.library.write(spot.place, twin, assets)

    assert b"# new 0" in spot.read("report.en.md")
    assert_sound(spot, german)
    assert_sound(spot, a_twin("new", layout="sidecar"))


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_many_writers_leave_one_whole_twin(spot: Spot, assets: dict[str, Path], layout: Layout) -> None:
    twins = [a_twin(f"word{n}", layout=layout) for n in range(12)]

    await asyncio.gather(*(spot.library.write(spot.place, twin, assets) for twin in twins))

    assert_sound(spot, twins[0])
    assert paths_of(twins[0]) == spot.tree()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "name", ["a.b.c.pdf", "mit Leerzeichen (1).pdf", "Überblick.pdf", "报告.pdf", ".x.pdf", "..pdf"]
)
async def test_awkward_names_survive(spot: Spot, assets: dict[str, Path], layout: Layout, name: str) -> None:
    spot.edit(name, b"source")
    twin = a_twin(name=name, layout=layout)

    await spot.library.write(spot.place, twin, assets)
    await spot.library.write(spot.place, a_twin("new", name=name, layout=layout), assets)

    assert_sound(spot, a_twin("new", name=name, layout=layout))
    assert b"source" == spot.read(name)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "name", ["x" * 251 + ".pdf", "书" * 80 + ".pdf", 'a:b*?"<>|\\.pdf', "CON", "e\u0301 ﬁ.pdf", "x. "]
)
async def test_names_that_a_place_cannot_spell_still_have_twins(
    spot: Spot, assets: dict[str, Path], layout: Layout, name: str
) -> None:
    source = assets["p0.png"]
    await spot.library.keep_original(spot.place, name, source)
    first = await spot.library.write(spot.place, a_twin(name=name, layout=layout), assets)
    again = await spot.library.write(spot.place, a_twin(name=name, layout=layout), assets)
    await spot.library.keep_original(spot.place, name, source)

    assert (True, False) == (first.replaced, again.replaced)
    [manifest] = [path for path in spot.tree() if "/.docmill" in path]
    read = parse_manifest(spot.read(manifest))
    assert read is not None
    assert name == read.source_file
    assert dict(read.files) == {path: sha(spot.read(path)) for path in read.files}


@pytest.mark.parametrize("trouble", ["missing", "changed", "link"])
async def test_a_bad_asset_fails_and_keeps_the_old_twin(spot: Spot, assets: dict[str, Path], trouble: str) -> None:
    await spot.library.write(spot.place, a_twin("old"), assets)
    path = assets["fig 1.png"]
    path.unlink()
    if trouble == "changed":
        path.write_bytes(b"other")
    if trouble == "link":
        path.symlink_to("/etc/hostname")

    with pytest.raises(StageFailed) as caught:
        await spot.library.write(spot.place, a_twin("new"), assets)

    assert "twin_failed" == caught.value.code
    assert_sound(spot, a_twin("old"))
    assert not [name for name in spot.tree() if name.startswith(".docmill-")]


ANNA, OTHER_ANNA, BOB = Owner("acme", "anna"), Owner("zeta", "anna"), Owner("acme", "bob|1")


async def test_an_original_is_laid_beside_its_twin_once(spot: Spot, tmp_path_factory: pytest.TempPathFactory) -> None:
    uploads = tmp_path_factory.mktemp("uploads")
    source, other = uploads / "upload", uploads / "other"
    source.write_bytes(b"original")
    other.write_bytes(b"other")

    await asyncio.gather(*(spot.library.keep_original(spot.place, "报告.pdf", source) for _ in range(5)))

    assert b"original" == spot.read("报告.pdf")
    assert ["报告.pdf"] == spot.tree()
    with pytest.raises(Invalid) as caught:
        await spot.library.keep_original(spot.place, "报告.pdf", other)
    assert "twin_target_invalid" == caught.value.code
    assert b"original" == spot.read("报告.pdf")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b"])
async def test_an_original_s_name_is_one_name(spot: Spot, tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid):
        await spot.library.keep_original(spot.library.folder(ANNA, 7, 42, ""), name, tmp_path / "upload")


async def test_users_have_folders_of_their_own(spot: Spot) -> None:
    users = [
        ANNA,
        OTHER_ANNA,
        BOB,
        Owner("acme", "Anna"),
        Owner("ACME", "anna"),
        Owner("acme", "bob"),
        Owner("a" * 500, "b"),
    ]
    wishes = ["", "reports", "a/b c/ü"]

    folders = [spot.library.folder(who, 1, 2, wish) for who in users for wish in wishes]

    assert len(users) * 3 == len({folder.casefold() if "onedrive" in folder else folder for folder in folders})
    assert all(folder.startswith(f"{spot.root}/") for folder in folders)
    assert f"{spot.root}/acme/anna/reports" == folders[1]
    assert f"{spot.root}/acme/anna/1/2" == folders[0]
    assert f"{spot.root}/reports" == spot.library.folder(LOCAL.owner, 1, 2, "reports", is_single_user=True)
    assert f"{spot.root}/local/local/reports" == spot.library.folder(LOCAL.owner, 1, 2, "reports")
    for who, folder in zip(users, folders[1::3], strict=True):
        assert folder == spot.library.folder(who, 1, 2, folder)


@pytest.mark.parametrize("wanted", ["..", "a/../../x", "/etc", "/", "a\0", "a\nb"])
async def test_nobody_leaves_their_folder(spot: Spot, wanted: str) -> None:
    scheme = spot.root.partition(":")[0] + ":" if ":" in spot.root else ""
    for who in (ANNA, LOCAL.owner):
        for wish in (wanted, scheme + wanted):
            with pytest.raises(Invalid) as caught:
                spot.library.folder(who, 1, 2, wish)
            assert "twin_target_invalid" == caught.value.code
    for stranger in (ANNA, LOCAL.owner):
        with pytest.raises(Invalid):
            spot.library.folder(stranger, 1, 2, f"{spot.root}/acme/bob")


async def test_the_local_user_reaches_no_folder_of_others_once_there_are_others(spot: Spot) -> None:
    """A key of the tenant `local` is one among others, whatever folder it names."""
    theirs = spot.library.folder(ANNA, 1, 2, "reports")
    for wish in ("acme/anna/reports", "../../acme/anna/reports", theirs):
        with contextlib.suppress(Invalid):
            assert spot.library.folder(LOCAL.owner, 1, 2, wish).startswith(f"{spot.root}/local/local/")


async def test_a_folder_has_a_depth_limit(spot: Spot) -> None:
    for who, alone in ((ANNA, False), (LOCAL.owner, True)):
        assert spot.library.folder(who, 1, 2, "/".join("d" * 32), is_single_user=alone)
        with pytest.raises(Invalid) as caught:
            spot.library.folder(who, 1, 2, "/".join("d" * 33), is_single_user=alone)
        assert "twin_target_invalid" == caught.value.code
        assert "32 folders" in caught.value.message


async def test_shelves_go_by_the_beginning_of_an_address(tmp_path: Path, assets: dict[str, Path]) -> None:
    one, other = DiskSpot(tmp_path), ObjectSpot(tmp_path)
    shelves = Shelves({"": one.library, "objects": other.library})

    for wish, expected in (("x", f"{tmp_path}/x"), ("objects:x", "objects:/x"), ("objects:/x", "objects:/x")):
        folder = shelves.folder(LOCAL.owner, 1, 2, wish, is_single_user=True)
        await shelves.keep_original(folder, "report.pdf", assets["p0.png"])
        written = await shelves.write(folder, a_twin(), assets)
        assert expected == folder
        assert written.path.startswith(f"{expected}/_report.pdf/")
    assert f"{tmp_path}/a:b" == shelves.folder(LOCAL.owner, 1, 2, "a:b", is_single_user=True)
    with pytest.raises(Invalid):
        shelves.folder(LOCAL.owner, 1, 2, "onedrive:/x")
    await other.store.close()


# The rest concerns disks.


async def test_links_that_people_added_are_kept(library: DiskLibrary, shelf: Path, assets: dict[str, Path]) -> None:
    await library.write(shelf, a_twin(), assets)
    (shelf / "_report.pdf" / "link").symlink_to("/etc/hostname")

    written = await library.write(shelf, a_twin("new"), assets)

    assert ("link",) == written.kept
    assert "/etc/hostname" == str((shelf / "_report.pdf" / "link").readlink())


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_manifest_counts_only_with_all_its_files(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], layout: Layout
) -> None:
    twin = a_twin(layout=layout)
    await library.write(shelf, twin, assets)
    (shelf / twin.files[-1].path).unlink()

    assert await library.read_manifest(shelf / "report.pdf", layout) is None


async def test_a_person_s_own_file_is_never_overwritten(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path]
) -> None:
    (shelf / "_report.pdf").mkdir()
    (shelf / "_report.pdf" / "report.md").write_text("mine")
    (shelf / "report.en.md").write_text("mine")

    with pytest.raises(Conflict):
        await library.write(shelf, a_twin(), assets)
    sidecar = await library.write(shelf, a_twin(layout="sidecar"), assets)

    assert "report.pdf.en.md" == Path(sidecar.path).name
    assert "mine" == (shelf / "_report.pdf" / "report.md").read_text() == (shelf / "report.en.md").read_text()


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_manifest_is_found_only_where_there_is_one(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], layout: Layout
) -> None:
    assert await library.read_manifest(shelf / "report.pdf", layout) is None
    assert await library.read_manifest(shelf / "nowhere" / "report.pdf", layout) is None
    await library.write(shelf, a_twin(layout=layout), assets)
    assert await library.read_manifest(shelf / "report.pdf", layout) is not None
    assert await library.read_manifest(shelf / "report.docx", layout) is None


async def test_twins_are_told_from_sources(library: DiskLibrary, shelf: Path, assets: dict[str, Path]) -> None:
    for name in ("a.pdf", "_b.txt", "notes.md"):
        (shelf / name).write_text("x")
    (shelf / "_mine").mkdir()
    await library.write(shelf, a_twin(name="a.pdf"), assets)
    await library.write(shelf, a_twin(name="a.pdf", layout="sidecar"), assets)

    assert {"_a.pdf", ".a", "a.en.md"} == await library.ours(shelf)


async def test_the_newest_of_several_languages_is_found(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path]
) -> None:
    german = a_twin(layout="sidecar", language="de", generated_at=AT + timedelta(1))
    for twin in (a_twin(layout="sidecar"), german):
        await library.write(shelf, twin, assets)

    newest = await library.read_manifest(shelf / "report.pdf", "sidecar")
    own = await library.read_manifest(shelf / "report.pdf", "sidecar", "en")

    assert newest is not None
    assert own is not None
    assert ("de", "en") == (newest.language, own.language)


@pytest.mark.parametrize(("layout", "name"), [("folder", "_report.pdf"), ("sidecar", ".report")])
async def test_a_planted_link_is_refused(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], tmp_path: Path, layout: Layout, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (shelf / name).symlink_to(outside)

    with pytest.raises(Invalid) as caught:
        await library.write(shelf, a_twin(layout=layout), assets, force=True)

    assert "twin_target_invalid" == caught.value.code
    assert [] == tree(outside)


async def test_planted_links_inside_are_replaced_not_followed(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (shelf / "_report.pdf").mkdir()
    (shelf / "_report.pdf" / "report.md").symlink_to(victim)
    (shelf / "_report.pdf" / ".docmill.json").symlink_to(victim)

    with pytest.raises(Conflict):
        await library.write(shelf, a_twin(), assets)
    await library.write(shelf, a_twin(), assets, force=True)

    assert "precious" == victim.read_text()
    assert_whole(shelf, a_twin())


async def test_a_file_in_the_way_is_refused(library: DiskLibrary, shelf: Path, assets: dict[str, Path]) -> None:
    (shelf / "_report.pdf").write_text("mine")

    with pytest.raises(Invalid):
        await library.write(shelf, a_twin(), assets, force=True)

    assert "mine" == (shelf / "_report.pdf").read_text()


async def test_a_planted_link_does_not_take_an_original_away(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "acme").symlink_to(outside)
    (tmp_path / "upload").write_bytes(b"x")
    library = DiskLibrary((root,))

    with pytest.raises(Invalid):
        await library.keep_original(library.folder(ANNA, 1, 2, ""), "a.pdf", tmp_path / "upload")

    assert [] == tree(outside)


@pytest.mark.parametrize("target", ["outside", "link", "missing", "allowed/../outside"])
async def test_only_folders_below_the_allowed_roots_are_written(
    tmp_path: Path, assets: dict[str, Path], target: str
) -> None:
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    allowed.mkdir()
    outside.mkdir()
    (tmp_path / "link").symlink_to(outside)

    with pytest.raises(Invalid) as caught:
        await DiskLibrary((allowed,)).write(tmp_path / target, a_twin(), assets)

    assert "twin_target_invalid" == caught.value.code
    assert [] == tree(outside)


@contextlib.contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "_sync_all", fail)
        yield


async def test_a_full_or_read_only_disk_keeps_the_old_twin(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    await library.write(shelf, a_twin("old"), assets)

    for number, kind, code in ((28, StorageFull, "storage_full"), (30, StageFailed, "twin_failed")):
        with failing(monkeypatch, number), pytest.raises(kind) as caught:
            await library.write(shelf, a_twin("new"), assets)
        assert code == caught.value.code  # type: ignore[attr-defined]

    assert_whole(shelf, a_twin("old"))
    assert not [name for name in tree(shelf) if name.startswith(".docmill-")]


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_without_an_atomic_exchange_the_result_is_the_same(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], monkeypatch: pytest.MonkeyPatch, layout: Layout
) -> None:
    monkeypatch.setattr(disk, "_exchange", lambda *_: False)
    monkeypatch.setattr(os, "link", lambda *_, **__: (_ for _ in ()).throw(OSError(1, "no hard links here")))
    await library.write(shelf, a_twin("old", layout=layout), assets)
    (shelf / a_twin(layout=layout).folder_name / "extra").write_text("mine")

    written = await library.write(shelf, a_twin("new", layout=layout), assets)

    assert ("extra",) == written.kept
    assert "mine" == (shelf / a_twin(layout=layout).folder_name / "extra").read_text()
    assert_whole(shelf, a_twin("new", layout=layout))


class Died(BaseException):
    pass


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", [True, False])
def test_a_writer_may_die_at_any_step(
    tmp_path: Path, assets: dict[str, Path], monkeypatch: pytest.MonkeyPatch, layout: Layout, atomic: bool, first: bool
) -> None:
    """Stop before every rename, sync and exchange in turn; the next writer always finds or makes order."""
    old, new = a_twin("old", layout=layout), a_twin("new", layout=layout)
    library = DiskLibrary()
    exchange = disk._exchange if atomic else lambda *_: False
    for fatal in range(100):
        shelf = tmp_path / f"shelf{fatal}"
        shelf.mkdir()
        if not first:
            library._write(shelf, old, assets.__getitem__, force=False)
        with monkeypatch.context() as patch:
            steps = iter(range(fatal, -1, -1))

            def step(real: Any, steps: Iterator[int] = steps) -> Any:
                def run(*args: Any, **kwargs: Any) -> Any:
                    if next(steps, 0) == 0:
                        raise Died
                    return real(*args, **kwargs)

                return run

            patch.setattr(disk, "_exchange", step(exchange))
            patch.setattr(os, "rename", step(os.rename))
            patch.setattr(os, "fsync", step(os.fsync))
            patch.setattr(disk.shutil, "rmtree", lambda *_, **__: None)
            try:
                library._write(shelf, new, assets.__getitem__, force=False)
                survived = next(steps, 0) > 0
            except Died:
                survived = False
        if layout == "folder" and atomic:
            assert_old_or_new(shelf, old, new, first=first)
        written = library._write(shelf, new, assets.__getitem__, force=False)
        assert "# new 0" in Path(written.path).read_text()
        assert_whole(shelf, new)
        assert sorted([new.manifest_path, *(file.path for file in new.files)]) == tree(shelf)
        if survived:
            break
    assert 5 < fatal < 99


def assert_old_or_new(shelf: Path, old: Twin, new: Twin, *, first: bool) -> None:
    if not (shelf / new.folder_name).exists():
        assert first
        return
    assert_whole(shelf, old)
    text = (shelf / new.document).read_text()
    assert ("# old 0" in text) != ("# new 0" in text)


NURSERY = """
import asyncio, itertools, os, sys
from datetime import UTC, datetime
from pathlib import Path
from docmill.adapters.libraries.disk import DiskLibrary
from docmill.core.parsed import Page, Parsed
from docmill.core.twin import plan_twin

shelf, layout = Path(sys.argv[1]), sys.argv[2]

async def write_for_ever(start):
    library = DiskLibrary((shelf,))
    asset = shelf.parent / "asset.png"
    for n in itertools.count(start):
        pages = tuple(Page(i, f"# version {n}\\n" + "x" * 20_000) for i in range(6))
        parsed = Parsed("local", "application/pdf", pages, language="en", facts={"page_images": ["p.png"]})
        twin = plan_twin("report.pdf", parsed, layout=layout, source_sha256=str(n), generated_by="t",
                         generated_at=datetime(2026, 1, 1, tzinfo=UTC))
        await library.write(shelf, twin, {"p.png": asset})
        if n == start:
            print(os.getpid(), flush=True)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        asyncio.run(write_for_ever(int(line)))
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


class Nursery:
    """Brings up writers, each a process of its own that writes one version after the other until it is killed."""

    def __init__(self, shelf: Path, layout: Layout) -> None:
        shelf.mkdir()
        (shelf.parent / "asset.png").write_bytes(b"asset")
        command = [sys.executable, "-c", NURSERY, str(shelf), layout]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=60)

    @contextlib.contextmanager
    def writer(self, start: int) -> Iterator[None]:
        """A writer that has written once; in the end it is killed, whatever it is doing."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{start}\n")
        self.process.stdin.flush()
        child = int(read_line(self.process))
        try:
            yield
        finally:
            os.kill(child, signal.SIGKILL)
            assert "dead\n" == read_line(self.process)


def read_version(shelf: Path, manifest_path: str) -> str:
    manifest = parse_manifest((shelf / manifest_path).read_bytes())
    assert manifest is not None
    versions = set()
    for path, digest in manifest.files.items():
        data = (shelf / path).read_bytes()
        assert digest == hashlib.sha256(data).hexdigest(), f"{path} is not of this twin"
        versions.update(line for line in data.decode().splitlines() if line.startswith("# version"))
    assert 1 == len(versions)
    return versions.pop()


@pytest.mark.parametrize(("layout", "rounds"), [("folder", 30), ("sidecar", 10)])
def test_a_killed_writer_leaves_a_whole_twin(
    tmp_path: Path, assets: dict[str, Path], layout: Layout, rounds: int
) -> None:
    shelf = tmp_path / "shelf"
    dice = random.Random(7)
    seen = set()
    with Nursery(shelf, layout) as nursery:
        for round_ in range(rounds):
            with nursery.writer(round_ * 10_000):
                time.sleep(dice.uniform(0, 0.05))
            if layout == "folder":
                seen.add(read_version(shelf, "_report.pdf/.docmill.json"))

    DiskLibrary()._write(shelf, a_twin(layout=layout, name="other.pdf"), assets.__getitem__, force=False)

    seen.add(read_version(shelf, "_report.pdf/.docmill.json" if layout == "folder" else ".report/.docmill.en.json"))
    assert not list(shelf.glob(".docmill-*"))
    assert layout == "sidecar" or len(seen) >= rounds


def test_a_reader_always_finds_a_whole_document(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    versions = set()
    with Nursery(shelf, "folder") as nursery, nursery.writer(0):
        until = time.monotonic() + 1.0
        while time.monotonic() < until or len(versions) < 2:
            lines = (shelf / "_report.pdf" / "report.md").read_text().splitlines()
            found = [line for line in lines if line.startswith("# version")]
            assert 6 == len(found)
            assert 1 == len(set(found))
            versions.update(found)
