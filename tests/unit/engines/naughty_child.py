"""A child that does what no parser should. What to do is the first line of the document."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from docmill.adapters.engines.local import child, pdf, reading
from docmill.adapters.engines.local.job import Job
from docmill.adapters.engines.local.pdf import document
from docmill.core.errors import DocumentError


def read(job: Job) -> None:
    job.media_type = "text/plain"
    order, _, rest = job.source.read_text().partition("\n")
    getattr(sys.modules[__name__], f"do_{order}")(job, rest)


def do_say(job: Job, rest: str) -> None:
    job.add_page(0, rest)


def do_pid(job: Job, _rest: str) -> None:
    job.add_page(0, str(os.getpid()))


def do_hang(job: Job, _rest: str) -> None:
    (job.folder / "pid").write_text(str(os.getpid()))
    time.sleep(60)


def do_burn(_job: Job, _rest: str) -> None:
    while True:
        pass


def do_segfault(_job: Job, _rest: str) -> None:
    ctypes.string_at(0)


def do_abort(_job: Job, _rest: str) -> None:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


def do_eat_and_abort(_job: Job, _rest: str) -> None:
    """As PDFium does it: no memory, no word."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    while libc.malloc(ctypes.c_size_t(16 << 20)):
        pass
    time.sleep(0.6)
    os.kill(os.getpid(), signal.SIGABRT)


def do_rust_oom(_job: Job, _rest: str) -> None:
    os.write(2, b"memory allocation of 585937500000 bytes failed\n")
    os.abort()


def do_onnx_oom(_job: Job, _rest: str) -> None:
    raise RuntimeError("[ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer of size 134217728")


def do_mutter(job: Job, rest: str) -> None:
    os.write(2, b"std::bad_alloc, but I got over it\n")
    job.add_page(0, rest)


def do_exit(_job: Job, _rest: str) -> None:
    os._exit(3)


def do_allocate(_job: Job, _rest: str) -> None:
    hoard = []
    while True:
        hoard.append(bytearray(50 << 20))


def do_write(job: Job, _rest: str) -> None:
    with (job.folder / "big").open("wb") as file:
        for _ in range(100):
            file.write(b"\0" * (1 << 20))


def do_publish(job: Job, _rest: str) -> None:
    for index in range(100):
        job.limits = type(job.limits)()  # the parent counts for itself
        job.add_page(index, "x" * (1 << 20))


def do_swap(job: Job, _rest: str) -> None:
    """Another content of the same size, after the figure was announced."""
    name = job.add_image(tiny_png(), 0)
    job.add_page(0, "look")
    target = job.folder / "assets" / str(name)
    target.write_bytes(b"x" * target.stat().st_size)


def do_folder(job: Job, _rest: str) -> None:
    """A folder where a figure was announced."""
    name = job.add_image(tiny_png(), 0)
    job.add_page(0, "look")
    target = job.folder / "assets" / str(name)
    target.unlink()
    target.mkdir()


def do_path(job: Job, _rest: str) -> None:
    """A page image that is a file of the service."""
    job.facts["page_images"] = ["../../../docmill.db"]
    job.add_page(0, "look")


def do_forge(job: Job, _rest: str) -> None:
    """A page image that was never written."""
    job.facts["page_images"] = ["page_001.png"]
    job.add_page(0, "look")


def do_fill(job: Job, _rest: str) -> None:
    """Many files, each within the limit, half of them removed and still open."""
    held = []
    for number in range(100):
        path = job.folder / str(number)
        held.append(path.open("wb"))
        held[-1].write(b"\0" * (8 << 20))
        held[-1].flush()
        if number % 2:
            path.unlink()
    time.sleep(60)


def tiny_png() -> bytes:
    import io

    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (4, 4)).save(out, "PNG")
    return out.getvalue()


def do_babble(_job: Job, _rest: str) -> None:
    for number in range(3, 10):
        try:
            os.write(number, b"\0\0\0\x05hello")
        except OSError:
            continue
    time.sleep(30)


def do_connect(job: Job, rest: str) -> None:
    try:
        socket.create_connection(("127.0.0.1", int(rest)), 2).close()
        job.add_page(0, "connected")
    except OSError as error:
        job.add_page(0, f"refused {error.errno}")


def do_environment(job: Job, _rest: str) -> None:
    job.add_page(0, json.dumps(dict(os.environ)))


def do_print(job: Job, rest: str) -> None:
    print("this must not get between the frames")
    os.write(1, b"nor this")
    job.add_page(0, rest)


def do_long(job: Job, _rest: str) -> None:
    job.divided = 300


def read_part(
    job: Job, indices: range, _total: int, before: Callable[..., Any], *, wanted: int, is_called: Callable[[], bool]
) -> int:
    what = job.source.read_text().split("\n")[1]
    (job.folder / f"pid{indices.start}").write_text(str(os.getpid()))
    if what != "hang":
        before([[] for _ in indices])
    if indices.start == 100 or what == "hang":
        misbehave(what)
    for index in range(wanted, indices.stop):
        started = time.monotonic()
        time.sleep(0.006 if what == "slow" else 0)
        span = f"{os.getpid()} {started} {time.monotonic()}"
        job.limits = type(job.limits)()
        job.add_page(index, "x" * (1 << 20) if what == "publish" else f"page {index}")
        job.facts.setdefault("spans", []).append(span)
        if is_called():
            return index + 1
    return indices.stop + (what == "lie")


def misbehave(what: str) -> None:
    if what == "hang":
        time.sleep(60)
    elif what == "crash":
        ctypes.string_at(0)
    elif what == "refuse":
        raise DocumentError("document_broken", why="it is only a test")


document.WINDOW = 100
pdf.read_part = read_part
pdf.conclude = lambda job: None
reading.read = read

if __name__ == "__main__":
    child.main()
