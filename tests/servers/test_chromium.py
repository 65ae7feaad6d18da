import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.servers.chromium import QUIET_FLAGS

PAGE = b"<!doctype html><meta charset=utf-8><p id=sum></p><script>sum.textContent = 'made ' + (40 + 2)</script>"


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def page_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join(60)


@pytest.mark.slow
def test_it_runs_a_page_from_loopback(chromium: Path, page_url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [chromium, *QUIET_FLAGS, f"--user-data-dir={tmp_path}", "--dump-dom", page_url],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert '<p id="sum">made 42</p>' in done.stdout, done.stderr[-2000:]
