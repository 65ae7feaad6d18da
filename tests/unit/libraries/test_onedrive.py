"""OneDrive on bad days: throttled, cut off, edited under our hands, restarted in the middle."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from docmill.adapters.libraries.graph import STEP, Graph, GraphError, Patience, QuickXor
from docmill.adapters.libraries.onedrive import OneDriveLibrary, onedrive_name
from docmill.core.access import LOCAL, Owner
from docmill.core.errors import Conflict, DocmillError, Invalid, StageFailed, StorageFull
from docmill.core.parsed import Figure, Page, Parsed
from docmill.core.twin import Layout, Twin, parse_manifest, plan_twin
from support.graph import GraphServer, quick_xor

pytestmark = pytest.mark.anyio

PLACE = "onedrive:/Documents"
BIG = bytes(range(256)) * 24_000  # 6 MB: an upload session


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def server() -> Any:
    with GraphServer() as server:
        yield server


@pytest.fixture
def assets(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "fig.png").write_bytes(b"figure" * 100)
    (tmp_path / "big.png").write_bytes(BIG)
    return {name: tmp_path / name for name in ("fig.png", "big.png")}


class Tokens:
    """Gives out *first*, and after a refusal *second*."""

    def __init__(self, first: str = "good", second: str = "good") -> None:
        self.first, self.second, self.asked = first, second, []  # type: ignore[var-annotated]

    async def get(self, *, fresh: bool = False) -> str:
        self.asked.append(fresh)
        if fresh:
            self.first = self.second
        return self.first


class Naps:
    """Sleeps that take no time, and are remembered."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def opened(
    server: GraphServer, tokens: Tokens | None = None, naps: Naps | None = None, **patience: Any
) -> AsyncIterator[Graph]:
    async with httpx2.AsyncClient(trust_env=False, timeout=5, verify=False) as client:
        yield Graph(
            tokens or Tokens(),
            drive="drives/d1",
            base=server.base,
            client=client,
            fragment=5 * STEP,
            sleep=naps or Naps(),
            patience=Patience(**patience),
        )


def a_twin(word: str = "old", *, layout: Layout = "folder", name: str = "report.pdf", figures: int = 1) -> Twin:
    names = ["fig.png", "big.png"][:figures]
    parsed = Parsed(
        engine="local",
        media_type="application/pdf",
        pages=(Page(0, f"# {word}\n\n![x](assets/fig.png)"),),
        figures=tuple(Figure(one, "image", "image/png", "", 1) for one in names),
        language="en",
    )
    digest = hashlib.sha256(word.encode()).hexdigest()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return plan_twin(name, parsed, layout=layout, source_sha256=digest, generated_by="docmill", generated_at=at)


def assert_whole(server: GraphServer, twin: Twin) -> None:
    files = server.files()
    manifest = parse_manifest(files[f"Documents/{twin.manifest_path}"])
    assert manifest is not None
    assert {file.path for file in twin.files} == set(manifest.files)
    there = {path: hashlib.sha256(files[f"Documents/{path}"]).hexdigest() for path in manifest.files}
    assert dict(manifest.files) == there


def left_over(server: GraphServer) -> list[str]:
    return [path for path in server.files() if ".docmill-work" in path]


# --- being patient


async def test_retry_after_is_honoured(server: GraphServer, assets: dict[str, Path]) -> None:
    naps = Naps()
    server.fail("PUT", "content", 429, headers={"Retry-After": "7"})
    server.fail("POST", "children", 503, headers={"Retry-After": "3"})
    async with opened(server, naps=naps) as graph:
        await OneDriveLibrary(graph).write(PLACE, a_twin(), assets)

    assert [3, 7] == [int(nap) for nap in naps.taken]
    assert_whole(server, a_twin())


async def test_retry_after_may_be_a_date(server: GraphServer, assets: dict[str, Path]) -> None:
    naps = Naps()
    server.fail("PUT", "content", 429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})
    server.fail("PUT", "content", 429, headers={"Retry-After": "soon"})
    async with opened(server, naps=naps) as graph:
        await OneDriveLibrary(graph).write(PLACE, a_twin(), assets)

    assert naps.taken[0] < 0.2
    assert 0.2 < naps.taken[1] <= 1.0


