"""docling-serve on loopback: submit, poll, and a result that can be fetched once. It really reads the PDF."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from PIL import Image

from support.mineru_peers import page_texts
from support.peers import Asked, ProviderPeer, Reply, route

KEY = "docling-key"
WIDTH, HEIGHT = 600.0, 800.0


@dataclass
class Task:
    pages: list[str]
    form: dict[str, list[str]] = field(default_factory=dict)
    name: str = ""
    looks: int = 0
    failure: dict[str, Any] | None = None


class DoclingPeer(ProviderPeer):
    def __init__(self, *, looks: int = 1) -> None:
        super().__init__()
        self.looks = looks
        self.tasks: dict[str, Task] = {}
        self.failures: list[dict[str, Any]] = []
        self.status = "success"

    def guard(self, asked: Asked) -> Reply | None:
        return None if asked.headers.get("x-api-key") == KEY else Reply(401, {"detail": "Api key is required."})

    @route("GET", "/health")
    def health(self, asked: Asked) -> Reply:
        return Reply(json={"status": "ok"}, headers={"Content-Type": "application/json"})

    @route("GET", "/version")
    def version(self, asked: Asked) -> Reply:
        return Reply(
            json={"docling-serve": "1.38.2", "docling": "2.143.0"}, headers={"Content-Type": "application/json"}
        )

    @route("POST", "/v1/convert/file/async")
    def submit(self, asked: Asked) -> Reply:
        if refused := self.guard(asked):
            return refused
        fields, files = asked.form()
        name, data = files["files"]
        task = Task(page_texts(data), fields, name, failure=self.failures.pop(0) if self.failures else None)
        task_id = str(uuid4())
        self.tasks[task_id] = task
        return Reply(json=self.told(task_id, "pending"))

    @route("GET", "/v1/status/poll/([^/]+)")
    def poll(self, asked: Asked) -> Reply:
        task = self.tasks.get(asked.found[0])
        if refused := self.guard(asked):
            return refused
        if task is None:
            return Reply(404, {"detail": "Task not found."})
        task.looks += 1
        if task.looks <= self.looks:
            return Reply(json=self.told(asked.found[0], "started"))
        if task.failure:
            return Reply(json={**self.told(asked.found[0], "failure"), "failure": task.failure})
        return Reply(json=self.told(asked.found[0], "success"))

    @route("GET", "/v1/result/([^/]+)")
    def result(self, asked: Asked) -> Reply:
        task = self.tasks.pop(asked.found[0], None)  # once
        if task is None:
            return Reply(404, {"detail": "Task not found."})
        document = {"filename": task.name, "json_content": docling_document(task.pages)}
        return Reply(json={"document": document, "status": self.status, "errors": [], "processing_time": 0.1})

    def told(self, task_id: str, status: str) -> dict[str, Any]:
        return {"task_id": task_id, "task_type": "convert", "task_status": status, "task_position": 0}


def picture() -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 30), "teal").save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def prov(page: int, left: float, top: float, right: float, bottom: float, origin: str = "BOTTOMLEFT") -> list[Any]:
    box = {"l": left, "t": top, "r": right, "b": bottom, "coord_origin": origin}
    return [{"page_no": page, "bbox": box, "charspan": [0, 1]}]


def docling_document(pages: list[str]) -> dict[str, Any]:
    """A heading and a text on each page; on the first a header, a picture with caption, a table, a list."""
    texts: list[dict[str, Any]] = [
        {
            "label": "page_header",
            "text": "PAGE HEADER",
            "prov": prov(1, 0, 800, 600, 780),
            "content_layer": "furniture",
        },
        {"label": "caption", "text": "A teal box.", "prov": prov(1, 60, 300, 300, 290)},
        {"label": "list_item", "text": "first", "enumerated": True, "marker": "1.", "prov": prov(1, 0, 9, 9, 0)},
    ]
    body: list[dict[str, str]] = [{"$ref": "#/texts/0"}]
    for number, text in enumerate(pages, 1):
        kind = "title" if number == 1 else "section_header"
        first, _, rest = text.partition("\n")
        for label, words in ((kind, first), ("text", rest)):
            body.append({"$ref": f"#/texts/{len(texts)}"})
            texts.append({"label": label, "text": words, "level": 1, "prov": prov(number, 60, 700, 540, 640)})
        if number == 1:
            body += [{"$ref": "#/pictures/0"}, {"$ref": "#/tables/0"}, {"$ref": "#/groups/0"}]
    cells = [
        {"start_row_offset_idx": row, "start_col_offset_idx": column, "text": text, "row_span": 1, "col_span": span}
        for row, column, text, span in ((0, 0, "head", 2), (1, 0, "a|b", 1), (1, 1, "<b>", 1))
    ]
    return {
        "schema_name": "DoclingDocument",
        "body": {"self_ref": "#/body", "children": body},
        "texts": texts,
        "groups": [{"label": "list", "children": [{"$ref": "#/texts/2"}]}],
        "pictures": [
            {
                "label": "picture",
                "prov": prov(1, 60, 640, 300, 320),
                "captions": [{"$ref": "#/texts/1"}],
                "children": [{"$ref": "#/texts/1"}],
                "image": {"mimetype": "image/png", "uri": picture()},
            }
        ],
        "tables": [
            {
                "label": "table",
                "prov": prov(1, 60, 80, 300, 160, "TOPLEFT"),
                "captions": [],
                "data": {"table_cells": cells, "num_rows": 2, "num_cols": 2},
            }
        ],
        "pages": {
            str(number): {"page_no": number, "size": {"width": WIDTH, "height": HEIGHT}}
            for number in range(1, len(pages) + 1)
        },
    }
