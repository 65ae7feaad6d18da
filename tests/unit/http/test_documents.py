"""Documents, assets and contracts over HTTP."""

import base64
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI

from docmill.core.access import Principal
from docmill.http import contracts, documents, rules, tables
from docmill.http.auth import AuthOptions
from docmill.http.documents import read_range
from docmill.work import keys
from docmill.work.intake import attachment
from support import hostile

DOCUMENTS, ASSETS, CONTRACTS = "/api/v1/documents", "/api/v1/assets", "/api/v1/contracts"
DATA = b"<script>alert(1)</script>"
NOW = "2024-05-02T10:15:00+00:00"


def inline(data: bytes = DATA, media_type: str = "text/html") -> dict[str, Any]:
    return {
        "type": "inline",
        "media_type": media_type,
        "base64": base64.b64encode(data).decode(),
        "sha256": sha256(data).hexdigest(),
        "size": len(data),
    }


def an_asset(document: str, *, tenant: str = "local", **more: Any) -> dict[str, Any]:
    names = {"tenant_id": tenant, "workflow_id": "w", "document_id": document, "asset_id": str(uuid4())}
    blob = inline()
    return {
        "ref": names,
        "media_type": "text/html",
        "blob": blob,
        "caption_method": "none",
        "created_at": NOW,
        "checksum": blob["sha256"],
        **more,
    }


def a_document(*, tenant: str = "local", data: bytes = DATA, assets: int = 1, **more: Any) -> dict[str, Any]:
    names, document = {"tenant_id": tenant, "workflow_id": "w"}, str(uuid4())
    blob = inline(data)
    return {
        "ref": {**names, "document_id": document},
        "meta": {**names, "title": 'Übersicht "1" 发票.html'},
        "blob": blob,
        "checksum": blob["sha256"],
        "created_at": NOW,
        "assets": [an_asset(document, tenant=tenant) for _ in range(assets)],
        **more,
    }


async def test_a_document_is_stored_once_and_found(desk: Any) -> None:
    document = a_document()
    url = f"{DOCUMENTS}/{document['ref']['document_id']}"

    first, again = [await desk.http.post(DOCUMENTS, json=document) for _ in range(2)]

    assert (201, 200) == (first.status_code, again.status_code), first.text
    assert first.json() == again.json() == (await desk.http.get(url)).json()
    assert "file" == first.json()["blob"]["type"]
    assert [first.json()] == (await desk.http.get(DOCUMENTS)).json()["documents"]
    assert [first.json()] == (await desk.http.get(f"{url}/versions")).json()["versions"]
    assert first.json()["assets"] == (await desk.http.get(f"{url}/assets")).json()["assets"]
    other = await desk.http.post(DOCUMENTS, json={**document, "source": "other"})
    assert (409, "document_exists") == (other.status_code, other.json()["code"])


async def test_every_violation_is_named(desk: Any) -> None:
    document = a_document(checksum="0" * 64)
    document["assets"][0]["ref"]["tenant_id"] = "other"

    answer = await desk.http.post(DOCUMENTS, json=document)

    assert (422, "contract_violated") == (answer.status_code, answer.json()["code"])
    assert {"document_checksum_mismatch", "asset_tenant_mismatch"} == {one["code"] for one in answer.json()["errors"]}
    assert {"code", "loc", "message"} == set(answer.json()["errors"][0])


async def test_anothers_tenant_is_forbidden(desk: Any) -> None:
    assert 403 == (await desk.http.post(DOCUMENTS, json=a_document(tenant="other"))).status_code
    assert 403 == (await desk.http.post(ASSETS, json=an_asset(str(uuid4()), tenant="other"))).status_code


