"""Engines over the network that are given a job, asked how it stands, and give its result once it is done.

A contract says how one kind of server is talked to. The engine finds out which one it is, and does what all have in
common: send, wait, fetch, read; a job that nobody waits for any more is called off, where the contract knows how.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import structlog

from docmill.adapters.engines.sending import Sending, in_any_case, prepare
from docmill.core.errors import DocmillError, StageFailed
from docmill.core.parsed import Parsed
from docmill.core.routing import Reach

if TYPE_CHECKING:
    from docmill.adapters.providers.client import Answer, ProviderClient
    from docmill.ports import PageReport, Work

log = structlog.get_logger(__name__)

UPLOAD_S: Final = 1800.0
CANCEL_S: Final = 5.0
FIRST_LOOK_S: Final = 0.2
CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
ID: Final = re.compile(r"[A-Za-z0-9_.:=~-]{1,200}")
ENDED: Final = frozenset({"provider_lost", "provider_failed", "provider_refused", "provider_quota"})
"""After these there is no job to call off."""
CHANGED: Final = frozenset({"provider_lost", "provider_answer_invalid", "provider_refused"})
"""After these another server may stand there."""


@dataclass(frozen=True, slots=True)
class Sight:
    """How a job stands."""

    is_done: bool = False
    pages_done: int | None = None
    pages_total: int | None = None
    result: str = ""
    """Where the result lies, once it is there."""


class Contract(Protocol):
    label: str
    """What it is: `MinerU 4.0.12 (flash)`."""
    max_pages: int
    max_bytes: int

    @classmethod
    async def probe(cls, client: ProviderClient) -> Contract | None:
        """Ask whether it is one of this kind; None: it is not."""
        ...

    async def submit(self, sending: Sending) -> str:
        """Start the job; its id."""
        ...

    async def look(self, job: str) -> Sight:
        """How it stands. A failed job raises."""
        ...

    async def fetch(self, job: str, sight: Sight, path: Path) -> None:
        """The result into a file."""
        ...

    async def cancel(self, job: str) -> None:
        """Ask it to stop, where the contract knows how."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """What a result is a result of."""

    provider: str
    media_type: str
    facts: dict[str, object]


class PolledEngine(ABC):
    """One provider, whichever of its contracts it speaks."""

    revision: ClassVar[int]
    """Raise it whenever the same answers would give another result: it is part of the dedupe key."""
    called: ClassVar[str]
    """What people call it."""
    extensions: ClassVar[Mapping[str, str]]
    """What it reads, and how such files are named."""
    contracts: ClassVar[Sequence[type[Contract]]]

    def __init__(
        self,
        client: ProviderClient,
        *,
        options: Mapping[str, Any] | None = None,
        max_pages: int | None = None,
        poll_s: float = 2.0,
    ) -> None:
        self.name = client.name
        told = hashlib.sha256(repr(sorted((options or {}).items())).encode()).hexdigest()[:8]
        self.version = f"{self.revision}+{told}"
        self.media_types = frozenset(self.extensions)
        self._client = client
        self._options = dict(options or {})
        self._max_pages = max_pages
        self._poll_s = poll_s
        self._contract: Contract | None = None
        self._probing = asyncio.Lock()

    @abstractmethod
    def options_for(self, work: Work) -> dict[str, Any]:
        """What the document asks for, in the provider's own words."""

    @abstractmethod
    def read(self, result: Path, folder: Path, origin: Origin) -> Parsed:
        """The result as pages and figures. Blocks: it runs in a thread."""

    async def start(self, work: Work, report: PageReport) -> Parsed:
        sending = await prepare(work, self.extensions, self._options | self.options_for(work))
        contract = await self.contract()
        if sending.size > contract.max_bytes:
            limit = contract.max_bytes // 1024**2
            raise StageFailed("provider_refused", provider=self.name, why=f"it takes files up to {limit} MB")
        try:
            job = await contract.submit(sending)
            log.info("provider_job", provider=self.name, job=job, task=work.task_id)
            result = work.folder / "result"
            await self._await(contract, job, report, result)
        except StageFailed as error:
            if error.code in CHANGED:
                self._contract = None
            raise
        facts: dict[str, object] = {"provider": contract.label, "provider_task_id": job}
        return await asyncio.to_thread(self.read, result, work.folder, Origin(self.name, sending.media_type, facts))

    async def describe(self) -> str:
        async with self._probing:
            self._contract = None  # what it was once says nothing
            self._contract = await self._probe()
            return self._contract.label

    async def reach(self) -> Reach:
        known = await self.contract()
        pages = min(self._max_pages, known.max_pages) if self._max_pages else known.max_pages
        return Reach(pages, known.max_bytes)

    async def warm(self) -> None:  # noqa: B027 - that is all there is to it
        """Nothing to do: it is asked when the first document comes."""

    async def close(self) -> None:
        await self._client.close()

    async def contract(self) -> Contract:
        """What the provider speaks: asked once, and again when it seems to have changed."""
        async with self._probing:
            if self._contract is None:
                self._contract = await self._probe()
            return self._contract

    async def _probe(self) -> Contract:
        for kind in self.contracts:
            found = await kind.probe(self._client)
            if found is not None:
                return found
        raise StageFailed("provider_refused", provider=self.name, why=f"what answers there is no {self.called}")

    async def _await(self, contract: Contract, job: str, report: PageReport, result: Path) -> None:
        """Until the result lies there. Who stops waiting calls the job off: the next attempt begins another one."""
        try:
            sight = await self._done(contract, job, report)
            await contract.fetch(job, sight, result)
        except asyncio.CancelledError:
            await in_any_case(self._call_off(contract, job))
            raise
        except StageFailed as error:
            if error.code not in ENDED:
                await in_any_case(self._call_off(contract, job))
            raise

    async def _done(self, contract: Contract, job: str, report: PageReport) -> Sight:
        pause = min(FIRST_LOOK_S, self._poll_s)
        while not (sight := await contract.look(job)).is_done:
            if sight.pages_done is not None:
                report(sight.pages_done, sight.pages_total)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, self._poll_s)
        return sight

    async def _call_off(self, contract: Contract, job: str) -> None:
        try:
            async with asyncio.timeout(CANCEL_S):
                await contract.cancel(job)
        except (DocmillError, TimeoutError) as error:
            log.info("provider_not_told", provider=self.name, job=job, why=type(error).__name__)


