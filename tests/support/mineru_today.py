"""MinerU as its server of today speaks, on loopback: uploads that may be known already, jobs, files. It can be told
to misbehave, which the real one cannot; everything else is tested against the real one."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from support.mineru_peers import KEY, page_texts, picture
from support.peers import Asked, ProviderPeer, Reply, route

JSON = {"Content-Type": "application/json"}


def structured_zip(pages: list[str]) -> bytes:
    """Pages of blocks with boxes in 0-1; on the first page an image."""
    told: list[dict[str, Any]] = []
    for index, text in enumerate(pages):
        blocks: list[dict[str, Any]] = [{"type": "text", "content": text, "bbox": [0.1, 0.1, 0.9, 0.2]}]
        if index == 0:
            blocks[0] |= {"type": "doc_title", "level": 1}
            blocks.append({"type": "image", "image_source": "images/a.jpg", "bbox": [0.1, 0.2, 0.5, 0.6]})
        told.append({"page_idx": index, "blocks": blocks})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("structured_content.json", json.dumps({"pages": told}))
        archive.writestr("images/a.jpg", picture())
    return buffer.getvalue()


@dataclass
class Job:
    pages: list[str]
    looks: int = 0
    status: str = "running"


class TodayPeer(ProviderPeer):
    def __init__(self, *, looks: int = 1) -> None:
        super().__init__()
        self.looks = looks
        self.jobs: dict[str, Job] = {}
        self.files: dict[str, bytes] = {}
        """By SHA-256."""
        self.results: dict[str, bytes] = {}

    def error(self, status: int, code: str) -> Reply:
        return Reply(status, {"error": {"code": code, "message": "see http://gpu-7.inner.host:8000/srv"}}, headers=JSON)

    @route("GET", "/v1/health")
    def health(self, asked: Asked) -> Reply:
        return Reply(json={"status": "ok", "version": "4.0.12", "features": {}}, headers=JSON)

    @route("GET", "/v1/tiers")
    def tiers(self, asked: Asked) -> Reply:
        return Reply(json={"object": "list", "data": [{"id": "flash"}]}, headers=JSON)

    @route("GET", "/v1/usage")
    def usage(self, asked: Asked) -> Reply:
        if asked.headers.get("authorization") != f"Bearer {KEY}":
            return self.error(401, "invalid_api_key")
        limits = {"max_pages_per_file": 1000, "max_file_size_bytes": 200 << 20}
        return Reply(json={"object": "usage", "limits": limits}, headers=JSON)

    @route("POST", "/v1/uploads")
    def upload(self, asked: Asked) -> Reply:
        digest = asked.json["sha256sum"]
        if digest in self.files:
            return Reply(json={"id": digest, "status": "completed", "file": {"id": digest}})
        return Reply(json={"id": digest, "status": "pending", "upload_url": "http://inner.host/put"})

    @route("PUT", "/v1/uploads/([^/]+)/content")
    def content(self, asked: Asked) -> Reply:
        if hashlib.sha256(asked.body).hexdigest() != asked.found[0]:
            return self.error(400, "checksum_mismatch")
        self.files[asked.found[0]] = asked.body
        return Reply(json={})

    @route("POST", "/v1/uploads/([^/]+)/complete")
    def complete(self, asked: Asked) -> Reply:
        return Reply(json={"id": asked.found[0], "status": "completed", "file": {"id": asked.found[0]}})

    @route("POST", "/v1/parse/jobs")
    def submit(self, asked: Asked) -> Reply:
        source = asked.json["files"][0]["source"]["file_id"]
        if source not in self.files:
            return self.error(404, "file_not_found")
        job_id = f"job_{uuid4().hex}"
        self.jobs[job_id] = Job(page_texts(self.files[source]))
        return Reply(202, {"job_id": job_id, "status": "queued"})

    @route("GET", "/v1/parse/jobs/([^/]+)")
    def job(self, asked: Asked) -> Reply:
        job = self.jobs.get(asked.found[0])
        if job is None:
            return self.error(404, "job_not_found")
        job.looks += 1
        if job.status == "running" and job.looks > self.looks:
            job.status = "completed"
        result: dict[str, Any] = {"name": "document.pdf", "status": job.status}
        if job.status == "completed":
            self.results[asked.found[0]] = structured_zip(job.pages)
            result["output_files"] = {"zip": {"file_id": asked.found[0], "bytes": 1}}
        return Reply(json={"job_id": asked.found[0], "status": job.status, "files": [result]})

    @route("DELETE", "/v1/parse/jobs/([^/]+)")
    def cancel(self, asked: Asked) -> Reply:
        job = self.jobs.get(asked.found[0])
        if job is None:
            return self.error(404, "job_not_found")
        job.status = "canceled"
        return Reply(json={"job_id": asked.found[0], "status": "canceled"})

    @route("GET", "/v1/files/([^/]+)/content")
    def file(self, asked: Asked) -> Reply:
        found = self.results.get(asked.found[0])
        return Reply(body=found) if found else self.error(404, "file_not_found")
