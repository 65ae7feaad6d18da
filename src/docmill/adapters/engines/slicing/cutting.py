"""Counting and cutting PDFs, in a child that may die without harm."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docmill.adapters.engines import sniff
from docmill.adapters.engines.confine import bare_environment
from docmill.core.errors import DocumentError, StageFailed
from docmill.core.routing import Facts, Slice

CHILD = "docmill.adapters.engines.slicing.child"


@dataclass(frozen=True, slots=True)
class Cutter:
    memory_mb: int = 3072
    output_mb: int = 4096
    seconds: float = 300.0

    async def facts(self, source: Path, filename: str) -> Facts:
        """Type, size and, of a PDF, its pages. A broken or encrypted one raises DocumentError."""
        media_type = await asyncio.to_thread(sniff.sniff, source, filename)
        size = (await asyncio.to_thread(source.stat)).st_size
        if media_type != sniff.PDF:
            return Facts(media_type, size, 1 if media_type.startswith("image/") else None)
        told = await self._run(source, "count")
        return Facts(media_type, size, int(told["pages"]), int(told["text_pages"]), int(told["looked_at"]))

    async def cut(self, source: Path, folder: Path, slices: Sequence[Slice]) -> list[Path]:
        await self._run(source, "cut", folder=str(folder), slices=[[one.first, one.last] for one in slices])
        return [folder / f"{number:05d}.pdf" for number in range(len(slices))]

    async def _run(self, source: Path, do: str, **more: Any) -> dict[str, Any]:
        home = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=f"docmill-child-{os.getpid()}-"))
        job = {
            "parent": os.getpid(),
            "memory_mb": self.memory_mb,
            "output_mb": self.output_mb,
            "seconds": self.seconds,
            "source": str(source if source.is_absolute() else Path.cwd() / source),
            "do": do,
            **more,
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-m", CHILD, json.dumps(job)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=home,
                env=bare_environment(home),
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(self.seconds):
                    out, _ = await process.communicate()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        except TimeoutError as error:
            raise StageFailed("parse_timeout", seconds=round(self.seconds)) from error
        finally:
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
        return self._answer(out, process.returncode)

    @staticmethod
    def _answer(out: bytes, code: int | None) -> dict[str, Any]:
        try:
            told = json.loads(out)
        except ValueError as error:
            raise StageFailed("parse_crashed", how=f"exit {code}") from error
        match told.get("code"):
            case None:
                return dict(told)
            case "document_encrypted":
                raise DocumentError("document_encrypted")
            case _:
                raise DocumentError("document_broken", why="its pages cannot be counted")