# --- what a provider says, and what of it may be repeated


def shown(code: object) -> str:
    """A provider's code, if it looks like one. Its messages stay out: they name hosts, paths and keys."""
    text = str(code)
    return text if CODE.fullmatch(text) else "an unknown code"


def invalid(provider: str, why: str) -> StageFailed:
    return StageFailed("provider_answer_invalid", provider=provider, why=why)


def lost(provider: str, why: str) -> StageFailed:
    return StageFailed("provider_lost", provider=provider, why=why)


def failed(provider: str, why: str) -> StageFailed:
    return StageFailed("provider_failed", provider=provider, why=why)


def refused(provider: str, status: int, code: object = None) -> StageFailed:
    """An answer that is none of success."""
    said = f"it answers {status}" + (f" ({shown(code)})" if code else "")
    if status in (401, 403):
        said += "; is the key right?"
    return StageFailed("provider_refused", provider=provider, why=said)


def id_in(found: object, key: str, provider: str) -> str:
    """An id that the provider gave. It becomes part of an address, so it must be no more than an id."""
    value = found.get(key) if isinstance(found, dict) else None
    if not isinstance(value, str) or not ID.fullmatch(value) or ".." in value:
        raise invalid(provider, f"it has no {key}")
    return value


def word_in(found: object, key: str) -> str:
    """A state or a code that the provider told; empty: it told none, or something else."""
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, str) else ""


def is_json(answer: Answer) -> bool:
    return answer.ok and "json" in answer.headers.get("content-type", "")
