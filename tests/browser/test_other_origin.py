"""A web page of another origin uses the API from a real browser: upload, submit, follow, read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from playwright.sync_api import Browser

from support.serving import Service

SECRET = "a secret of the tests that is long enough for HS256"
PATIENCE_MS = 30_000

PAGE = b"<!doctype html><meta charset=utf-8><title>front end</title><h1>front end</h1>"

JOURNEY = """
async ({url, token}) => {
  const base = url + "/api/v1/etl";
  const auth = token ? {Authorization: "Bearer " + token} : {};
  const form = new FormData();
  form.append("project_id", "7");
  form.append("file", new File(["# Quarterly figures\\n\\nAll is well.\\n"], "Bericht Q3.md"));
  const uploaded = await fetch(base + "/upload", {method: "POST", body: form, headers: auth});
  const {key} = await uploaded.json();
  const submitted = await fetch(base + "/submit", {
    method: "POST",
    headers: {...auth, "Content-Type": "application/json", "Idempotency-Key": "journey-1"},
    body: JSON.stringify({s3_key: key}),
  });
  const {task_id} = await submitted.json();
  const events = `${base}/tasks/${task_id}/events`;
  const seen = [];
  if (token) {  // EventSource cannot send headers
    const reader = (await fetch(events, {headers: auth})).body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) text += part.value;
    seen.push(...[...text.matchAll(/^event: (.*)$/gm)].map(found => found[1]));
  } else {
    await new Promise((resolve, reject) => {
      const source = new EventSource(events);
      source.addEventListener("completed", () => seen.push("completed"));
      source.addEventListener("end", () => { seen.push("end"); source.close(); resolve(); });
      source.onerror = () => reject(new Error("EventSource failed"));
    });
  }
  const read = await fetch(`${base}/tasks/${task_id}`, {headers: auth});
  const etag = read.headers.get("ETag");
  const known = {headers: {...auth, "If-None-Match": etag}, cache: "no-store"};
  const unchanged = await fetch(`${base}/tasks/${task_id}`, known);
  const missing = await fetch(base + "/tasks/999999", {headers: auth});
  return {
    uploaded: uploaded.status,
    task: await read.json(),
    seen,
    etag,
    unchanged: unchanged.status,
    missing: [missing.status, (await missing.json()).code, missing.headers.get("X-Request-ID") !== null],
  };
}
"""
BLOCKED = """
async ({url}) => {
  try { return (await fetch(url + "/api/v1/etl/tasks")).status; } catch (error) { return error.name; }
}
"""


class FrontEnd(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def front_end() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), FrontEnd) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join(10)


def run(browser: Browser, origin: str, script: str, **given: Any) -> Any:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    try:
        page = context.new_page()
        page.goto(origin)
        return page.evaluate(script, given)
    finally:
        context.close()


@pytest.mark.parametrize("is_open", [True, False], ids=["loopback", "with a credential"])
def test_a_page_of_an_allowed_origin_uploads_submits_follows_and_reads(
    browser: Browser, tmp_path: Path, is_open: bool
) -> None:
    token = "" if is_open else jwt.encode({"sub": "anna", "exp": time.time() + 600}, SECRET, "HS256")
    with front_end() as origin, front_end() as stranger:
        settings = {"DOCMILL_ALLOWED_ORIGINS": f'["{origin}"]'} | ({} if is_open else {"DOCMILL_JWT_SECRET": SECRET})
        with Service(tmp_path / "data", **settings) as service:
            found = run(browser, origin, JOURNEY, url=service.url, token=token)
            blocked = run(browser, stranger, BLOCKED, url=service.url)

    assert 201 == found["uploaded"]
    assert ("completed", "Bericht Q3.md") == (found["task"]["status"], found["task"]["filename"])
    assert "Quarterly figures" in found["task"]["result"]["Bericht Q3"]["content"]
    assert ["completed", "end"] == [kind for kind in found["seen"] if kind in ("completed", "end")]
    assert found["etag"]
    assert 304 == found["unchanged"]
    assert [404, "task_not_found", True] == found["missing"]
    assert "TypeError" == blocked
