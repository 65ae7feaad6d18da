"""`docmill mcp`: the service as tools for language models, over standard input and output (Model Context Protocol)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from docmill import __version__
from docmill.cli.api import url_option
from docmill.cli.failure import Trouble

if TYPE_CHECKING:
    from docmill.client import AsyncClient, Task

T = TypeVar("T")

PAGE = 20_000
"""Characters of one answer: what a model reads at once without losing its thread."""
HITS = 20
AROUND = 120
INSTRUCTIONS = (
    "Documents become Markdown. Submit a file, wait for its task, then read the Markdown piece by piece: every answer "
    "says where the next piece begins."
)


@click.command(epilog="Exit codes: 0 the other side has ended, 2 wrong usage or the package mcp is missing.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    show_default="the current folder",
    help="Only files below this folder may be submitted.",
)
@url_option
def mcp(root: Path, url: str) -> None:
    """Offer the service to a language model: an MCP server on standard input and output.

    Tools: submit_document, list_tasks, get_task, read_markdown, search_markdown, cancel_task, retry_task. Whatever may
    be long comes in pieces. The API key comes from DOCMILL_API_KEY.
    """
    try:
        import mcp.server.mcpserver  # noqa: F401
    except ImportError as error:
        raise Trouble("The package mcp is missing: pip install 'docmill[mcp]'.") from error
    asyncio.run(_serve(root.resolve(), url))


async def _serve(root: Path, url: str) -> None:
    from mcp.server.mcpserver import MCPServer

    from docmill.client import AsyncClient

    async with AsyncClient(url) as docmill:
        server = MCPServer("docmill", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR")
        tools = Tools(docmill, root)
        for tool in (
            tools.submit_document,
            tools.list_tasks,
            tools.get_task,
            tools.read_markdown,
            tools.search_markdown,
            tools.cancel_task,
            tools.retry_task,
        ):
            server.tool(structured_output=False)(_told(tool))
        await server.run_stdio_async()


def _told(tool: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]:
    """An error of docmill reaches the model with its code, and nothing else of ours does."""
    from mcp.server.mcpserver.exceptions import ToolError

    from docmill.client import ClientError

    @wraps(tool)
    async def called(*args: Any, **kwargs: Any) -> T:
        try:
            return await tool(*args, **kwargs)
        except (ClientError, ValueError) as error:
            raise ToolError(str(error)) from error

    return called


class Tools:
    def __init__(self, docmill: AsyncClient, root: Path) -> None:
        self._docmill, self._root = docmill, root

    async def submit_document(self, path: str, project: int = 0) -> dict[str, Any]:
        """Send a file (PDF, scan, office file, web page, mail, text) to be turned into Markdown. Gives its task_id."""
        file = (self._root / path).resolve()
        if not file.is_relative_to(self._root) or not file.is_file():
            raise ValueError(f"There is no file '{path}' below {os.fspath(self._root)}.")
        sent = await self._docmill.submit(file, project=project)
        return {"task_id": sent.task_id, "status": sent.status, "filename": sent.filename}

    async def list_tasks(
        self, status: str | None = None, project: int | None = None, cursor: str | None = None
    ) -> dict[str, Any]:
        """Tasks, newest first, 20 at a time; give next_cursor as cursor to go on. status: pending, mineru_parsing,
        llm_processing, completed, failed or cancelled."""
        tasks, after = await self._docmill.tasks_page(project=project, status=status, limit=20, cursor=cursor)
        return {"tasks": [_brief(task) for task in tasks], "next_cursor": after}

    async def get_task(self, task_id: int, wait_seconds: float = 0) -> dict[str, Any]:
        """How a task is; with wait_seconds (60 at most) after its next change."""
        return _brief(await self._docmill.task(task_id, wait=min(max(wait_seconds, 0), 60)))

    async def read_markdown(self, task_id: int, offset: int = 0) -> dict[str, Any]:
        """A piece of a completed task's Markdown, from a character on; next_offset is null at the end."""
        text = await self._text(task_id)
        start = min(max(offset, 0), len(text))
        end = start + PAGE
        if end < len(text):
            # A piece ends with a paragraph, if there is one not too far back.
            end = max(text.rfind("\n\n", start + PAGE // 2, end) + 2, start + 1) if "\n\n" in text[start:end] else end
            end = end if end > start + PAGE // 2 else start + PAGE
        more = end if end < len(text) else None
        return {"markdown": text[start:end], "offset": start, "next_offset": more, "total_characters": len(text)}

    async def search_markdown(self, task_id: int, words: str, offset: int = 0) -> dict[str, Any]:
        """Where words stand in a completed task's Markdown (case does not matter): 20 places at a time, from a
        character on. Each has its offset, for read_markdown."""
        if not words.strip():
            raise ValueError("There is nothing to look for.")
        text = await self._text(task_id)
        found: list[dict[str, Any]] = []
        low, at = text.lower(), max(offset, 0)
        # Lower case may be longer than what it stands for; then a place would be beside the mark.
        low = low if len(low) == len(text) else text
        while (at := low.find(words.lower(), at)) >= 0 and len(found) < HITS:
            found.append({"offset": at, "excerpt": text[max(0, at - AROUND) : at + len(words) + AROUND]})
            at += max(1, len(words))
        return {"places": found, "next_offset": at if at >= 0 else None}

    async def cancel_task(self, task_id: int, force: bool = False) -> dict[str, Any]:
        """Cancel a waiting task; with force also a running one."""
        ack = await self._docmill.cancel(task_id, force=force)
        return {"task_id": ack.task_id, "status": ack.status}

    async def retry_task(self, task_id: int, from_stage: str = "mineru") -> dict[str, Any]:
        """Run a finished task again, from mineru (parse) or postprocess."""
        ack = await self._docmill.retry(task_id, from_stage=from_stage)
        return {"task_id": ack.task_id, "status": ack.status}

    async def _text(self, task_id: int) -> str:
        task = await self._docmill.task(task_id)
        if not task.is_final:
            raise ValueError(f"Task {task_id} is {task.status} ({task.progress} %). Wait for it with get_task.")
        return await self._docmill.markdown(task_id)


def _brief(task: Task) -> dict[str, Any]:
    return {
        "task_id": task.id,
        "filename": task.filename,
        "project": task.project_id,
        "status": task.status,
        "progress": task.progress,
        "pages": task.metadata.pages_total,
        "error_code": task.metadata.error_code,
        "error": task.error,
    }
