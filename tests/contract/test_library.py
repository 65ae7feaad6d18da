"""What every library promises about twins, run over each adapter; then what concerns disks."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from docmill.adapters.libraries import disk
from docmill.adapters.libraries.disk import DiskLibrary
from docmill.core.access import LOCAL, Owner
from docmill.core.errors import Conflict, Invalid, StageFailed, StorageFull
from docmill.core.parsed import Figure, Page, Parsed
from docmill.core.twin import Layout, Twin, parse_manifest, plan_twin

pytestmark = pytest.mark.anyio

LAYOUTS: list[Layout] = ["folder", "sidecar"]
AT = datetime(2026, 5, 4, tzinfo=UTC)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["disk"])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> DiskLibrary:
    return {"disk": lambda: DiskLibrary((tmp_path,))}[request.param]()


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    folder = tmp_path / "Ablage 书"
    folder.mkdir()
    return folder


@pytest.fixture
def assets(tmp_path: Path) -> dict[str, Path]:
    folder = tmp_path / "assets"
    folder.mkdir()
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


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_twin_is_written_beside_its_source(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], layout: Layout
) -> None:
    twin = a_twin(layout=layout)

    written = await library.write(shelf, twin, assets)

    assert (str(shelf / twin.document), (), True) == (written.path, written.kept, written.replaced)
    assert sorted([twin.manifest_path, *(file.path for file in twin.files)]) == tree(shelf)
    assert_whole(shelf, twin)


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_new_run_replaces_the_twin(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], layout: Layout
) -> None:
    await library.write(shelf, a_twin("old", layout=layout, pages=3), assets)
    new = a_twin("new", layout=layout)

    written = await library.write(shelf, new, assets)

    assert written.replaced
    assert sorted([new.manifest_path, *(file.path for file in new.files)]) == tree(shelf)
    assert "# new 0" in Path(written.path).read_text()
    assert_whole(shelf, new)


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_the_same_twin_again_is_left_alone(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], layout: Layout
) -> None:
    first = await library.write(shelf, a_twin(layout=layout), assets)
    path = Path(first.path)
    before = path.stat()

    again = await library.write(shelf, a_twin(layout=layout, generated_at=AT + timedelta(days=1)), assets)

    assert again.replaced is False
    assert (before.st_ino, before.st_mtime_ns) == (path.stat().st_ino, path.stat().st_mtime_ns)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("change", [{"fingerprint": "local-2"}, {"source_sha256": "f" * 64}])
async def test_other_options_or_bytes_renew_the_manifest(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], layout: Layout, change: dict[str, str]
) -> None:
    await library.write(shelf, a_twin(layout=layout), assets)
    twin = a_twin(layout=layout, **change)

    written = await library.write(shelf, twin, assets)

    manifest = await library.read_manifest(shelf / "report.pdf", layout)
    assert written.replaced
    assert manifest is not None
    assert manifest.is_current(twin.manifest.source_sha256, twin.manifest.fingerprint)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("part", ["document", "image"])
async def test_an_edited_twin_is_kept_unless_forced(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], layout: Layout, part: str
) -> None:
    twin = a_twin(layout=layout)
    await library.write(shelf, twin, assets)
    edited = shelf / (twin.document if part == "document" else twin.files[-1].path)
    edited.write_bytes(edited.read_bytes() + b"my note")
    before = {path: digest_of(shelf / path) for path in tree(shelf)}

    for again in (a_twin("new", layout=layout), twin):
        with pytest.raises(Conflict) as caught:
            await library.write(shelf, again, assets)
        assert ("twin_drift", str(edited)) == (caught.value.code, caught.value.facts["path"])
    assert before == {path: digest_of(shelf / path) for path in tree(shelf)}

    forced = await library.write(shelf, a_twin("new", layout=layout), assets, force=True)
    assert forced.replaced
    assert_whole(shelf, a_twin("new", layout=layout))


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_what_people_added_is_kept(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], layout: Layout
) -> None:
    twin = a_twin(layout=layout)
    await library.write(shelf, twin, assets)
    folder = shelf / twin.folder_name
    (folder / "Notiz ü.txt").write_text("mine")
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "deep" / "x").write_text("deep")
    (folder / "link").symlink_to("/etc/hostname")

    written = await library.write(shelf, a_twin("new", layout=layout), assets)

    assert ("Notiz ü.txt", "link", "sub") == written.kept
    assert ("mine", "deep") == ((folder / "Notiz ü.txt").read_text(), (folder / "sub" / "deep" / "x").read_text())
    assert "/etc/hostname" == str((folder / "link").readlink())
    assert_whole(shelf, a_twin("new", layout=layout))


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_deleted_part_is_written_again(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], layout: Layout
) -> None:
    twin = a_twin(layout=layout)
    await library.write(shelf, twin, assets)
    (shelf / twin.files[-1].path).unlink()
    assert await library.read_manifest(shelf / "report.pdf", layout) is None

    await library.write(shelf, twin, assets)

    assert_whole(shelf, twin)


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


async def test_sidecars_of_one_stem_live_side_by_side(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path]
) -> None:
    names = ["a.pdf", "a.docx", "a"]
    for word in ("old", "new"):
        written = [await library.write(shelf, a_twin(f"{word} {n}", name=n, layout="sidecar"), assets) for n in names]

    assert ["a.en.md", "a.docx.en.md", "_a.en.md"] == [Path(one.path).name for one in written]
    for name, one in zip(names, written, strict=True):
        manifest = await library.read_manifest(shelf / name, "sidecar")
        assert manifest is not None
        assert f"# new {name} 0" in Path(one.path).read_text()
        assert Path(one.path).name == manifest.document


async def test_sidecars_in_several_languages_share_their_images(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path]
) -> None:
    english, german = a_twin(layout="sidecar"), a_twin(layout="sidecar", language="de", generated_at=AT + timedelta(1))

    for twin in (english, german, a_twin("new", layout="sidecar")):
        await library.write(shelf, twin, assets)

    assert "# new 0" in (shelf / "report.en.md").read_text()
    assert_whole(shelf, german)
    newest = await library.read_manifest(shelf / "report.pdf", "sidecar")
    own = await library.read_manifest(shelf / "report.pdf", "sidecar", "en")
    assert newest is not None
    assert own is not None
    assert ("de", "en") == (newest.language, own.language)


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


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_many_writers_leave_one_whole_twin(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], layout: Layout
) -> None:
    twins = [a_twin(f"word{n}", layout=layout) for n in range(12)]

    await asyncio.gather(*(library.write(shelf, twin, assets) for twin in twins))

    assert_whole(shelf, twins[0])
    assert sorted([twins[0].manifest_path, *(file.path for file in twins[0].files)]) == tree(shelf)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "name", ["a.b.c.pdf", "mit Leerzeichen (1).pdf", "Überblick.pdf", "报告.pdf", ".x.pdf", "x" * 251 + ".pdf", "..pdf"]
)
async def test_awkward_names_survive(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], layout: Layout, name: str
) -> None:
    (shelf / name).write_bytes(b"source")
    twin = a_twin(name=name, layout=layout)

    await library.write(shelf, twin, assets)
    await library.write(shelf, a_twin("new", name=name, layout=layout), assets)

    assert_whole(shelf, a_twin("new", name=name, layout=layout))
    assert b"source" == (shelf / name).read_bytes()


@pytest.mark.parametrize("trouble", ["missing", "changed", "link"])
async def test_a_bad_asset_fails_and_keeps_the_old_twin(
    library: DiskLibrary, shelf: Path, assets: dict[str, Path], trouble: str
) -> None:
    await library.write(shelf, a_twin("old"), assets)
    path = assets["fig 1.png"]
    path.unlink()
    if trouble == "changed":
        path.write_bytes(b"other")
    if trouble == "link":
        path.symlink_to("/etc/hostname")

    with pytest.raises(StageFailed) as caught:
        await library.write(shelf, a_twin("new"), assets)

    assert "twin_failed" == caught.value.code
    assert_whole(shelf, a_twin("old"))
    assert not [name for name in tree(shelf) if name.startswith(".docmill-")]


ANNA, OTHER_ANNA, BOB = Owner("acme", "anna"), Owner("zeta", "anna"), Owner("acme", "bob|1")


async def test_an_original_is_laid_beside_its_twin_once(library: DiskLibrary, tmp_path: Path) -> None:
    source, other = tmp_path / "upload", tmp_path / "other"
    source.write_bytes(b"original")
    other.write_bytes(b"other")
    folder = Path(library.folder(ANNA, 7, 42, ""))

    await asyncio.gather(*(library.keep_original(folder, "报告.pdf", source) for _ in range(5)))

    assert b"original" == (folder / "报告.pdf").read_bytes()
    assert ["报告.pdf"] == tree(folder)
    with pytest.raises(Invalid) as caught:
        await library.keep_original(folder, "报告.pdf", other)
    assert "twin_target_invalid" == caught.value.code
    assert b"original" == (folder / "报告.pdf").read_bytes()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b"])
async def test_an_original_s_name_is_one_name(library: DiskLibrary, tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid):
        await library.keep_original(library.folder(ANNA, 7, 42, ""), name, tmp_path / "upload")


def test_users_have_folders_of_their_own(library: DiskLibrary, tmp_path: Path) -> None:
    wishes = ["", "reports", "a/b c/ü"]

    folders = [Path(library.folder(who, 1, 2, wish)) for who in (ANNA, OTHER_ANNA, BOB) for wish in wishes]

    assert 9 == len(set(folders))
    assert tmp_path / "acme" / "anna" / "reports" == folders[1]
    assert tmp_path / "acme" / "bob%7C1" / "1" / "2" == folders[6]
    assert str(tmp_path / "reports") == library.folder(LOCAL.owner, 1, 2, "reports")
    assert str(folders[1]) == library.folder(ANNA, 1, 2, str(folders[1]))


@pytest.mark.parametrize("wanted", ["..", "a/../../x", "/etc", "/", "a\0", "a\nb"])
def test_nobody_leaves_their_folder(library: DiskLibrary, tmp_path: Path, wanted: str) -> None:
    for who in (ANNA, LOCAL.owner):
        with pytest.raises(Invalid) as caught:
            library.folder(who, 1, 2, wanted)
        assert "twin_target_invalid" == caught.value.code
    with pytest.raises(Invalid):
        library.folder(ANNA, 1, 2, str(tmp_path / "acme" / "bob"))


# The rest concerns disks.


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
        self.process.communicate()

    @contextlib.contextmanager
    def writer(self, start: int) -> Iterator[None]:
        """A writer that has written once; in the end it is killed, whatever it is doing."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{start}\n")
        self.process.stdin.flush()
        child = int(self.process.stdout.readline())
        try:
            yield
        finally:
            os.kill(child, signal.SIGKILL)
            assert "dead\n" == self.process.stdout.readline()


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
        while time.monotonic() < until:
            lines = (shelf / "_report.pdf" / "report.md").read_text().splitlines()
            found = [line for line in lines if line.startswith("# version")]
            assert 6 == len(found)
            assert 1 == len(set(found))
            versions.update(found)
    assert len(versions) > 1