async def test_the_bytes_are_for_saving_never_for_showing(desk: Any) -> None:
    document = a_document()
    await desk.http.post(DOCUMENTS, json=document)

    for url in (
        f"{DOCUMENTS}/{document['ref']['document_id']}/blob",
        f"{ASSETS}/{document['assets'][0]['ref']['asset_id']}/blob",
    ):
        answer = await desk.http.get(url)

        assert (200, DATA) == (answer.status_code, answer.content)
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert "nosniff" == answer.headers["x-content-type-options"]
        assert answer.headers["content-security-policy"].startswith("sandbox")
        assert str(len(DATA)) == answer.headers["content-length"]
        part = await desk.http.get(url, headers={"Range": "bytes=1-6"})
        assert (206, DATA[1:7]) == (part.status_code, part.content)
        assert f"bytes 1-6/{len(DATA)}" == part.headers["content-range"]
        outside = await desk.http.get(url, headers={"Range": "bytes=999-"})
        assert (416, f"bytes */{len(DATA)}") == (outside.status_code, outside.headers["content-range"])
        many = await desk.http.get(url, headers={"Range": "bytes=" + ",".join(["0-1"] * 1000)})
        assert (200, DATA) == (many.status_code, many.content)


@pytest.mark.parametrize(
    ("header", "part"),
    [
        (None, None),
        ("bytes=0-0", (0, 1)),
        ("bytes=2-", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        ("bytes=5-99", (5, 10)),
        ("bytes=10-", (10, 10)),
        ("bytes=-0", (10, 10)),
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("lines=0-1", None),
        ("bytes=１-2", None),
        ("bytes=" + "9" * 99 + "-", None),
    ],
)
def test_a_range_as_http_means_it(header: str | None, part: tuple[int, int] | None) -> None:
    assert part == read_range(header, 10)


@pytest.mark.parametrize("name", ['a"b.txt', "../../etc/passwd", "a\r\nSet-Cookie: x=1", "发票.pdf", "", "\ud800"])
def test_a_file_name_cannot_leave_its_header(name: str) -> None:
    header = attachment(name)

    header.encode("ascii")
    assert 2 == header.count('"')
    assert not set("\r\n/\\") & set(header)


async def test_a_document_of_nowhere_has_no_bytes(desk: Any) -> None:
    sha = sha256(b"").hexdigest()
    blob = {"type": "external", "kind": "http", "uri": "http://127.0.0.1:1/", "sha256": sha}
    document = a_document(blob=blob, checksum=sha, assets=0)
    assert 201 == (await desk.http.post(DOCUMENTS, json=document)).status_code

    answer = await desk.http.get(f"{DOCUMENTS}/{document['ref']['document_id']}/blob")

    assert (404, "blob_not_found") == (answer.status_code, answer.json()["code"])


async def test_pages_and_their_cursor(desk: Any) -> None:
    for _ in range(5):
        assert 201 == (await desk.http.post(DOCUMENTS, json=a_document(assets=0))).status_code

    found, cursor = [], ""
    while cursor is not None:
        page = (await desk.http.get(DOCUMENTS, params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        found += [one["ref"]["document_id"] for one in page["documents"]]
        cursor = page["next_cursor"]

    assert 5 == len(set(found)) == len(found)
    for cursor in ("x", "ü", "\0", "AAAA" * 20):
        answer = await desk.http.get(DOCUMENTS, params={"cursor": cursor})
        assert (400, "cursor_invalid") == (answer.status_code, answer.json()["code"])


async def test_soft_and_hard_delete(desk: Any) -> None:
    document = a_document()
    url, asset = f"{DOCUMENTS}/{document['ref']['document_id']}", document["assets"][0]["ref"]["asset_id"]
    await desk.http.post(DOCUMENTS, json=document)

    assert 204 == (await desk.http.delete(url)).status_code
    assert 404 == (await desk.http.get(url)).status_code
    assert 404 == (await desk.http.get(f"{ASSETS}/{asset}")).status_code
    assert 404 == (await desk.http.delete(url)).status_code
    assert 201 == (await desk.http.post(DOCUMENTS, json=document)).status_code
    assert 204 == (await desk.http.delete(f"{url}?hard=true")).status_code
    assert 201 == (await desk.http.post(DOCUMENTS, json={**document, "source": "other"})).status_code


async def test_an_asset_is_added_and_removed(desk: Any) -> None:
    document = a_document(assets=0)
    await desk.http.post(DOCUMENTS, json=document)
    asset = an_asset(document["ref"]["document_id"])
    url = f"{ASSETS}/{asset['ref']['asset_id']}"

    made, again = [await desk.http.post(ASSETS, json=asset) for _ in range(2)]

    assert (201, 200) == (made.status_code, again.status_code), made.text
    assert made.json() == (await desk.http.get(url)).json()
    assert (204, 404) == ((await desk.http.delete(url)).status_code, (await desk.http.get(url)).status_code)
    lost = await desk.http.post(ASSETS, json=an_asset(str(uuid4())))
    assert (409, "document_missing") == (lost.status_code, lost.json()["code"])


async def test_a_foreign_document_is_not_there(open_desk: Any) -> None:
    async with open_desk(AuthOptions()) as desk:
        anna, carl = [
            {"Authorization": f"Bearer {(await keys.create(desk.ports, 'k', Principal('anna', tenant)))[1]}"}
            for tenant in ("acme", "other")
        ]
        document = a_document(tenant="acme")
        assert 201 == (await desk.http.post(DOCUMENTS, json=document, headers=anna)).status_code
        url, asset = (
            f"{DOCUMENTS}/{document['ref']['document_id']}",
            f"{ASSETS}/{document['assets'][0]['ref']['asset_id']}",
        )
        for path in (url, f"{url}/versions", f"{url}/assets", f"{url}/blob", asset, f"{asset}/blob"):
            assert 200 == (await desk.http.get(path, headers=anna)).status_code, path
            assert 404 == (await desk.http.get(path, headers=carl)).status_code, path
            assert 401 == (await desk.http.get(path)).status_code, path
        for path in (url, f"{url}?hard=true", asset, f"{asset}?hard=true"):
            assert 404 == (await desk.http.delete(path, headers=carl)).status_code, path
        assert [] == (await desk.http.get(DOCUMENTS, headers=carl)).json()["documents"]
        assert 200 == (await desk.http.get(f"{asset}/blob", headers=anna)).status_code


@pytest.mark.parametrize("query", ["version=%00", "version=a/b", "version=a%0A", "limit=0", "limit=101"])
async def test_hostile_parameters_are_the_clients_fault(desk: Any, query: str) -> None:
    url = DOCUMENTS if query.startswith("limit") else f"{DOCUMENTS}/{uuid4()}"

    assert 422 == (await desk.http.get(f"{url}?{query}")).status_code


async def test_a_contract_is_checked_without_storing(desk: Any) -> None:
    document = a_document()
    good = await desk.http.post(f"{CONTRACTS}/document/check?strict=true", json=document)
    assert (200, True, []) == (good.status_code, good.json()["valid"], good.json()["errors"])
    assert document["ref"]["document_id"] == good.json()["value"]["ref"]["document_id"]

    document["checksum"] = "0" * 64
    lenient = await desk.http.post(f"{CONTRACTS}/document/check", json=document)
    strict = await desk.http.post(f"{CONTRACTS}/document/check?strict=true", json=document)

    assert lenient.json()["valid"]
    assert (False, None) == (strict.json()["valid"], strict.json()["value"])
    assert ["document_checksum_mismatch"] == [one["code"] for one in strict.json()["errors"]]
    assert [] == (await desk.http.get(DOCUMENTS)).json()["documents"]


async def test_the_media_guard(desk: Any) -> None:
    blob = {"type": "file", "uri": "memory://x", "sha256": "0" * 64, "size": 1}
    asset = an_asset(str(uuid4()), blob=blob, checksum="0" * 64)

    for query, codes in (("media_guard=image/", ["media_type_guard"]), ("media_guard=image/,text/", []), ("", [])):
        answer = await desk.http.post(f"{CONTRACTS}/asset/check?{query}", json=asset)
        assert codes == [one["code"] for one in answer.json()["errors"]]


async def test_schemas_are_published(desk: Any) -> None:
    for kind in (await desk.http.get(CONTRACTS)).json()["kinds"]:
        schema = await desk.http.get(f"{CONTRACTS}/{kind}/schema")
        assert 200 == schema.status_code
        assert {"$defs", "properties", "oneOf"} & set(schema.json())
    for answer in (
        await desk.http.get(f"{CONTRACTS}/nope/schema"),
        await desk.http.post(f"{CONTRACTS}/nope/check", json={}),
    ):
        assert (404, "contract_kind_unknown") == (answer.status_code, answer.json()["code"])


def test_openapi_knows_every_door() -> None:
    app = FastAPI()
    for door in (contracts, documents, rules, tables):
        app.include_router(door.router)

    paths = app.openapi()["paths"]

    assert {"get", "post"} == set(paths["/api/v1/etl/rules"])
    assert "requestBody" in paths["/api/v1/documents"]["post"]
    assert "/api/v1/assets/{asset_id}/blob" in paths


async def test_pages_are_shown_to_their_tenant_and_drawn_once(desk: Any) -> None:
    document = a_document(data=hostile.pages(2), assets=0)
    document_id = document["ref"]["document_id"]
    assert 201 == (await desk.http.post(DOCUMENTS, json=document)).status_code

    page = await desk.http.get(f"{DOCUMENTS}/{document_id}/pages/2.png", params={"width": 200})

    assert (200, "image/png") == (page.status_code, page.headers["content-type"]), page.text
    assert b"\x89PNG" == page.content[:4]
    kept = [key async for key, _, _ in desk.ports.store.list("") if "/pages/" in key]
    assert 1 == len(kept)
    await desk.ports.store.delete(kept[0])
    await desk.ports.store.put_bytes(kept[0], b"kept")
    again = await desk.http.get(f"{DOCUMENTS}/{document_id}/pages/2.png", params={"width": 200})
    assert (b"kept", page.headers["etag"]) == (again.content, again.headers["etag"])
    odd = await desk.http.get(f"{DOCUMENTS}/{document_id}/pages/1.png", params={"width": 123})
    assert 200 == odd.status_code
    assert 1 == len([key async for key, _, _ in desk.ports.store.list("") if "/pages/" in key]), "odd widths are not"
    await desk.http.delete(f"{DOCUMENTS}/{document_id}", params={"hard": True})
    assert [] == [key async for key, _, _ in desk.ports.store.list("") if "/pages/" in key]


@pytest.mark.parametrize(
    ("page", "width", "status", "code"),
    [
        ("3", 200, 404, "page_not_found"),
        ("0", 200, 422, "request_invalid"),
        ("x", 200, 422, "request_invalid"),
        ("1", 15, 422, "request_invalid"),
        ("1", 2401, 422, "request_invalid"),
    ],
)
async def test_pages_that_are_not_there(desk: Any, page: str, width: int, status: int, code: str) -> None:
    document = a_document(data=hostile.pages(2), assets=0)
    await desk.http.post(DOCUMENTS, json=document)
    url = f"{DOCUMENTS}/{document['ref']['document_id']}/pages/{page}.png"

    answer = await desk.http.get(url, params={"width": width})

    assert (status, code) == (answer.status_code, answer.json()["code"])


async def test_text_has_no_page_images_and_another_tenant_no_document(open_desk: Any) -> None:
    async with open_desk(AuthOptions(require=True)) as desk:
        mine, other = [(await keys.create(desk.ports, "k", Principal("anna", who)))[1] for who in ("mine", "other")]
        document = a_document(tenant="mine", assets=0)
        url = f"{DOCUMENTS}/{document['ref']['document_id']}/pages/1.png"
        await desk.http.post(DOCUMENTS, json=document, headers={"Authorization": f"Bearer {mine}"})

        answers = [await desk.http.get(url, headers={"Authorization": f"Bearer {key}"}) for key in (mine, other)]

    assert ["page_images_unavailable", "document_not_found"] == [answer.json()["code"] for answer in answers]
    assert {404} == {answer.status_code for answer in answers}
