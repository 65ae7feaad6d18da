"""Values that databases, file systems and terminals dislike: refused as the client's fault, or kept as mere data.

The same on both databases: what PostgreSQL cannot hold must not be found out by PostgreSQL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest

from support.servers import PostgresAddress
from support.serving import Etl, Service

HERE = "@here@"
SUBMIT: dict[str, Any] = {
    "project_id": 1,
    "filename": "a.txt",
    "s3_key": "users/local/raw/1/none.txt",
    "workflow_id": "w",
    "engine": "local",
    "mount": {"table_id": 1, "json_path": ""},
    "twin": {"folder": "", "layout": "folder"},
    "options": {"language": "de", "ocr": "auto"},
}
RULE: dict[str, Any] = {
    "name": "hostile",
    "description": "d",
    "json_schema": {"type": "object", "title": "t"},
    "system_prompt": "p",
    "postprocess_mode": "llm",
    "postprocess_strategy": "direct-json",
}
TABLE: dict[str, Any] = {"name": "t", "data": {"cell": "x"}}
VALUES = {
    "nan": "NaN",
    "infinity": "Infinity",
    "minus-infinity": "-Infinity",
    "overflow": "1e999",
    "huge-int": "1" + "0" * 400,
    "surrogate": '"\\ud800"',
    "surrogate-late": '"ok \\udfff ok"',
    "nul": '"a\\u0000b"',
    "duplicate-keys": '{"a": 1, "a": 2}',
    "deep-list": "[" * 20_000 + "]" * 20_000,
    "deep-object": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "megabyte": '"' + "x" * 1_000_000 + '"',
}
FINE = {("table", "data", "megabyte"), ("table", "data.cell", "megabyte")}
"""A table may hold a long text."""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def etl(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etl]:
    data = tmp_path_factory.mktemp("values") / "data"
    if request.param == "sqlite":
        with Service(data) as service, service.client() as client:
            yield Etl(client)
        return
    postgres: PostgresAddress = request.getfixturevalue("postgres")
    with postgres.database() as url, Service(data, DATABASE_URL=url) as service, service.client() as client:
        yield Etl(client)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Etl]]:
    with Service(tmp_path_factory.mktemp("names") / "home" / "data") as service, service.client() as client:
        yield service, Etl(client)


def places(body: dict[str, Any], path: str = "") -> Iterator[str]:
    """Every field that holds a text, also inside of others, and every field as such."""
    for name, value in body.items():
        yield f"{path}{name}"
        if isinstance(value, dict):
            yield from places(value, f"{path}{name}.")


def with_value(body: dict[str, Any], place: str, raw: str) -> str:
    """The body as JSON text, with *raw* at the place as it stands."""
    copy = json.loads(json.dumps(body))
    *way, last = place.split(".")
    target = copy
    for step in way:
        target = target[step]
    target[last] = HERE
    return json.dumps(copy).replace(json.dumps(HERE), raw)


def posted(etl: Etl, path: str, text: str) -> httpx2.Response:
    return etl.http.post(path, content=text.encode(), headers={"Content-Type": "application/json"})


DOORS = [
    ("submit", "/api/v1/etl/submit", SUBMIT),
    ("rule", "/api/v1/etl/rules", RULE),
    ("table", "/api/v1/projects/1/tables", TABLE),
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("door", "path", "body"), DOORS, ids=[door for door, _, _ in DOORS])
def test_a_hostile_value_is_the_clients_fault(etl: Etl, door: str, path: str, body: dict[str, Any], value: str) -> None:
    for place in places(body):
        answer = posted(etl, path, with_value(body, place, VALUES[value]))
        if (door, place, value) in FINE:
            assert 201 == answer.status_code, (place, answer.text)
            continue
        assert answer.status_code in (400, 413, 422), (place, answer.status_code, answer.text[:300])
        assert "application/problem+json" == answer.headers["content-type"]
        assert answer.json()["code"]
        assert len(answer.content) < 10_000, "the answer repeats the value"


@pytest.mark.parametrize("value", [name for name in VALUES if name != "megabyte"])
def test_it_is_refused_also_where_nobody_looks(etl: Etl, value: str) -> None:
    """In a field that is ignored, as a key, and as the whole body."""
    body = json.dumps(TABLE)
    for text in (
        f'{{"unknown": {VALUES[value]}, {body[1:]}',
        VALUES[value],
        f"[{VALUES[value]}]",
        *([f"{{{VALUES[value]}: 1, {body[1:]}"] if VALUES[value].startswith('"') else []),
    ):
        for path in ("/api/v1/etl/rules", "/api/v1/projects/1/tables", "/api/v1/etl/submit"):
            assert posted(etl, path, text).status_code in (400, 422), (path, text[:80])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/etl/submit", '{"s3_key": "users/local/raw/1/a", "s3_key": "users/local/raw/1/b"}'),
        ("/api/v1/etl/rules", '{"name": "a", "name": "b"}'),
        ("/api/v1/projects/1/tables", '{"name": "a", "data": 1, "data": 2}'),
        ("/api/v1/etl/rules", '{"name": "a", "n\\u0061me": "b"}'),
    ],
)
def test_a_key_that_comes_twice_is_refused(etl: Etl, path: str, body: str) -> None:
    assert 422 == posted(etl, path, body).status_code


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe{}", b'{"name": "\xff"}', b'"' * 3, b"nul", b"[1,]", b"\xef\xbb\xbf{}"]
)
def test_what_is_no_json_is_refused(etl: Etl, body: bytes) -> None:
    for path in ("/api/v1/etl/rules", "/api/v1/projects/1/tables", "/api/v1/etl/submit"):
        answer = etl.http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422), (path, answer.text)


@pytest.mark.parametrize(
    "address",
    [
        "/api/v1/etl/tasks/{}",
        "/api/v1/etl/tasks/{}/events",
        "/api/v1/etl/rules/{}",
        "/api/v1/tables/{}",
        "/api/v1/tables/{}/data",
        "/api/v1/projects/{}/tables",
        "/api/v1/documents/{}",
        "/api/v1/assets/{}/blob",
        "/api/v1/etl/tasks/batch?task_ids={}",
        "/api/v1/etl/tasks?cursor={}",
        "/api/v1/etl/tasks?project_id={}",
        "/api/v1/etl/tasks?status={}",
        "/api/v1/documents?cursor={}",
        "/api/v1/documents?collection_id={}",
        "/api/v1/tables/1/data?pointer={}",
        "/api/v1/contracts/{}/schema",
    ],
)
@pytest.mark.parametrize(
    "value",
    [
        "%00",
        "%ff",
        "%ed%a0%80",
        "9" * 400,
        "-1",
        "NaN",
        "1e3",
        "%F0%9F%98%80",
        "..%2F..%2Fetc",
        "%0d%0aX:1",
        "x" * 3000,
    ],
    ids=lambda value: value[:12],
)
def test_a_hostile_address_is_the_clients_fault(etl: Etl, address: str, value: str) -> None:
    answer = etl.http.get(address.format(value))
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text[:300])
    assert "x" not in answer.headers


# Names of files


NAMES = {
    "climber": ("../../x.txt", "x.txt"),
    "absolute": ("/etc/passwd.txt", "passwd.txt"),
    "windows": ("..\\..\\evil.txt", "evil.txt"),
    "drive": ("C:\\temp\\a.txt", "a.txt"),
    "newline": ("a\nb.txt", "ab.txt"),
    "escape": ("a\x1b[31mb.txt", "a[31mb.txt"),
    "right-to-left": ("annexe\u202etxt.exe.txt", "annexetxt.exe.txt"),
    "emoji": ("🚢⚓.txt", "🚢⚓.txt"),
    "chinese": ("发票 2025.txt", "发票 2025.txt"),
    "decomposed": ("Bru\u0308cke.txt", "Bru\u0308cke.txt"),
    "device": ("con", "con"),
    "device-too": ("NUL.txt", "NUL.txt"),
    "dot": ("name.", "name."),
    "hidden": (".profile", ".profile"),
    "dots": ("....txt", "....txt"),
    "spaces": ("  a  b  .txt", "a  b  .txt"),
    "quotes": ("a\"b'c;d.txt", "a\"b'c;d.txt"),
    "fullwidth-climber": ("．．／x.txt", "．．／x.txt"),
    "percent": ("a%2e%2e%2fb.txt", "a%2e%2e%2fb.txt"),
    "markup": ("<img src=x onerror=alert(1)>.txt", None),
    "long": ("n" * 600 + ".txt", None),
    "wide": ("船" * 200 + ".txt", None),
    "only-dots": ("..", None),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_is_only_data(embedded: tuple[Service, Etl], case: str) -> None:
    """It comes back as text, and never becomes a path of ours; also not that of a twin."""
    service, etl = embedded
    name, shown = NAMES[case]
    before = outside(service)
    key = etl.upload("plain.txt", f"name {case}".encode())["key"]

    answer = etl.post("/submit", json={"s3_key": key, "filename": name, "twin": {"folder": "", "layout": "folder"}})

    assert 200 == answer.status_code, answer.text
    task = etl.wait(answer.json()["task_id"])
    assert ("completed", None) == (task["status"], task["error"])
    assert shown is None or shown == task["filename"]
    assert task["filename"].isprintable()
    assert "/" not in task["filename"].replace("／", "")
    assert len(task["filename"]) <= 255
    [(stem, output)] = task["result"].items()
    assert output["filename"] == task["filename"]
    assert task["filename"].startswith(stem)
    library = (service.data / "library").resolve()
    assert Path(unquote(task["metadata"]["twin_path"])).resolve().is_relative_to(library)
    assert before == outside(service), "something was written outside of the data folder"
    blob = etl.http.get(f"/api/v1/documents/{task['metadata']['document_id']}/blob")
    assert 200 == blob.status_code
    disposition = blob.headers["content-disposition"]
    assert disposition.startswith("attachment; ")
    assert disposition.isascii()
    assert disposition.isprintable()


def outside(service: Service) -> set[Path]:
    """All around the data folder, and all in the store whose name is not one of ours."""
    home = service.data.parent
    around = {path for path in (*home.parent.iterdir(), *home.iterdir()) if path != service.data}
    ours = re.compile(r"[A-Za-z0-9._-]+")
    strange = {path for path in (service.data / "objects").rglob("*") if not ours.fullmatch(path.name)}
    return around | strange


@pytest.mark.parametrize("case", [name for name in NAMES if name not in ("newline", "escape")])
def test_a_name_in_a_form_is_only_data(embedded: tuple[Service, Etl], case: str) -> None:
    service, etl = embedded
    name, shown = NAMES[case]
    before = outside(service)
    stated = name.replace('"', "%22").encode()
    body = (
        b"--b\r\nContent-Disposition: form-data; name=project_id\r\n\r\n1\r\n"
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="'
        + stated
        + b'"\r\n\r\nform '
        + case.encode()
        + b"\r\n--b--\r\n"
    )
    headers = {"Content-Type": "multipart/form-data; boundary=b"}

    answer = etl.post("/upload_and_submit", content=body, headers=headers)

    assert 201 == answer.status_code, answer.text
    item = answer.json()["items"][0]
    # Browsers of old send whole paths with backslashes; the parser of forms takes the last part, too.
    assert shown is None or "\\" in name or shown == item["filename"]
    assert re.fullmatch(r"users/local/raw/1/[0-9a-f-]{36}(\.[a-z0-9]{1,16})?", item["s3_key"])
    assert "completed" == etl.wait(item["task_id"])["status"]
    assert before == outside(service)


@pytest.mark.parametrize("name", ["a\0b.txt", "n" * 10_000, "a\ud800.txt"], ids=["nul", "10k", "surrogate"])
def test_a_name_that_no_system_takes_is_refused(embedded: tuple[Service, Etl], name: str) -> None:
    _, etl = embedded
    key = etl.upload("plain.txt", b"plain")["key"]
    answer = posted(etl, "/api/v1/etl/submit", json.dumps({"s3_key": key, "filename": name}))
    assert 422 == answer.status_code
    disposition = b'--b\r\nContent-Disposition: form-data; name="file"; filename="'
    form = disposition + name.encode("utf-8", "surrogatepass") + b'"\r\n\r\nx\r\n--b--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = etl.post("/upload", params={"project_id": 1}, content=form, headers=headers)
    # Bytes that are not UTF-8 are read as Latin-1, as old clients write them.
    assert answer.status_code in ((201,) if "\ud800" in name else (400, 422)), answer.text
