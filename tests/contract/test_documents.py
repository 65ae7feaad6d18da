"""What every repository of documents promises, on every database, and the bytes that go with it."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from docmill.adapters.sql.database import Database
from docmill.adapters.sql.documents import ROWS_AT_ONCE, SqlDocuments
from docmill.adapters.sql.statement import Op, Statement
from docmill.adapters.stores.local import LocalStore
from docmill.contracts import Asset, NormalizedDocument
from docmill.core.access import Principal
from docmill.core.errors import BadRequest, Conflict, DocmillError, Forbidden, Invalid, NotFound
from docmill.ports import Ports
from docmill.work import documents as work
from support.databases import KINDS, open_database, url_of

WHO = Principal(user="anna", tenant="acme")
T0 = datetime(2024, 5, 2, 10, 15, tzinfo=UTC)
SHA = sha256(b"Hello").hexdigest()
FILE = {"type": "file", "uri": "memory://blob-42", "sha256": SHA, "size": 5}
INLINE = {
    "type": "inline",
    "media_type": "text/plain",
    "base64": base64.b64encode(b"Hello").decode(),
    "sha256": SHA,
    "size": 5,
}


def an_asset(document_id: UUID, asset_id: UUID | None = None, *, tenant: str = "acme", **more: Any) -> dict[str, Any]:
    ref = {
        "tenant_id": tenant,
        "workflow_id": "w",
        "asset_id": str(asset_id or uuid4()),
        "document_id": str(document_id),
    }
    return {
        "ref": ref,
        "media_type": "text/plain",
        "blob": FILE,
        "caption_method": "none",
        "created_at": T0.isoformat(),
        "checksum": SHA,
        **more,
    }


def a_document(
    document_id: UUID | None = None,
    *,
    tenant: str = "acme",
    version: str | None = None,
    collection: UUID | None = None,
    age_s: float = 0,
    blob: dict[str, Any] = FILE,
    assets: int | list[dict[str, Any]] = 0,
    **meta: Any,
) -> NormalizedDocument:
    document_id = document_id or uuid4()
    made = [an_asset(document_id, tenant=tenant) for _ in range(assets)] if isinstance(assets, int) else assets
    names = {"tenant_id": tenant, "workflow_id": "w"}
    return NormalizedDocument.model_validate(
        {
            "ref": {**names, "document_id": document_id, "collection_id": collection, "version": version},
            "meta": {**names, **meta},
            "blob": blob,
            "checksum": SHA,
            "created_at": T0 - timedelta(seconds=age_s),
            "source": "upload",
            "assets": made,
        }
    )


@pytest.fixture(params=KINDS)
async def databases(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Database, Database]]:
    url = url_of(request.param, request)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_database(request.param, tmp_path, url))
        yield first, await stack.enter_async_context(open_database(request.param, tmp_path, url))


@pytest.fixture
def documents(databases: tuple[Database, Database]) -> SqlDocuments:
    return SqlDocuments(databases[0])


@pytest.fixture
async def ports(documents: SqlDocuments, tmp_path: Path) -> AsyncIterator[Ports]:
    store = LocalStore(tmp_path / "objects")
    yield cast(Ports, SimpleNamespace(documents=documents, store=store))
    await store.close()


async def test_a_document_comes_back_as_it_was_put(documents: SqlDocuments) -> None:
    document = a_document(
        version="v1", collection=uuid4(), assets=150, title="Übersicht 发票", tags=["b", "a"], external_ref={"x": "1"}
    )

    assert await documents.put(document)

    assert document == await documents.get("acme", document.ref.document_id)
    assert document == await documents.get("acme", document.ref.document_id, "v1")


async def test_putting_the_same_again_changes_nothing(documents: SqlDocuments) -> None:
    document = a_document(assets=2, external_ref={"a": "1", "b": "2"})
    same = a_document(
        document.ref.document_id,
        assets=[asset.model_dump() for asset in document.assets],
        external_ref={"b": "2", "a": "1"},
    )

    assert await documents.put(document)
    assert not await documents.put(document)
    assert not await documents.put(same)


async def test_other_content_under_the_same_key_is_a_conflict(documents: SqlDocuments) -> None:
    document = a_document(version="1")
    await documents.put(document)

    for other in (
        a_document(document.ref.document_id, version="1", title="other"),
        a_document(document.ref.document_id, version="1", assets=1),
    ):
        with pytest.raises(Conflict) as caught:
            await documents.put(other)
        assert "document_exists" == caught.value.code

    assert document == await documents.get("acme", document.ref.document_id)


async def test_latest_is_the_newest_created_not_the_last_put(documents: SqlDocuments) -> None:
    number = uuid4()
    newest, older, oldest = (a_document(number, version=v, age_s=s) for v, s in (("a", 0), ("c", 1), (None, 2)))
    for document in (oldest, newest, older):
        await documents.put(document)

    assert newest == await documents.get("acme", number)
    assert oldest == await documents.get("acme", number, "")
    assert [newest, older, oldest] == await documents.versions("acme", number)


async def test_of_equal_ages_the_higher_version_is_the_latest(documents: SqlDocuments) -> None:
    number = uuid4()
    for version in ("v2", "v3", "v1"):
        await documents.put(a_document(number, version=version))

    latest = await documents.get("acme", number)

    assert latest
    assert "v3" == latest.ref.version


async def test_each_version_keeps_its_own_assets(documents: SqlDocuments) -> None:
    number, shared = uuid4(), uuid4()
    first = a_document(number, version="1", age_s=1, assets=[an_asset(number, shared), an_asset(number)])
    said_more = an_asset(number, shared, text_description="a chart")
    second = a_document(number, version="2", assets=[an_asset(number), said_more])
    await documents.put(first)
    await documents.put(second)

    assert first == await documents.get("acme", number, "1")
    assert second == await documents.get("acme", number, "2")
    assert [second, first] == await documents.versions("acme", number)
    asset = await documents.get_asset("acme", shared)
    assert asset
    assert "a chart" == asset.text_description


async def test_a_tenant_never_sees_anothers_rows(documents: SqlDocuments) -> None:
    document = a_document(assets=1, collection=uuid4())
    await documents.put(document)
    number, asset = document.ref.document_id, document.assets[0].ref.asset_id

    assert await documents.get("other", number) is None
    assert [] == await documents.versions("other", number)
    assert await documents.get_asset("other", asset) is None
    assert ([], None) == await documents.list("other", collection_id=document.ref.collection_id, limit=9, after=None)
    assert not await documents.delete("other", number, hard=True)
    assert not await documents.delete_asset("other", asset, hard=True)
    with pytest.raises(NotFound):
        await documents.list_assets("other", number, limit=9, after=None)

    assert await documents.put(a_document(number, tenant="other", assets=[an_asset(number, asset, tenant="other")]))
    assert document == await documents.get("acme", number)


async def test_an_asset_id_belongs_to_one_document(documents: SqlDocuments) -> None:
    document = a_document(assets=1)
    await documents.put(document)
    number, taken = uuid4(), document.assets[0].ref.asset_id

    with pytest.raises(Conflict) as caught:
        await documents.put(a_document(number, assets=[an_asset(number), an_asset(number, taken)]))

    assert "asset_conflict" == caught.value.code
    assert await documents.get("acme", number) is None


async def test_a_document_cannot_have_an_asset_twice(documents: SqlDocuments) -> None:
    number, twice = uuid4(), uuid4()

    with pytest.raises(Invalid):
        await documents.put(a_document(number, assets=[an_asset(number, twice), an_asset(number, twice)]))


async def test_what_is_not_strictly_consistent_is_not_stored(documents: SqlDocuments) -> None:
    document = a_document().model_copy(update={"checksum": "0" * 64})

    with pytest.raises(Invalid) as caught:
        await documents.put(document)

    assert "contract_violated" == caught.value.code
    assert ["document_checksum_mismatch"] == [error["code"] for error in caught.value.facts["errors"]]


async def test_soft_delete_hides_and_putting_the_same_again_brings_back(documents: SqlDocuments) -> None:
    document = a_document(assets=1, version="1")
    number, asset = document.ref.document_id, document.assets[0].ref.asset_id
    await documents.put(document)

    assert await documents.delete("acme", number)
    assert not await documents.delete("acme", number)

    assert await documents.get("acme", number) is None
    assert await documents.get("acme", number, "1") is None
    assert [] == await documents.versions("acme", number)
    assert await documents.get_asset("acme", asset) is None
    assert not await documents.delete_asset("acme", asset)
    assert ([], None) == await documents.list("acme", collection_id=None, limit=9, after=None)
    with pytest.raises(Conflict):
        await documents.put(a_document(number, version="1", title="other"))
    assert await documents.put(document)
    assert document == await documents.get("acme", number)
    assert document.assets[0] == await documents.get_asset("acme", asset)


async def test_deleting_one_version_leaves_the_others(documents: SqlDocuments) -> None:
    number = uuid4()
    old, new = a_document(number, version="1", age_s=1), a_document(number, version="2")
    for document in (old, new):
        await documents.put(document)

    assert await documents.delete("acme", number, version="2")
    assert old == await documents.get("acme", number)
    assert not await documents.delete("acme", number, version="3")


@pytest.mark.parametrize("was_hidden", [False, True])
async def test_hard_delete_leaves_no_row(
    databases: tuple[Database, Database], documents: SqlDocuments, was_hidden: bool
) -> None:
    number, shared = uuid4(), uuid4()
    old = a_document(number, version="1", age_s=1, assets=[an_asset(number, shared), an_asset(number)])
    new = a_document(number, version="2", assets=[an_asset(number, shared)])
    for document in (old, new):
        await documents.put(document)
    if was_hidden:
        await documents.delete("acme", number)

    assert await documents.delete("acme", number, version="1", hard=True)
    assert [[str(shared)]] == await _rows(databases[0], "SELECT asset_id FROM assets")
    assert await documents.delete("acme", number, hard=True)

    for table in ("documents", "assets", "document_assets"):
        assert [] == await _rows(databases[0], f"SELECT 1 FROM {table}")


@pytest.mark.parametrize("within", [True, False])
async def test_pages_are_newest_first_and_lose_nothing(documents: SqlDocuments, within: bool) -> None:
    collection = uuid4()
    ages = [3, 0, 0, 0, 7, 5, 5, 1]
    put = [a_document(collection=collection, age_s=age, assets=index % 3) for index, age in enumerate(ages)]
    versions = [a_document(put[0].ref.document_id, version=v, collection=collection, age_s=3) for v in "ab"]
    elsewhere = [a_document(age_s=2, collection=uuid4()), a_document(age_s=2)]
    for document in put + versions + elsewhere:
        await documents.put(document)
    expected = put + versions + ([] if within else elsewhere)

    found: list[NormalizedDocument] = []
    cursor: str | None = None
    while True:
        page, cursor = await documents.list("acme", collection_id=collection if within else None, limit=3, after=cursor)
        found += page
        if cursor is None:
            break

    key = [(one.created_at, str(one.ref.document_id), one.ref.version or "") for one in found]
    assert sorted(key, reverse=True) == key
    by_key = {(one.ref.document_id, one.ref.version): one for one in expected}
    assert by_key == {(one.ref.document_id, one.ref.version): one for one in found}
    assert len(expected) == len(found)


async def test_a_page_is_not_disturbed_by_what_is_put_before_it(documents: SqlDocuments) -> None:
    old = [a_document(age_s=age) for age in range(1, 5)]
    for document in old:
        await documents.put(document)
    first, cursor = await documents.list("acme", collection_id=None, limit=2, after=None)
    await documents.put(a_document())

    second, end = await documents.list("acme", collection_id=None, limit=2, after=cursor)

    assert old == first + second
    assert end is None


async def test_a_cursor_is_good_for_its_own_list_only(documents: SqlDocuments) -> None:
    collection = uuid4()
    for _ in range(3):
        await documents.put(a_document(collection=collection, assets=2))
        await documents.put(a_document(collection=collection, tenant="other"))
    _, cursor = await documents.list("acme", collection_id=collection, limit=1, after=None)
    assert cursor
    flipped = [cursor[:i] + ("A" if cursor[i] != "A" else "B") + cursor[i + 1 :] for i in range(len(cursor))]

    for tenant, within, after in [
        ("other", collection, cursor),
        ("acme", None, cursor),
        ("acme", uuid4(), cursor),
        *(
            ("acme", collection, text)
            for text in (*flipped, "", "x", "ü", "\0", cursor + "=", cursor + "A", "A" * 9999)
        ),
    ]:
        with pytest.raises(BadRequest) as caught:
            await documents.list(tenant, collection_id=within, limit=1, after=after)
        assert "cursor_invalid" == caught.value.code
    with pytest.raises(BadRequest):
        page, _ = await documents.list("acme", collection_id=collection, limit=1, after=None)
        await documents.list_assets("acme", page[0].ref.document_id, limit=1, after=cursor)


async def test_the_assets_of_a_document_page_by_page(documents: SqlDocuments) -> None:
    document = a_document(assets=5)
    await documents.put(document)
    number = document.ref.document_id

    first, cursor = await documents.list_assets("acme", number, limit=3, after=None)
    await documents.put(a_document(number, version="newer", age_s=-1))
    second, end = await documents.list_assets("acme", number, limit=3, after=cursor)

    assert document.assets == first + second
    assert end is None
    assert ([], None) == await documents.list_assets("acme", number, limit=3, after=None)


async def test_an_asset_joins_the_latest_version_of_its_document(documents: SqlDocuments) -> None:
    collection, number = uuid4(), uuid4()
    old = a_document(number, version="1", age_s=1, collection=collection)
    new = a_document(number, version="2", collection=collection, assets=1)
    for document in (old, new):
        await documents.put(document)
    late = Asset.model_validate(an_asset(number))

    assert await documents.put_asset(late)
    assert not await documents.put_asset(late)

    found = await documents.get("acme", number)
    assert found
    kept = found.assets[-1]
    assert collection == kept.ref.collection_id
    assert kept == await documents.get_asset("acme", late.ref.asset_id)
    assert old == await documents.get("acme", number, "1")
    assert not await documents.put(new), "what was put is still the same document"


async def test_an_asset_may_say_more_later(documents: SqlDocuments) -> None:
    document = a_document(assets=2)
    await documents.put(document)
    captioned = document.assets[0].model_copy(update={"text_description": "a chart"})

    assert not await documents.put_asset(captioned)

    found = await documents.get("acme", document.ref.document_id)
    assert found
    assert [captioned, document.assets[1]] == found.assets


async def test_an_asset_needs_its_document_and_must_fit(documents: SqlDocuments) -> None:
    document, other = a_document(assets=1), a_document()
    await documents.put(document)
    await documents.put(other)

    def put(**ref: Any) -> Any:
        asset = an_asset(document.ref.document_id)
        asset["ref"].update(ref)
        return documents.put_asset(Asset.model_validate(asset))

    for call, code in [
        (put(document_id=str(uuid4())), "document_missing"),
        (put(tenant_id="other"), "document_missing"),
        (
            put(asset_id=document.assets[0].ref.asset_id, document_id=str(other.ref.document_id)),
            "asset_conflict",
        ),
    ]:
        with pytest.raises(Conflict) as conflict:
            await call
        assert code == conflict.value.code
    for call, code in [
        (put(workflow_id="other"), "asset_workflow_mismatch"),
    ]:
        with pytest.raises(Invalid) as invalid:
            await call
        assert [code] == [error["code"] for error in invalid.value.facts["errors"]]


@pytest.mark.parametrize("hard", [False, True])
async def test_a_deleted_asset_is_gone_from_its_document(documents: SqlDocuments, hard: bool) -> None:
    document = a_document(assets=2)
    await documents.put(document)
    gone = document.assets[0]

    assert await documents.delete_asset("acme", gone.ref.asset_id, hard=hard)
    assert not await documents.delete_asset("acme", gone.ref.asset_id, hard=hard)

    assert await documents.get_asset("acme", gone.ref.asset_id) is None
    found = await documents.get("acme", document.ref.document_id)
    assert found
    assert document.assets[1:] == found.assets
    assert await documents.put_asset(gone)
    assert gone == await documents.get_asset("acme", gone.ref.asset_id)


async def test_of_many_puts_of_one_key_one_is_new(databases: tuple[Database, Database]) -> None:
    both = [SqlDocuments(database) for database in databases]
    for _ in range(20):
        document = a_document(assets=3)

        news = await asyncio.gather(*(both[i % 2].put(document) for i in range(10)))

        assert [False] * 9 + [True] == sorted(news)
        assert document == await both[0].get("acme", document.ref.document_id)


async def test_puts_assets_and_deletions_at_once_leave_whole_documents(databases: tuple[Database, Database]) -> None:
    both = [SqlDocuments(database) for database in databases]
    for _ in range(30):
        number, shared = uuid4(), uuid4()
        old = a_document(number, version="1", age_s=1, assets=[an_asset(number, shared)])
        new = a_document(number, version="2", assets=[an_asset(number, shared), an_asset(number)])
        await both[0].put(old)

        outcomes = await asyncio.gather(
            both[0].delete("acme", number, version="1", hard=True),
            both[1].put(new),
            both[0].put_asset(Asset.model_validate(an_asset(number))),
            both[1].put_asset(Asset.model_validate(an_asset(number))),
            return_exceptions=True,
        )

        assert [True, True] == outcomes[:2]
        assert all(one is True or isinstance(one, Conflict) for one in outcomes[2:])
        found = await both[0].get("acme", number)
        assert found
        assert new.assets == found.assets[:2], "no asset of the new version went with the old one"


async def test_two_documents_that_want_the_same_assets_do_not_lock_each_other_out(
    databases: tuple[Database, Database],
) -> None:
    both = [SqlDocuments(database) for database in databases]
    for _ in range(4):
        ids, numbers = [uuid4() for _ in range(3 * ROWS_AT_ONCE)], (uuid4(), uuid4())
        rivals = [
            a_document(number, assets=[an_asset(number, one) for one in order])
            for number, order in zip(numbers, (ids, ids[::-1]), strict=True)
        ]

        outcomes = await asyncio.gather(*(both[i].put(rivals[i]) for i in (0, 1)), return_exceptions=True)

        assert 1 == len([one for one in outcomes if one is True])
        assert ["asset_conflict"] == [one.code for one in outcomes if isinstance(one, DocmillError)]


async def test_inline_bytes_move_to_the_store(ports: Ports) -> None:
    number = uuid4()
    document = a_document(number, blob=INLINE, assets=[an_asset(number, blob=INLINE)], title="note.txt")

    kept, is_new = await work.store_document(ports, WHO, document)

    assert is_new
    assert kept == await work.get_document(ports, WHO, number)
    assert f"docmill://{ports.store.bucket}/tenants/acme/documents/{number}/{SHA}" == cast(Any, kept.blob).uri
    for thing, name in ((kept, "note.txt"), (kept.assets[0], f"{kept.assets[0].ref.asset_id}.txt")):
        blob = await work.open_blob(ports, WHO, thing)
        assert b"Hello" == b"".join([chunk async for chunk in blob.stream])
        assert (5, "text/plain", name, SHA) == (blob.size, blob.media_type, blob.filename, blob.sha256)
    assert (kept, False) == await work.store_document(ports, WHO, document)


async def test_what_lies_elsewhere_is_never_fetched(ports: Ports) -> None:
    external = {"type": "external", "kind": "https", "uri": "https://127.0.0.1:1/x", "sha256": SHA}
    for blob in (external, FILE):
        kept, _ = await work.store_document(ports, WHO, a_document(blob=blob))

        assert blob == kept.blob.model_dump()
        with pytest.raises(NotFound) as caught:
            await work.open_blob(ports, WHO, kept)
        assert "blob_not_found" == caught.value.code


async def test_another_tenants_name_is_forbidden(ports: Ports) -> None:
    with pytest.raises(Forbidden):
        await work.store_document(ports, WHO, a_document(tenant="other", blob=INLINE))
    with pytest.raises(Forbidden):
        await work.store_asset(ports, WHO, Asset.model_validate(an_asset(uuid4(), tenant="other")))

    assert [] == [key async for key, _, _ in ports.store.list("")]


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("tenants/other/users/anna/raw/1/x.pdf", Forbidden),
        ("tenants/acme/users/bert/raw/1/x.pdf", Forbidden),
        ("tenants/acme/users/anna/../bert/raw/1/x.pdf", DocmillError),
        ("users/anna/raw/1/x.pdf", Forbidden),
        ("tenants/acme/users/anna/raw/1/missing.pdf", NotFound),
        ("tenants/acme/users/anna/raw/1/long.pdf", Invalid),
    ],
)
async def test_a_document_shows_only_files_of_the_callers_own(ports: Ports, key: str, kind: type[DocmillError]) -> None:
    for name in ("tenants/other/users/anna", "tenants/acme/users/bert", "tenants/acme/users/anna", "users/anna"):
        await ports.store.put_bytes(f"{name}/raw/1/x.pdf", b"Hello")
    await ports.store.put_bytes("tenants/acme/users/anna/raw/1/long.pdf", b"Hello World")

    with pytest.raises(kind):
        await work.store_document(ports, WHO, a_document(blob={**FILE, "uri": f"docmill://{ports.store.bucket}/{key}"}))

    own = f"docmill://{ports.store.bucket}/tenants/acme/users/anna/raw/1/x.pdf"
    kept, _ = await work.store_document(ports, WHO, a_document(blob={**FILE, "uri": own}))
    assert 5 == (await work.open_blob(ports, WHO, kept)).size


async def test_bytes_go_when_nothing_names_them_any_more(ports: Ports) -> None:
    number = uuid4()
    other = {**INLINE, "base64": "V29ybGQ=", "sha256": sha256(b"World").hexdigest()}
    with_asset = an_asset(number, blob=other, checksum=other["sha256"])
    await work.store_document(ports, WHO, a_document(number, version="1", blob=INLINE, assets=[with_asset], age_s=1))
    await work.store_document(ports, WHO, a_document(number, version="2", blob=INLINE))
    keys = [f"tenants/acme/documents/{number}/{sha}" for sha in (SHA, other["sha256"])]

    async def there() -> list[bool]:
        return [await ports.store.stat(key) is not None for key in keys]

    await work.delete_document(ports, WHO, number, version="2")
    assert [True, True] == await there()
    await work.delete_document(ports, WHO, number, version="1", hard=True)
    assert [True, False] == await there(), "the hidden version still names the first"
    await work.delete_document(ports, WHO, number, hard=True)
    assert [False, False] == await there()
    with pytest.raises(NotFound):
        await work.delete_document(ports, WHO, number, hard=True)


async def _rows(database: Database, sql: str) -> list[list[Any]]:
    def op() -> Op[list[list[Any]]]:
        rows = yield Statement(sql)()
        return [list(row) for row in rows]

    return await database.read(op())
