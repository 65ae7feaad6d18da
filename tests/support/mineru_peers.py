"""MinerU as its 3.x server and its cloud speak, on loopback. They really read the PDF, so order and loss show."""

from __future__ import annotations

import io
import json
import time
import zipfile
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

from PIL import Image

from support.documents import opened
from support.peers import Asked, ProviderPeer, Reply, route

WIDTH, HEIGHT = 600, 800
KEY = "cloud-key"


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 30), "teal").save(buffer, "JPEG")
    return buffer.getvalue()


def page_texts(data: bytes) -> list[str]:
    with opened(data) as pdf:
        return [page.get_textpage().get_text_bounded().strip() for page in pdf]


def result_zip(pages: list[str], prefix: str, stem: str, *, layout: str, pictures: bool = True) -> bytes:
    """What both write: a flat list in thousandths, a layout in units of the page, the images."""
    listed: list[dict[str, Any]] = []
    infos = []
    for index, text in enumerate(pages):
        listed.append({"type": "header", "text": "PAGE HEADER", "page_idx": index, "bbox": [0, 0, 1000, 50]})
        listed.append({"type": "text", "text": text, "text_level": 1 if index == 0 else 0, "page_idx": index})
        name = f"{index:04d}abc.jpg"
        if index == 0 and pictures:
            listed.append(
                {
                    "type": "image",
                    "img_path": f"images/{name}",
                    "image_caption": ["A teal box."],
                    "image_footnote": [],
                    "bbox": [100, 200, 500, 600],
                    "page_idx": index,
                }
            )
            listed.append(
                {
                    "type": "table",
                    "img_path": "",
                    "table_caption": ["Sums"],
                    "table_body": '<table><tr><td colspan="2" onclick="x()">a</td></tr>'
                    "<tr><td>1|2</td><td>b<script>alert(1)</script></td></tr></table>",
                    "bbox": [0, 0, 1000, 100],
                    "page_idx": index,
                }
            )
        body = {"type": "image_body", "lines": [{"spans": [{"type": "image", "image_path": name}]}]}
        block = {"type": "image", "bbox": [60, 160.4, 300, 480], "blocks": [body]}
        infos.append({"page_idx": index, "page_size": [WIDTH, HEIGHT], "para_blocks": [block] if index == 0 else []})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{prefix}{stem}.md", "\n\n".join(pages))
        archive.writestr(f"{prefix}{stem}_content_list.json", json.dumps(listed))
        archive.writestr(f"{prefix}{stem}_content_list_v2.json", "[]")
        archive.writestr(f"{prefix}{layout}", json.dumps({"pdf_info": infos, "_backend": "pipeline"}))
        archive.writestr(f"{prefix}images/0000abc.jpg", picture())
    return buffer.getvalue()


@dataclass
class Job:
    pages: list[str] = field(default_factory=list)
    looks: int = 0
    fails: str = ""
    """The state in which it ends instead of being done."""
    name: str = ""
    options: dict[str, Any] = field(default_factory=dict)


class ThreePeer(ProviderPeer):
    """The 3.x server: one form in, a task, one ZIP out."""

    def __init__(self, *, looks: int = 1) -> None:
        super().__init__()
        self.looks = looks
        self.jobs: dict[str, Job] = {}
        self.fail_next = 0

    @route("GET", "/health")
    def health(self, asked: Asked) -> Reply:
        told = {"status": "healthy", "version": "3.4.5", "protocol_version": 2, "queued_tasks": 0}
        return Reply(json=told, headers={"Content-Type": "application/json"})

    @route("POST", "/tasks")
    def submit(self, asked: Asked) -> Reply:
        fields, files = asked.form()
        name, data = files["files"]
        job = Job(page_texts(data), name=name, options={key: values[0] for key, values in fields.items()})
        if self.fail_next:
            self.fail_next -= 1
            job.fails = "failed"
        task = str(uuid4())
        self.jobs[task] = job
        return Reply(202, {"task_id": task, "status": "pending", "status_url": f"http://inner.host/tasks/{task}"})

    @route("GET", "/tasks/([^/]+)")
    def status(self, asked: Asked) -> Reply:
        job = self.jobs.get(asked.found[0])
        if job is None:
            return Reply(404, {"detail": "Task not found"})
        job.looks += 1
        if job.looks <= self.looks:
            return Reply(json={"task_id": asked.found[0], "status": "processing"})
        error = "torch died at gpu-7.inner.host:/srv/mineru" if job.fails else None
        return Reply(json={"task_id": asked.found[0], "status": job.fails or "completed", "error": error})

    @route("GET", "/tasks/([^/]+)/result")
    def result(self, asked: Asked) -> Reply:
        job = self.jobs.get(asked.found[0])
        if job is None:
            return Reply(404, {"detail": "Task not found"})
        stem = job.name.rsplit(".", 1)[0]
        data = result_zip(job.pages, f"{stem}/auto/", stem, layout=f"{stem}_middle.json")
        return Reply(body=data, headers={"Content-Type": "application/zip"})


