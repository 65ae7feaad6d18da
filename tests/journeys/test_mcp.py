"""`docmill mcp` as a language model's program meets it: the official client, over standard input and output."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from support.serving import Service

PARAGRAPH = "The river rose. " * 40


async def call(client: Client, name: str, **arguments: Any) -> Any:
    answer = await client.call_tool(name, arguments)
    text = answer.content[0].text  # type: ignore[union-attr]
    return text if answer.is_error else json.loads(text)


async def test_a_model_submits_reads_and_searches_piece_by_piece(tmp_path: Path) -> None:
    root = tmp_path / "papers"
    root.mkdir()
    text = "\n\n".join(f"Part {n}. {PARAGRAPH}" for n in range(100))
    (root / "long.md").write_text(text)
    (tmp_path / "secret.txt").write_text("not yours")
    with Service(tmp_path / "data") as service:
        flags = ["-m", "docmill", "mcp", "--root", str(root), "--url", service.url]
        async with Client(StdioServerParameters(command=sys.executable, args=flags)) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"submit_document", "list_tasks", "get_task", "read_markdown", "search_markdown"} <= names

            task_id = (await call(client, "submit_document", path="long.md"))["task_id"]
            while (task := await call(client, "get_task", task_id=task_id, wait_seconds=30))["status"] != "completed":
                assert task["status"] not in ("failed", "cancelled"), task

            pieces, offset = [], 0
            while offset is not None:
                piece = await call(client, "read_markdown", task_id=task_id, offset=offset)
                assert len(piece["markdown"]) <= 20_000
                pieces.append(piece["markdown"])
                offset = piece["next_offset"]
            assert len(pieces) > 3
            assert piece["total_characters"] == len("".join(pieces))
            assert all(f"Part {n}. The" in "".join(pieces) for n in range(100))

            found = await call(client, "search_markdown", task_id=task_id, words="PART 7")
            assert "Part 7. The river" in found["places"][0]["excerpt"]
            many = await call(client, "search_markdown", task_id=task_id, words="river")
            assert 20 == len(many["places"])
            more = await call(client, "search_markdown", task_id=task_id, words="river", offset=many["next_offset"])
            assert more["places"][0]["offset"] > many["places"][-1]["offset"]

            listed = await call(client, "list_tasks", status="completed")
            assert ([task_id], None) == ([one["task_id"] for one in listed["tasks"]], listed["next_cursor"])
            assert "There is no file" in await call(client, "submit_document", path="../secret.txt")
            assert "task_not_found" in await call(client, "read_markdown", task_id=999)
