"""MinerU's API as Open WebUI's document loader uses it, in both of its modes: the same requests with the same library.

It treats as an error what the loader treats as one.
"""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path
from typing import Any

import requests

POLL_S = 0.2
"""The loader waits two seconds; a test has less time."""


class LoaderFailed(Exception):
    """What a user of Open WebUI would see."""


def _session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    return session


def load_local(api_url: str, path: Path, **params: Any) -> tuple[str, dict[str, Any]]:
    """Mode `local`: one request without a credential. The text, and what is told of it."""
    with _session() as http, path.open("rb") as file:
        answer = http.post(
            f"{api_url}/file_parse",
            data={**params, "return_md": "true"},
            files={"files": (path.name, file, "application/octet-stream")},
            timeout=60,
        )
    if not answer.ok:
        raise LoaderFailed(f"{answer.status_code}: {answer.json()}")
    result = answer.json()
    if not result["results"]:
        raise LoaderFailed("MinerU returned empty results")
    text = next(iter(result["results"].values())).get("md_content", "")
    if not text:
        raise LoaderFailed("MinerU returned empty markdown content")
    return text, {name: result.get(name, "unknown") for name in ("backend", "version")}


def load_cloud(api_url: str, key: str, path: Path, *, page_ranges: str = "", **params: Any) -> str:
    """Mode `cloud`: announce the file, upload it, poll, fetch the archive. The first Markdown file in it."""
    with _session() as http:
        file = {"name": path.name, "is_ocr": params.get("enable_ocr", False)}
        if page_ranges:
            file["page_ranges"] = page_ranges
        headers = {"Authorization": f"Bearer {key}"}
        told = http.post(
            f"{api_url}/file-urls/batch",
            headers={**headers, "Content-Type": "application/json"},
            json={**params, "files": [file]},
            timeout=30,
        )
        data = _data(told)
        with path.open("rb") as source:
            uploaded = http.put(data["file_urls"][0], data=source, timeout=60)
        if not uploaded.ok:
            raise LoaderFailed(f"Failed to upload file to presigned URL: {uploaded.status_code}")
        result = _poll(http, f"{api_url}/extract-results/batch/{data['batch_id']}", headers, path.name)
        archive = http.get(result["full_zip_url"], timeout=60)
        if not archive.ok:
            raise LoaderFailed(f"Failed to download results ZIP: {archive.status_code}")
    with zipfile.ZipFile(io.BytesIO(archive.content)) as opened:
        names = [name for name in opened.namelist() if name.endswith(".md")]
        if not names:
            raise LoaderFailed(f"No .md files found in ZIP: {opened.namelist()}")
        return opened.read(names[0]).decode("utf-8")


def _data(answer: requests.Response) -> dict[str, Any]:
    body = answer.json()
    if not answer.ok or body.get("code") != 0:
        raise LoaderFailed(body.get("msg", body))
    return body["data"]


def _poll(http: requests.Session, url: str, headers: dict[str, str], name: str) -> dict[str, Any]:
    for _ in range(300):
        items = _data(http.get(url, headers=headers, timeout=30))["extract_result"]
        found = next((item for item in items if item["file_name"] == name), None)
        if found is None:
            raise LoaderFailed(f"File {name} not found in batch results")
        if found["state"] == "done":
            return found
        if found["state"] == "failed":
            raise LoaderFailed(f"MinerU processing failed: {found['err_msg']}")
        assert found["state"] in ("waiting-file", "pending", "running", "converting"), found
        time.sleep(POLL_S)
    raise LoaderFailed("MinerU processing timed out")
