"""Tables over HTTP."""

from typing import Any

import pytest

from docmill.core.access import Principal
from docmill.http.auth import AuthOptions
from docmill.work import keys

API = "/api/v1"
DATA = {"invoices": [{"n": 1}, {"n": 2}], "a/b": {"m~n": "ü 发票"}, "none": None}


async def make(desk: Any, data: Any = DATA, project: int = 7, **more: Any) -> Any:
    answer = await desk.http.post(f"{API}/projects/{project}/tables", json={"name": "t", "data": data}, **more)
    assert 201 == answer.status_code, answer.text
    return answer.json()


async def test_a_table_is_made_read_changed_and_deleted(desk: Any) -> None:
    table = await make(desk)
    url = f"{API}/tables/{table['id']}"

    assert (7, "t", DATA) == (table["project_id"], table["name"], table["data"])
    assert table == (await desk.http.get(url)).json()
    changed = await desk.http.put(url, json={"name": "u", "data": [1]})
    assert (200, "u", [1]) == (changed.status_code, changed.json()["name"], changed.json()["data"])
    assert ("u", None) == ((kept := (await desk.http.put(url, json={"data": None})).json())["name"], kept["data"])
    assert 204 == (await desk.http.delete(url)).status_code
    for answer in (await desk.http.get(url), await desk.http.delete(url), await desk.http.put(url, json={"data": 1})):
        assert (404, "table_not_found") == (answer.status_code, answer.json()["code"])


async def test_a_project_lists_its_own_tables(desk: Any) -> None:
    first, second = await make(desk), await make(desk)
    await make(desk, project=8)

    listed = (await desk.http.get(f"{API}/projects/7/tables")).json()

    assert 2 == listed["total"]
    assert [first["id"], second["id"]] == [table["id"] for table in listed["tables"]]
    assert {"tables": [], "total": 0} == (await desk.http.get(f"{API}/projects/9/tables")).json()


@pytest.mark.parametrize(
    ("pointer", "value"),
    [("", DATA), ("/invoices/1/n", 2), ("/a~1b/m~0n", "ü 发票"), ("/none", None), ("/invoices", DATA["invoices"])],
)
async def test_a_pointer_answers_the_value_itself(desk: Any, pointer: str, value: Any) -> None:
    table = await make(desk)

    answer = await desk.http.get(f"{API}/tables/{table['id']}/data", params={"pointer": pointer})

    assert (200, "application/json") == (answer.status_code, answer.headers["content-type"])
    assert value == answer.json()


@pytest.mark.parametrize(
    ("pointer", "status", "code"),
    [
        ("invoices", 422, "pointer_invalid"),
        ("/~2", 422, "pointer_invalid"),
        ("/a\0", 422, "pointer_invalid"),
        ("/" + "x" * 5000, 422, "pointer_invalid"),
        ("/invoices/2", 404, "pointer_not_found"),
        ("/invoices/-", 404, "pointer_not_found"),
        ("/none/x", 404, "pointer_not_found"),
    ],
)
async def test_a_pointer_that_leads_nowhere(desk: Any, pointer: str, status: int, code: str) -> None:
    table = await make(desk)

    answer = await desk.http.get(f"{API}/tables/{table['id']}/data", params={"pointer": pointer})

    assert (status, code) == (answer.status_code, answer.json()["code"])


@pytest.mark.parametrize("project", ["-1", str(2**63), "x", "9" * 100])
async def test_a_project_is_a_number_that_fits(desk: Any, project: str) -> None:
    answers = [
        await desk.http.post(f"{API}/projects/{project}/tables", json={"name": "t", "data": {}}),
        await desk.http.get(f"{API}/projects/{project}/tables"),
    ]

    assert [422, 422] == [answer.status_code for answer in answers]


@pytest.mark.parametrize(
    "body",
    [
        b'{"name":"t","data":NaN}',
        b'{"name":"t","data":"\\ud800"}',
        b'{"name":"t","data":"\\u0000"}',
        b'{"name":"t\\u0000","data":1}',
        b'{"name":"t","data":1e999}',
        b'{"name":"t","data":{"a":1,"a":2}}',
        b'{"name":"t","data":' + b"9" * 30 + b"}",
        b'{"name":"t","data":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"name":"","data":1}',
        b'{"data":1}',
        b"[]",
        b"{",
        b"",
    ],
)
async def test_hostile_values_are_the_clients_fault(desk: Any, body: bytes) -> None:
    table = await make(desk)
    headers = {"Content-Type": "application/json"}

    for call, url in ((desk.http.post, f"{API}/projects/7/tables"), (desk.http.put, f"{API}/tables/{table['id']}")):
        answer = await call(url, content=body, headers=headers)
        if call == desk.http.put and body == b'{"data":1}':
            continue
        assert answer.status_code in (400, 422), (url, answer.text)


async def test_a_table_beyond_the_limit_is_413(desk: Any) -> None:
    answer = await desk.http.post(f"{API}/projects/7/tables", json={"name": "t", "data": "x" * (16 * 1024**2)})

    assert (413, "table_too_large") == (answer.status_code, answer.json()["code"])


async def test_a_foreign_table_is_not_there(open_desk: Any) -> None:
    async with open_desk(AuthOptions()) as desk:
        anna, bert, carl = [
            {"Authorization": f"Bearer {(await keys.create(desk.ports, 'k', Principal(user, tenant)))[1]}"}
            for user, tenant in (("anna", "acme"), ("bert", "acme"), ("anna", "other"))
        ]
        url = f"{API}/tables/{(await make(desk, headers=anna))['id']}"

        for other in (bert, carl):
            answers = [
                await desk.http.get(url, headers=other),
                await desk.http.get(f"{url}/data", headers=other),
                await desk.http.put(url, json={"data": 1}, headers=other),
                await desk.http.delete(url, headers=other),
            ]
            assert [404] * 4 == [answer.status_code for answer in answers]
            assert 0 == (await desk.http.get(f"{API}/projects/7/tables", headers=other)).json()["total"]
        assert DATA == (await desk.http.get(url, headers=anna)).json()["data"]
