"""The form parser: any chunk borders, hostile input, bounded memory."""

import asyncio
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import Headers

from docmill.core.errors import DocmillError
from docmill.http.multipart import Form, FormLimits

FIVE_FILES = FormLimits(files=5)
FORM = Headers({"content-type": "multipart/form-data; boundary=XyZ"})


def body(*parts: tuple[str, bytes], boundary: str = "XyZ") -> bytes:
    rows = [f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n" for head, data in parts]
    return b"".join(rows) + f"--{boundary}--\r\n".encode()


def head(name: str, filename: str | None = None) -> str:
    more = "" if filename is None else f'; filename="{filename}"\r\nContent-Type: Application/PDF; x=y'
    return f'Content-Disposition: form-data; name="{name}"{more}'


async def read(chunks, limits: FormLimits, headers: Headers = FORM):
    async def stream():
        for chunk in chunks:
            yield chunk

    form, found = Form.of(headers, stream(), limits), []
    while part := await form.next_part():
        data = b"".join([chunk async for chunk in part.chunks()]) if part.is_file else await part.text()
        found.append((part.name, part.filename, data))
    return found


def run(chunks, limits: FormLimits = FIVE_FILES, headers: Headers = FORM):
    return asyncio.run(read(chunks, limits, headers))


TRICKY = b"\r\n--Xy\r\n--XyZ\r--XyZ\n\r\r\n--XyZx-\r\n--XyZ-x"
WHOLE = body((head("project_id"), b"12"), (head("file", "ä b.pdf"), TRICKY), (head("late"), "grün".encode()))
EXPECTED = [("project_id", None, "12"), ("file", "ä b.pdf", TRICKY), ("late", None, "grün")]


def test_chunks_may_break_at_every_byte():
    for at in range(len(WHOLE) + 1):
        assert EXPECTED == run([WHOLE[:at], WHOLE[at:]]), at


def test_chunks_may_be_single_bytes():
    assert EXPECTED == run([WHOLE[at : at + 1] for at in range(len(WHOLE))])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_any_bytes_in_any_chunks_come_out_as_they_went_in(data, sizes):
    whole = body((head("file", "a"), data))
    if b"\r\n--XyZ" in data:
        return
    chunks, at = [], 0
    while at < len(whole):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(whole[at : at + size])
        at += size

    assert [("file", "a", data)] == run(chunks)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_junk_is_refused_in_our_words(junk):
    for whole in (junk, b"--XyZ\r\n" + junk, WHOLE[:60] + junk + WHOLE[60:]):
        try:
            run([whole])
        except DocmillError as error:
            assert 400 <= error.status < 500  # noqa: PT017


@pytest.mark.parametrize(
    "whole",
    [
        b"",
        b"--XyZ",
        b"no boundary at all",
        b"--other\r\n\r\n",
        b"--XyZ\r\n\r\nno headers\r\n--XyZ--\r\n",
        body(("X: y", b"")),
        body(("Content-Disposition: attachment; name=x", b"")),
        body(("Content-Disposition: form-data", b"")),
        body((head("a") + "\r\n" + head("a"), b"")),
        body((head("a") + "\r\nContent-Transfer-Encoding: base64", b"")),
        body((head("a") + "\r\nX: " + "y" * 5000, b"")),
        body((head("a") + "\r\nX: y" * 1 + "".join(f"\r\nX{n}: y" for n in range(9)), b"")),
        body((head("a\0b"), b"")),
        body((head("a"), b"\0")),
        body((head("a"), b"\xff")),
        WHOLE[:-6],
    ],
)
def test_bad_multipart_is_the_clients_fault(whole):
    with pytest.raises(DocmillError) as found:
        run([whole])
    assert found.value.status in (400, 422)


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/mixed; boundary=XyZ",
        "multipart/form-data; boundary=" + "x" * 300,
        'multipart/form-data; boundary="a\u00e4"',
    ],
)
def test_without_a_usable_content_type_nothing_is_read(kind):
    with pytest.raises(DocmillError) as found:
        run([WHOLE], headers=Headers(raw=[(b"content-type", kind.encode("latin-1"))]))
    assert found.value.status in (400, 415)


def test_ten_thousand_parts_are_refused_early():
    whole = body(*[(head("a"), b"x")] * 10_000)
    asked = 0

    def chunks():
        nonlocal asked
        for at in range(0, len(whole), 4096):
            asked += 1
            yield whole[at : at + 4096]

    with pytest.raises(DocmillError, match="fields"):
        run(chunks())
    assert asked < 3
    with pytest.raises(DocmillError, match="parts"):
        run([whole])


def test_too_many_files_and_too_long_fields_are_refused():
    with pytest.raises(DocmillError, match="file"):
        run([body(*[(head("file", "a"), b"x")] * 6)])
    with pytest.raises(DocmillError) as found:
        run([body((head("a"), b"x" * 65_537))])
    assert 413 == found.value.status
    assert [("a", None, "x" * 65_536)] == run([body((head("a"), b"x" * 65_536))])


def test_what_is_not_read_of_a_part_is_skipped():
    async def names():
        async def stream():
            yield WHOLE

        form, found = Form.of(FORM, stream(), FormLimits()), []
        while part := await form.next_part():
            found.append(part.name)
        return found

    assert ["project_id", "file", "late"] == asyncio.run(names())


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ('filename="C:\\\\dir\\\\a.pdf"', "a.pdf"),
        ('filename="a%22b.pdf"', 'a"b.pdf'),
        ('filename="a\\"b.pdf"', 'a"b.pdf'),
        ('filename="a;b.pdf"', "a;b.pdf"),
        ("filename=plain.pdf", "plain.pdf"),
    ],
)
def test_file_names_as_clients_write_them(given, name):
    whole = body((f'Content-Disposition: form-data; name="file"; {given}', b"x"))

    assert name == run([whole])[0][1]


def test_a_latin_1_name_is_read_too():
    whole = body((head("file", "?"), b"x")).replace(b'"?"', b'"\xe4.pdf"')

    assert "ä.pdf" == run([whole])[0][1]


def test_a_large_file_is_never_held_whole():
    async def measure():
        async def stream():
            yield body((head("file", "a"), b""))[: -len(b"\r\n--XyZ--\r\n")]
            for _ in range(512):
                yield bytes(64 * 1024)
            yield b"\r\n--XyZ--\r\n"

        form = Form.of(FORM, stream(), FormLimits())
        part = await form.next_part()
        size = 0
        async for chunk in part.chunks():
            size += len(chunk)
        return size

    tracemalloc.start()
    try:
        size = asyncio.run(measure())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 32 * 1024**2 == size
    assert peak < 1024**2
