"""A child that does what no parser should. What to do is the first line of the document."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docmill.adapters.engines.local import child, pdf, reading
from docmill.adapters.engines.local.job import Job
from docmill.adapters.engines.local.pdf import lite
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


def do_hang_with_grandchild(job: Job, _rest: str) -> None:
    grandchild = subprocess.Popen(["sleep", "60"])
    (job.folder / "pid").write_text(str(grandchild.pid))
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


def do_link(job: Job, _rest: str) -> None:
    name = job.add_image(tiny_png(), 0)
    target = job.folder / "assets" / str(name)
    target.unlink()
    target.symlink_to("/etc/hostname")
    job.add_page(0, "look")


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
    own = Path("/proc/self/environ").read_bytes().decode().split("\0")
    job.add_page(0, json.dumps([*own, *os.environ]))


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
        with (job.folder / f"spans{os.getpid()}").open("a") as spans:
            spans.write(f"{started} {time.monotonic()}\n")
        job.limits = type(job.limits)()
        job.add_page(index, "x" * (1 << 20) if what == "publish" else f"page {index}")
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


lite.WINDOW = 100
pdf.read_part = read_part
pdf.conclude = lambda job: None
reading.read = read

if __name__ == "__main__":
    child.main()