async def test_who_wants_too_long_a_pause_is_left_for_later(server: GraphServer, assets: dict[str, Path]) -> None:
    server.fail("PUT", "content", 429, headers={"Retry-After": "3600"})
    async with opened(server) as graph:
        with pytest.raises(StageFailed) as caught:
            await OneDriveLibrary(graph).write(PLACE, a_twin(), assets)

    assert ("twin_unavailable", True) == (caught.value.code, caught.value.retryable)


@pytest.mark.parametrize("status", [0, 500, 502, 503, 504])
async def test_faults_are_waited_out_with_growing_pauses(
    server: GraphServer, assets: dict[str, Path], status: int
) -> None:
    naps = Naps()
    server.fail("PUT", "content", status, times=4)
    async with opened(server, naps=naps, first_pause=1.0) as graph:
        await OneDriveLibrary(graph).write(PLACE, a_twin(), assets)

    assert 4 == len(naps.taken)
    for number, nap in enumerate(naps.taken):
        assert 2**number / 2 <= nap <= 2**number
    assert_whole(server, a_twin())


async def test_a_server_that_stays_down_is_given_up_and_the_stage_is_retried(
    server: GraphServer, assets: dict[str, Path]
) -> None:
    async with opened(server) as graph:
        await OneDriveLibrary(graph).write(PLACE, a_twin("old"), assets)
        server.fail("PUT", "content", 503, times=1000)
        with pytest.raises(StageFailed) as caught:
            await OneDriveLibrary(graph).write(PLACE, a_twin("new"), assets)

    assert ("twin_unavailable", True) == (caught.value.code, caught.value.retryable)
    assert_whole(server, a_twin("old"))


async def test_an_expired_token_is_renewed_once(server: GraphServer, assets: dict[str, Path]) -> None:
    tokens = Tokens("expired", "good")
    async with opened(server, tokens) as graph:
        await OneDriveLibrary(graph).write(PLACE, a_twin(), assets)

    assert [False, True] == tokens.asked[:2]
    assert 1 == tokens.asked.count(True)
    assert_whole(server, a_twin())


async def test_a_sign_in_that_is_over_is_said(server: GraphServer, assets: dict[str, Path]) -> None:
    tokens = Tokens("expired", "expired too")
    async with opened(server, tokens) as graph:
        with pytest.raises(StageFailed) as caught:
            await OneDriveLibrary(graph).write(PLACE, a_twin(), assets)

    assert "twin_unavailable" == caught.value.code
    assert "expired" not in caught.value.message
    assert 2 == len(tokens.asked)


async def test_a_full_drive_is_said(server: GraphServer, assets: dict[str, Path]) -> None:
    server.fail("PUT", "content", 507)
    async with opened(server) as graph:
        with pytest.raises(StorageFull):
            await OneDriveLibrary(graph).write(PLACE, a_twin(), assets)


async def test_a_refusal_is_not_repeated(server: GraphServer, assets: dict[str, Path]) -> None:
    server.fail("PUT", "content", 403)
    async with opened(server) as graph:
        with pytest.raises(StageFailed) as caught:
            await OneDriveLibrary(graph).write(PLACE, a_twin(), assets)

    assert ("twin_failed", 1) == (caught.value.code, server.count("PUT", "content"))


async def test_a_lost_answer_does_no_harm(server: GraphServer, assets: dict[str, Path]) -> None:
    """Whatever request it was: the work was done, the line was cut, and the request came again."""
    for layout in ("folder", "sidecar"):
        for method in ("PUT", "POST", "PATCH", "DELETE"):
            for skip in range(12):
                server.root.children.clear()
                async with opened(server) as graph:
                    library = OneDriveLibrary(graph)
                    await library.write(PLACE, a_twin("old", layout=layout), assets)
                    server.put(f"Documents/{a_twin(layout=layout).folder_name}/mine.txt", b"mine")
                    server.faults = []
                    server.fail(method, "", after=True, skip=skip)
                    written = await library.write(PLACE, a_twin("new", layout=layout), assets)
                assert written.replaced
                assert_whole(server, a_twin("new", layout=layout))
                assert b"mine" == server.files()[f"Documents/{a_twin(layout=layout).folder_name}/mine.txt"]
                assert [] == left_over(server)
                if server.faults[0].times:
                    break


# --- large files


