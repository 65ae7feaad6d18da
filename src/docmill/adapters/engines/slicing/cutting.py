"""Counting and cutting PDFs and judging results, in a child that may die without harm."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docmill.adapters.engines import sniff
from docmill.adapters.engines.confine import MB, bare_environment
from docmill.adapters.engines.sandbox.home import Home, UnsafeResult
from docmill.core.errors import DocumentError, StageFailed, StorageFull, Unavailable
from docmill.core.parsed import Parsed
from docmill.core.routing import Facts, Quality, Slice

CHILD = "docmill.adapters.engines.slicing.child"


@dataclass(frozen=True, slots=True)
class Cutter:
    memory_mb: int = 3072
    output_mb: int = 4096
    seconds: float = 300.0
    scratch: Path | None = None
    needs_full_sandbox: bool = False

    async def facts(self, source: Path, filename: str, *, may_link: bool = False) -> Facts:
        """Type, size and, of a PDF, its pages. A broken or encrypted one raises DocumentError. A source that may be
        linked need not be copied for the child."""
        media_type = await asyncio.to_thread(sniff.sniff, source, filename)
        size = (await asyncio.to_thread(source.stat)).st_size
        if media_type != sniff.PDF:
            return Facts(media_type, size, 1 if media_type.startswith("image/") else None)
        told = await self._run(source, {"do": "count"}, may_link=may_link)
        return Facts(media_type, size, int(told["pages"]), int(told["text_pages"]), int(told["looked_at"]))

    async def cut(self, source: Path, folder: Path, slices: Sequence[Slice], *, may_link: bool = False) -> list[Path]:
        names = [f"{number:05d}.pdf" for number in range(len(slices))]
        order = {"do": "cut", "slices": [[one.first, one.last] for one in slices]}
        await self._run(source, order, may_link=may_link, results=names, folder=folder)
        return [folder / name for name in names]

    async def judge(self, parsed: Parsed, folder: Path) -> Quality:
        """How good a result is. Its text is untrusted, and may be large: the child reads it from a file in *folder*."""
        pages = folder / "pages.json"
        await asyncio.to_thread(_write_pages, parsed, pages)
        try:
            told = await self._run(pages, {"do": "judge"}, may_link=True)
        finally:
            await asyncio.to_thread(pages.unlink)
        return Quality(**told)

    async def _run(
        self,
        source: Path,
        order: dict[str, Any],
        *,
        may_link: bool,
        results: Sequence[str] = (),
        folder: Path = Path(),
    ) -> dict[str, Any]:
        """One child, one order. Its *results* are copied to *folder*."""
        home = await asyncio.to_thread(Home.make, self.scratch)
        try:
            await asyncio.to_thread(home.place, source, may_link=may_link)
            told = await self._order(home, order)
            wanted = dict.fromkeys(results, "")
            await asyncio.to_thread(home.collect, "", wanted, folder, self.output_mb * MB)
        except UnsafeResult as error:
            raise StageFailed("parse_crashed", how="it broke the protocol") from error
        finally:
            await asyncio.to_thread(home.remove)
        return told

    async def _order(self, home: Home, order: dict[str, Any]) -> dict[str, Any]:
        limits = {"parent": os.getpid(), "memory_mb": self.memory_mb, "output_mb": self.output_mb}
        job = {
            "confine": limits | home.setup(),
            "needs_full_sandbox": self.needs_full_sandbox,
            "seconds": self.seconds,
            "source": str(home.input),
            "folder": str(home.out),
            **order,
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-m", CHILD, json.dumps(job)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=home.temp,
                env=bare_environment(home.temp),
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
            case "storage_full":
                raise StorageFull("storage_full")
            case "document_encrypted":
                raise DocumentError("document_encrypted")
            case "sandbox_insufficient":
                raise Unavailable("sandbox_insufficient", level=told["level"], why=told["why"])
            case _:
                raise DocumentError("document_broken", why="its pages cannot be counted")


def _write_pages(parsed: Parsed, target: Path) -> None:
    with target.open("w", encoding="ascii") as file:  # `json` escapes lone surrogates
        file.write(json.dumps([[page.markdown, page.damage] for page in parsed.pages]))
