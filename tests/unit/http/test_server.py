"""Over a real socket: what a client sees when we stop reading, and that streams stream."""

import asyncio
import socket
from contextlib import asynccontextmanager

import httpx2
import uvicorn

from docmill.http.limits import HttpOptions
from support.waiting import until

ETL = "/api/v1/etl"
HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n'
FORM = {"Content-Type": "multipart/form-data; boundary=b"}


@asynccontextmanager
async def serving(app):
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=2))
    running = asyncio.ensure_future(server.serve(sockets=[listener]))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        await until(lambda: server.started)
        async with httpx2.AsyncClient(base_url=url, timeout=20, trust_env=False) as client:
            yield client
    finally:
        app.state.drain.begin()
        server.should_exit = True
        await running


async def stored(desk):
    return [key async for key, _, _ in desk.ports.store.list("")]


async def test_a_large_upload_is_stored_and_one_over_the_limit_is_cut_short(open_desk):
    limit = 20 * 1024**2
    async with open_desk(options=HttpOptions(max_upload_bytes=limit)) as desk, serving(desk.app) as client:
        sent = 0

        async def body(size):
            nonlocal sent
            sent = 0
            yield HEAD
            while sent < size:
                sent += 65536
                yield bytes(65536)
            yield b"\r\n--b--\r\n"

        fine = await client.post(f"{ETL}/upload?project_id=1", content=body(limit), headers=FORM)
        assert (201, limit) == (fine.status_code, fine.json()["size"])

        over = await client.post(f"{ETL}/upload?project_id=1", content=body(limit + 2**23), headers=FORM)
        assert (413, "upload_too_large") == (over.status_code, over.json()["code"])
        assert 1 == len(await stored(desk))


async def test_an_endless_upload_is_answered_and_hung_up_on(open_desk):
    async with open_desk(options=HttpOptions(max_upload_bytes=2**20)) as desk, serving(desk.app) as client:
        reader, writer = await asyncio.open_connection(str(client.base_url.host), client.base_url.port)
        writer.write(
            f"POST {ETL}/upload?project_id=1 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n".encode()
        )
        sent = 0

        async def send():
            nonlocal sent
            writer.write(b"%x\r\n%b\r\n" % (len(HEAD), HEAD))
            while sent < 2**30:
                writer.write(b"10000\r\n%b\r\n" % bytes(2**16))
                sent += 2**16
                await writer.drain()

        sending = asyncio.ensure_future(send())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert b" 413 " in answer
        assert b"connection: close" in answer.lower()
        [outcome] = await asyncio.wait_for(asyncio.gather(sending, return_exceptions=True), 10)
        assert isinstance(outcome, ConnectionError)
        assert sent < 100 * 2**20
        assert [] == await stored(desk)
        writer.transport.abort()


async def test_a_declared_length_over_the_limit_is_refused_at_once(open_desk):
    async with open_desk(options=HttpOptions(max_upload_bytes=1000)) as desk, serving(desk.app) as client:
        host, port = str(client.base_url.host), client.base_url.port
        for expect in ("", "Expect: 100-continue\r\n"):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(
                f"POST {ETL}/upload?project_id=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n"
                f"{expect}Content-Type: multipart/form-data; boundary=b\r\n\r\n".encode()
            )
            status = await asyncio.wait_for(reader.readline(), 30)
            assert b" 413 " in status
            writer.close()


async def test_who_hangs_up_in_the_middle_leaves_nothing(open_desk):
    async with open_desk() as desk, serving(desk.app) as client:
        _, writer = await asyncio.open_connection(str(client.base_url.host), client.base_url.port)
        writer.write(
            f"POST {ETL}/upload?project_id=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n".encode()
            + HEAD
            + bytes(300_000)
        )
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.transport.abort()
        async with asyncio.timeout(30):
            while await stored(desk):
                await asyncio.sleep(0.05)

        assert 200 == (await client.get("/health")).status_code


async def test_events_arrive_while_they_happen_and_a_watcher_may_hang_up(open_desk):
    async with open_desk() as desk, serving(desk.app) as client:
        task_id = await desk.submit()
        async with client.stream("GET", f"{ETL}/tasks/{task_id}/events") as answer:
            lines = answer.aiter_lines()
            async for line in lines:
                if line.startswith("event:"):
                    break
            await desk.claim(task_id)
            async for line in lines:
                if line == "event: started":
                    break
        await until(lambda: not desk.app.state.tails._open)


async def test_a_shutdown_does_not_wait_for_watchers(open_desk):
    async with open_desk() as desk:
        task_id = await desk.submit()
        async with serving(desk.app) as client:

            async def watch():
                async with client.stream("GET", f"{ETL}/tasks/{task_id}/events") as answer:
                    return [line async for line in answer.aiter_lines()]

            watching = asyncio.ensure_future(watch())
            await asyncio.sleep(0.2)
            desk.app.state.drain.begin()
            await asyncio.wait_for(watching, 30)