async def test_large_files_go_up_in_fragments(server: GraphServer, assets: dict[str, Path]) -> None:
    async with opened(server) as graph:
        await OneDriveLibrary(graph).write(PLACE, a_twin(figures=2), assets)

    spans = [headers["content-range"] for method, url, headers in server.seen if "/upload/" in url and method == "PUT"]
    assert [f"bytes 0-{5 * STEP - 1}/{len(BIG)}", f"bytes {5 * STEP}-{10 * STEP - 1}/{len(BIG)}"] == spans[:2]
    assert_whole(server, a_twin(figures=2))


@pytest.mark.parametrize("status", [0, 500, 503, 429, 416])
@pytest.mark.parametrize("after", [False, True])
async def test_a_cut_session_goes_on_where_it_was(
    server: GraphServer, assets: dict[str, Path], status: int, after: bool
) -> None:
    server.fail("PUT", "/upload/", status, skip=1, after=after)
    async with opened(server) as graph:
        await OneDriveLibrary(graph).write(PLACE, a_twin(figures=2), assets)

    assert 1 == server.count("POST", "createUploadSession")
    assert 1 == server.count("GET", "/upload/")
    assert (4 if after else 5) == server.count("PUT", "/upload/")
    assert_whole(server, a_twin(figures=2))


async def test_an_expired_session_is_opened_anew(server: GraphServer, assets: dict[str, Path]) -> None:
    server.fail("PUT", "/upload/", skip=1, do=server.sessions.clear)
    async with opened(server) as graph:
        await OneDriveLibrary(graph).write(PLACE, a_twin(figures=2), assets)

    assert 2 == server.count("POST", "createUploadSession")
    assert_whole(server, a_twin(figures=2))


async def test_the_last_answer_of_a_session_may_get_lost(server: GraphServer, assets: dict[str, Path]) -> None:
    """The file is there, the session is gone: it is sent once more rather than trusted."""
    server.fail("PUT", "/upload/", skip=3, after=True)
    async with opened(server) as graph:
        await OneDriveLibrary(graph).write(PLACE, a_twin(figures=2), assets)

    assert_whole(server, a_twin(figures=2))


async def test_sessions_that_always_vanish_are_given_up(server: GraphServer, assets: dict[str, Path]) -> None:
    server.fail("PUT", "/upload/", skip=1, times=100, do=server.sessions.clear)
    async with opened(server) as graph:
        with pytest.raises(StageFailed) as caught:
            await OneDriveLibrary(graph).write(PLACE, a_twin(figures=2), assets)

    assert "twin_unavailable" == caught.value.code
    assert 3 == server.count("POST", "createUploadSession")


async def test_no_token_goes_to_upload_and_download_addresses(server: GraphServer, assets: dict[str, Path]) -> None:
    async with opened(server) as graph:
        for word in ("old", "new"):
            await OneDriveLibrary(graph).write(PLACE, a_twin(word, figures=2), assets)

    elsewhere = [headers for _, url, headers in server.seen if url.startswith(("/upload/", "/download/"))]
    assert elsewhere
    assert not [headers for headers in elsewhere if "authorization" in headers]


async def test_foreign_addresses_are_not_followed(server: GraphServer) -> None:
    async with opened(server) as graph:
        for url in ("file:///etc/passwd", "", "https://evil.example/x"):
            with pytest.raises(GraphError):
                graph._foreign(url)


async def test_long_folders_come_in_pages(server: GraphServer) -> None:
    server.page = 10
    for number in range(35):
        server.put(f"many/{number}.txt", b"x")
    async with opened(server) as graph:
        folder = await graph.find(("many",))
        assert folder is not None
        assert [f"{number}.txt" for number in range(35)] == [item.name for item in await graph.children(folder.id)]


# --- people


async def test_an_edit_while_we_upload_is_kept(server: GraphServer, assets: dict[str, Path]) -> None:
    for layout in ("folder", "sidecar"):
        document = f"Documents/{a_twin(layout=layout).document}"
        async with opened(server) as graph:
            library = OneDriveLibrary(graph)
            await library.write(PLACE, a_twin("old", layout=layout), assets)
            server.fail("PUT", "plan.json", do=lambda path=document: server.put(path, b"edited just now"))  # type: ignore[misc]
            with pytest.raises(Conflict):
                await library.write(PLACE, a_twin("new", layout=layout), assets)

        assert b"edited just now" == server.files()[document]


