"""`docmill inbox`: what is laid into a folder goes to the service."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from docmill.cli.api import json_option, url_option
from docmill.cli.failure import EXIT_FAILED, EXIT_INTERRUPTED, Failure
from docmill.cli.output import Out, complain, printable, standard_output

WAIT_S = 5.0


@click.command(
    epilog="Exit codes: 0 everything that was there became a task (--once), 1 some files could not be sent or their "
    "tasks failed, 2 wrong usage or no service there, 130 stopped; the tasks go on."
)
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--project", type=click.IntRange(0), default=0, show_default=True, help="Number of the project.")
@click.option("--rule", type=click.IntRange(1), metavar="ID", help="Rule for the Markdown; default: keep it as it is.")
@click.option("--engine", metavar="NAME", help="Engine that parses; default: local.")
@click.option("--twins", is_flag=True, help="Write the twin beside each file once its task is completed.")
@click.option(
    "--settle",
    type=click.FloatRange(0.05, 3600),
    default=1.0,
    show_default=True,
    help="Seconds of quiet after which a file counts as written.",
)
@click.option("--once", is_flag=True, help="Send what is there, and end.")
@url_option
@json_option
def inbox(folder: Path, url: str, once: bool, as_json: bool, **asked: Any) -> None:
    """Watch a folder and everything below it: each document that is laid there becomes a task.

    A file is sent when it is written to its end. Hidden and temporary files, and twins, are left alone. The same
    content is sent once, under whatever name and however often this command is started.
    """
    with standard_output() as out:
        try:
            failed = asyncio.run(Watch(folder, url, out, as_json=as_json, asked=asked).run(once=once))
        except KeyboardInterrupt:
            complain("Stopped. What was sent goes on.")
            raise SystemExit(EXIT_INTERRUPTED) from None
    raise SystemExit(EXIT_FAILED if failed else 0)


@dataclass
class Watch:
    folder: Path
    url: str
    out: Out
    as_json: bool
    asked: dict[str, Any]
    failed: int = 0

    async def run(self, *, once: bool) -> int:
        """How many files failed."""
        from docmill.adapters.libraries.disk import DiskLibrary
        from docmill.adapters.watching.folder import Inbox
        from docmill.client import AsyncClient, ClientError
        from docmill.core.inbox import is_wanted

        library = DiskLibrary((self.folder.resolve(),))
        watched = Inbox(self.folder, is_wanted, library.ours, settle_s=self.asked["settle"])
        followed: set[asyncio.Task[None]] = set()
        try:
            async with AsyncClient(self.url) as docmill:
                await anext(docmill.tasks(page_size=1), None)  # says at once that nobody is there
                async for path in watched.files(once=once):
                    task_id = await self._send(docmill, path)
                    if task_id is not None and self.asked["twins"]:
                        following = asyncio.ensure_future(self._place(docmill, task_id, path))
                        followed.add(following)
                        following.add_done_callback(followed.discard)
                await asyncio.gather(*followed)
        except ClientError as error:
            raise Failure(error.code, error.message) from error
        finally:
            await library.close()
        return self.failed

    async def _send(self, docmill: Any, path: Path) -> int | None:
        from docmill.client import Refused, Unreachable
        from docmill.core.inbox import content_key
        from docmill.work.inbox import digest_of

        wanted = {name: self.asked[name] for name in ("project", "rule", "engine")}
        while True:
            try:
                key = content_key(await asyncio.to_thread(digest_of, path))
                sent = await docmill.submit(path, idempotency_key=key, **wanted)
            except OSError as error:
                self._fail(path, f"cannot be read: {error.strerror or error}")
                return None
            except Unreachable as error:
                complain(f"{error.message} Trying again.")
                await asyncio.sleep(WAIT_S)
                continue
            except Refused as error:
                if error.code == "idempotency_mismatch":
                    self._say("known", path)
                else:
                    self._fail(path, f"{error.code}: {error.message}")
                return None
            self._say("known" if sent.is_replay else "sent", path, task_id=sent.task_id)
            return sent.task_id if not sent.is_replay or self.asked["twins"] else None

    async def _place(self, docmill: Any, task_id: int, path: Path) -> None:
        from docmill.client import ClientError

        try:
            twin = await docmill.save_twin(task_id, path.parent)
        except ClientError as error:
            self._fail(path, f"{error.code}: {error.message}")
        else:
            self._say("twin", path, task_id=task_id, twin=str(twin))

    def _say(self, what: str, path: Path, **more: Any) -> None:
        name = str(path.relative_to(self.folder.resolve()))
        if self.as_json:
            self.out.json({"event": what, "file": name, **more})
        else:
            rest = f"  task {more['task_id']}" if "task_id" in more else ""
            self.out.line(
                f"{what:6} {printable(name)}{rest}{'  -> ' + printable(more['twin']) if 'twin' in more else ''}"
            )
        self.out.flush()

    def _fail(self, path: Path, why: str) -> None:
        self.failed += 1
        complain(f"{path}: {why}")