class StoragePeer(ProviderPeer):
    """Where the cloud's signed addresses lead: a host of its own, which must see no key."""

    def __init__(self, cloud: CloudPeer) -> None:
        super().__init__()
        self.cloud = cloud

    @route("PUT", "/oss/([^/]+)")
    def put(self, asked: Asked) -> Reply:
        if "content-type" in asked.headers or "authorization" in asked.headers:
            return Reply(403, body=b"SignatureDoesNotMatch")
        return self.cloud.received(asked.found[0], asked.body)

    @route("GET", "/cdn/([^/]+)[.]zip")
    def cdn(self, asked: Asked) -> Reply:
        if "authorization" in asked.headers:
            return Reply(403, body=b"two kinds of leave")
        pages = self.cloud.jobs[asked.found[0]].pages
        return Reply(body=result_zip(pages, "", "full", layout="layout.json", pictures=self.cloud.pictures))


class CloudPeer(ProviderPeer):
    """The cloud: an address to put to, a batch, an address to fetch from; two envelopes; a page limit."""

    def __init__(self, *, looks: int = 2, max_pages: int = 200) -> None:
        super().__init__()
        self.looks = looks
        self.max_pages = max_pages
        self.jobs: dict[str, Job] = {}
        self.fail_next = 0
        """So many batches end as failed."""
        self.fail_batch_with: dict[str, int] = {}
        """Text of a first page: how often a slice that begins with it fails."""
        self.codes: list[int | str] = []
        """Errors that the next submissions are answered with."""
        self.pictures = True
        """It finds some on the first page of whatever it gets."""
        self.storage = StoragePeer(self)

    def __enter__(self) -> Self:
        self.storage.__enter__()
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        self.storage.__exit__()
        super().__exit__()

    def envelope(self, data: Any) -> Reply:
        return Reply(json={"code": 0, "msg": "ok", "trace_id": "t", "data": data})

    def refusal(self, code: int | str) -> Reply:
        said = "see http://10.0.0.7:8080/secret"
        if isinstance(code, str):
            return Reply(401, {"success": False, "msgCode": code, "msg": said, "traceId": "t"})
        return Reply(200, {"code": code, "msg": said, "trace_id": "t"})

    def guard(self, asked: Asked) -> Reply | None:
        return None if asked.headers.get("authorization") == f"Bearer {KEY}" else self.refusal("A0202")

    @route("GET", "/api/v4/extract/task/([^/]+)")
    def task(self, asked: Asked) -> Reply:
        return self.guard(asked) or self.refusal(-60012)

    @route("POST", "/api/v4/file-urls/batch")
    def batch(self, asked: Asked) -> Reply:
        if refused := self.guard(asked):
            return refused
        if self.codes:
            return self.refusal(self.codes.pop(0))
        batch = str(uuid4())
        self.jobs[batch] = Job(options=asked.json, name=asked.json["files"][0]["name"])
        return self.envelope({"batch_id": batch, "file_urls": [f"{self.storage.url}/oss/{batch}?signature=x"]})

    def received(self, batch: str, data: bytes) -> Reply:
        job = self.jobs[batch]
        job.pages = page_texts(data)
        first = job.pages[0].split()[0] if job.pages and job.pages[0] else ""
        with self.lock:
            if self.fail_next or self.fail_batch_with.get(first):
                self.fail_next = max(0, self.fail_next - 1)
                if first in self.fail_batch_with:
                    self.fail_batch_with[first] -= 1
                job.fails = "failed"
        return Reply(200, body=b"")

    @route("GET", "/api/v4/extract-results/batch/([^/]+)")
    def results(self, asked: Asked) -> Reply:
        if refused := self.guard(asked):
            return refused
        job = self.jobs.get(asked.found[0])
        if job is None:
            return self.refusal(-60012)
        job.looks += 1
        result: dict[str, Any] = {"file_name": job.name, "state": "running", "err_msg": ""}
        if job.looks <= self.looks:
            done = len(job.pages) * job.looks // (self.looks + 1)
            result["extract_progress"] = {
                "extracted_pages": done,
                "total_pages": len(job.pages),
                "start_time": time.strftime("%Y-%m-%d %H:%M:%S"),
            }
        elif len(job.pages) > self.max_pages:
            result |= {"state": "failed", "err_code": -60006, "err_msg": "too many pages"}
        elif job.fails:
            result |= {"state": job.fails, "err_msg": "failed on node gpu-3.inner.host"}
        else:
            result |= {"state": "done", "full_zip_url": f"{self.storage.url}/cdn/{asked.found[0]}.zip"}
        return self.envelope({"batch_id": asked.found[0], "extract_result": [result]})