async def test_a_file_added_while_we_upload_is_kept(server: GraphServer, assets: dict[str, Path]) -> None:
    async with opened(server) as graph:
        library = OneDriveLibrary(graph)
        await library.write(PLACE, a_twin("old"), assets)
        server.fail("PATCH", "", do=lambda: server.put("Documents/_report.pdf/late.txt", b"late") and None)
        await library.write(PLACE, a_twin("new"), assets)

    assert b"late" == server.files()["Documents/_report.pdf/late.txt"]
    assert_whole(server, a_twin("new"))
    assert [] == left_over(server)


async def test_edits_are_found_without_the_server_s_hashes(server: GraphServer, assets: dict[str, Path]) -> None:
    server.with_hashes = False
    async with opened(server) as graph:
        library = OneDriveLibrary(graph)
        await library.write(PLACE, a_twin("old"), assets)
        assert not (await library.write(PLACE, a_twin("old"), assets)).replaced
        server.put("Documents/_report.pdf/fig.png", b"painted over")
        with pytest.raises(Conflict):
            await library.write(PLACE, a_twin("new"), assets)


async def test_a_twin_that_came_by_syncing_is_known_as_ours(server: GraphServer, assets: dict[str, Path]) -> None:
    """Written by docmill on a disk that OneDrive syncs: there is a manifest, but no record of OneDrive's hashes."""
    async with opened(server) as graph:
        library = OneDriveLibrary(graph)
        await library.write(PLACE, a_twin("old"), assets)
        server.remove("Documents/_report.pdf/.docmill.json.onedrive")
        assert not (await library.write(PLACE, a_twin("old"), assets)).replaced
        assert (await library.write(PLACE, a_twin("new"), assets)).replaced

    assert_whole(server, a_twin("new"))


async def test_an_untouched_twin_is_not_fetched_to_be_known(server: GraphServer, assets: dict[str, Path]) -> None:
    async with opened(server) as graph:
        library = OneDriveLibrary(graph)
        await library.write(PLACE, a_twin(figures=2), assets)
        server.seen.clear()
        await library.write(PLACE, a_twin(figures=2), assets)

    fetched = [server.by_id(url.rpartition("/")[2]).name for _, url, _ in server.seen if "/download/" in url]
    assert {".docmill.json", ".docmill.json.onedrive"} == set(fetched)


async def test_case_makes_no_difference_to_onedrive(server: GraphServer, assets: dict[str, Path]) -> None:
    async with opened(server) as graph:
        library = OneDriveLibrary(graph)
        await library.write(PLACE, a_twin(name="Report.pdf"), assets)
        with pytest.raises(Invalid) as caught:
            await library.write(PLACE, a_twin("other", name="report.PDF"), assets, force=True)

    assert "twin_target_invalid" == caught.value.code
    assert b"# old" in server.files()["Documents/_Report.pdf/Report.md"]


async def test_a_person_s_own_file_is_never_overwritten(server: GraphServer, assets: dict[str, Path]) -> None:
    server.put("Documents/_report.pdf/report.md", b"mine")
    server.put("Documents/report.en.md", b"mine")
    async with opened(server) as graph:
        library = OneDriveLibrary(graph)
        with pytest.raises(Conflict):
            await library.write(PLACE, a_twin(), assets)
        sidecar = await library.write(PLACE, a_twin(layout="sidecar"), assets)

    assert f"{PLACE}/report.pdf.en.md" == sidecar.path
    assert b"mine" == server.files()["Documents/_report.pdf/report.md"] == server.files()["Documents/report.en.md"]


async def test_a_file_in_the_way_is_refused(server: GraphServer, assets: dict[str, Path]) -> None:
    server.put("Documents/_report.pdf", b"mine")
    async with opened(server) as graph:
        with pytest.raises(Invalid):
            await OneDriveLibrary(graph).write(PLACE, a_twin(), assets, force=True)
        with pytest.raises(Invalid):
            await OneDriveLibrary(graph).write(f"{PLACE}/_report.pdf/x", a_twin(), assets)

    assert {"Documents/_report.pdf": b"mine"} == server.files()


async def test_an_original_that_sharepoint_changed_is_still_known(server: GraphServer, tmp_path: Path) -> None:
    server.office = {".docx": b"<properties/>"}
    source, other = tmp_path / "source", tmp_path / "other"
    source.write_bytes(b"document")
    other.write_bytes(b"another")
    async with opened(server) as graph:
        library = OneDriveLibrary(graph)
        for _ in range(2):
            await library.keep_original(PLACE, "a.docx", source)
        with pytest.raises(Invalid):
            await library.keep_original(PLACE, "a.docx", other)
        server.put("Documents/a.docx", b"edited by a person")
        with pytest.raises(Invalid):
            await library.keep_original(PLACE, "a.docx", source)


# --- crashes


@pytest.mark.parametrize("layout", ["folder", "sidecar"])
@pytest.mark.parametrize("then", ["the same", "another later", "another at once"])
async def test_a_writer_may_die_at_any_request(
    server: GraphServer, assets: dict[str, Path], layout: Layout, then: str
) -> None:
    """Cut the line for good before every request in turn. The same twin again, or another one, makes order."""
    old, new, third = (a_twin(word, layout=layout) for word in ("old", "new", "third"))
    folder = f"Documents/{old.folder_name}"
    for fatal in range(100):
        server.root.children.clear()
        async with opened(server) as graph:
            await OneDriveLibrary(graph).write(PLACE, old, assets)
        server.put(f"{folder}/mine.txt", b"mine")
        server.allowed = fatal
        async with opened(server, tries=1) as graph:
            [outcome] = await asyncio.gather(OneDriveLibrary(graph).write(PLACE, new, assets), return_exceptions=True)
        server.allowed = None
        survived = not isinstance(outcome, BaseException)
        assert survived or "twin_unavailable" == getattr(outcome, "code", outcome)
        if then == "another later":
            server.grow_old()
        last = new if then == "the same" else third
        async with opened(server) as graph:
            await OneDriveLibrary(graph).write(PLACE, last, assets)
        assert_whole(server, last)
        if then == "another at once":
            server.grow_old()
            last = a_twin("fourth", layout=layout)
            async with opened(server) as graph:
                await OneDriveLibrary(graph).write(PLACE, last, assets)
            assert_whole(server, last)
        assert b"mine" == server.files()[f"{folder}/mine.txt"], fatal
        assert [] == left_over(server), fatal
        if survived:
            break
    assert 15 < fatal < 99


async def test_what_is_up_already_is_not_sent_again(server: GraphServer, assets: dict[str, Path]) -> None:
    server.fail("PUT", "plan.json", 403)
    async with opened(server) as graph:
        with pytest.raises(StageFailed):
            await OneDriveLibrary(graph).write(PLACE, a_twin(figures=2), assets)
    assert 1 == server.count("POST", "createUploadSession")

    async with opened(server) as graph:
        await OneDriveLibrary(graph).write(PLACE, a_twin(figures=2), assets)

    assert 1 == server.count("POST", "createUploadSession")
    assert_whole(server, a_twin(figures=2))


async def test_a_planted_plan_moves_nothing_out_of_the_library(server: GraphServer, assets: dict[str, Path]) -> None:
    plan = {
        "place": ["Private"],
        "folder": "stolen",
        "document": "",
        "old_document": "",
        "manifest_path": "stolen/.docmill.json",
        "manifest": "",
        "ours": ["diary.txt"],
    }
    server.put("Private/diary.txt", b"private")
    for number, text in enumerate([json.dumps(plan), "[]", "{", json.dumps(plan | {"place": ["Documents", ".."]})]):
        server.put(f"Documents/.docmill-work/docmill-{number:016x}/plan.json", text.encode())
        server.put(f"Documents/.docmill-work/docmill-{number:016x}/old-1/diary.txt", b"kept")
    server.grow_old()
    async with opened(server) as graph:
        await OneDriveLibrary(graph, "/Documents").write(PLACE, a_twin(), assets)

    assert b"private" == server.files()["Private/diary.txt"]
    assert 4 == len([path for path in server.files() if path.endswith("old-1/diary.txt")])


async def test_two_processes_may_write_the_same_place(server: GraphServer, assets: dict[str, Path]) -> None:
    """Two libraries do not know of each other's turns."""
    async with opened(server) as one, opened(server) as other:
        libraries = [OneDriveLibrary(one), OneDriveLibrary(other)]
        outcomes = await asyncio.gather(
            *(
                library.write(PLACE, a_twin(f"{turn}{number}"), assets)
                for turn in range(4)
                for number, library in enumerate(libraries)
            ),
            return_exceptions=True,
        )

    assert [] == [one for one in outcomes if isinstance(one, BaseException) and not _is_retryable(one)]
    assert_whole(server, a_twin())


def _is_retryable(error: BaseException) -> bool:
    return isinstance(error, DocmillError) and error.retryable


# --- names


ODD = ["a:b", "a%3Ab", "a?b", "100%", "a%b", " x", "x ", "x.", "x..", "CON", "con.txt", "LPT1", ".lock", "desktop.ini"]
ODD += ["~$x.docx", "_vti_", "a_VTI_b", "a\\b", 'q"', "a|b", "a*b", "<a>", "a\x01b", "a\x7fb", "%CON", "a%25b", "%2541"]


def test_odd_names_become_names_that_onedrive_takes() -> None:
    server = GraphServer()
    names = [onedrive_name(name) for name in ODD]
    for name in names:
        server.check_name(server.root, name)
    server._server.server_close()

    assert len(ODD) == len({name.casefold() for name in names})
    assert "a%3Ab" == onedrive_name("a:b")
    for name in ("plain.pdf", "100%.pdf", "Über 书.pdf", ".hidden", "a#b&c.pdf"):
        assert name == onedrive_name(name)


@pytest.mark.parametrize("char", ["x", "书", "😀", ":"])
def test_long_names_are_cut_and_stay_distinct(char: str) -> None:
    names = [onedrive_name(char * 300 + end, 100) for end in ("a.pdf", "b.pdf", "a.docx")]

    assert 3 == len(set(names))
    assert all(len(name.encode("utf-16-le")) // 2 <= 100 for name in names)
    assert [".pdf", ".pdf", ".docx"] == [Path(name).suffix for name in names]


async def test_links_follow_a_name_that_had_to_change(server: GraphServer, tmp_path: Path) -> None:
    long = "f" * 240 + ".png"
    (tmp_path / "x").write_bytes(b"picture")
    figure = Figure(long, "image", "image/png", "", 7)
    parsed = Parsed("local", "application/pdf", (Page(0, f"![x](assets/{long})"),), (figure,), language="en")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    twin = plan_twin("r.pdf", parsed, layout="folder", source_sha256="", generated_by="docmill", generated_at=at)
    async with opened(server) as graph:
        await OneDriveLibrary(graph).write(PLACE, twin, {long: tmp_path / "x"})

    [image] = [path for path in server.files() if path.endswith(".png")]
    text = server.files()["Documents/_r.pdf/r.md"].decode()
    assert f"]({image.rpartition('/')[2]})" in text


@pytest.mark.parametrize("wanted", ["a:b", "CON", "x.", "_vti_cnf", "a" * 400, "/".join(["long folder"] * 30)])
async def test_folders_that_onedrive_cannot_have_are_refused_at_once(server: GraphServer, wanted: str) -> None:
    async with opened(server) as graph:
        for wish in (wanted, f"onedrive:/{wanted}"):
            with pytest.raises(Invalid):
                OneDriveLibrary(graph).folder(LOCAL.owner, 1, 2, wish, is_single_user=True)


async def test_users_who_differ_by_case_only_have_different_folders(server: GraphServer) -> None:
    users = ["anna", "Anna", "ANNA", "CON", "con", "a.", "a ", "b|c", "x" * 300]
    async with opened(server) as graph:
        library = OneDriveLibrary(graph, "/docmill")
        folders = [library.folder(Owner("t", user), 1, 2, "x").casefold() for user in users]

    assert len(users) == len(set(folders))
    assert all(folder.startswith("onedrive:/docmill/t/") for folder in folders)


# --- the hash


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "AAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        (b"\x4a", "SgAAAAAAAAAAAAAAAQAAAAAAAAA="),
        (b"\xb5\xb4", "taAFAAAAAAAAAAAAAgAAAAAAAAA="),
    ],
)
def test_known_hashes(data: bytes, expected: str) -> None:
    hasher = QuickXor()
    hasher.update(data)
    assert expected == hasher.value()


@pytest.mark.parametrize("size", [1, 19, 20, 21, 159, 160, 161, 320, 1000, 4097])
@pytest.mark.parametrize("step", [1, 7, 160, 5000])
def test_the_hash_is_the_same_in_any_pieces(size: int, step: int) -> None:
    data = hashlib.shake_128(str(size).encode()).digest(size)
    hasher = QuickXor()
    for at in range(0, size, step):
        hasher.update(data[at : at + step])

    assert quick_xor(data) == hasher.value()
