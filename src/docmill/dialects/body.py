"""A callback's body on its way in: signature and content at once, judged in the right order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docmill.core.errors import BadRequest
from docmill.dialects.base import Signature
from docmill.dialects.spill import Limits, Reader, Spill


class Body:
    """Feed it the raw bytes. `close` speaks of the signature first: whoever cannot sign learns nothing of the content.

    Call `discard` when the body did not arrive whole.
    """

    def __init__(
        self, signature: Signature, folder: Path, spills: tuple[Spill, ...] = (), limits: Limits | None = None
    ) -> None:
        self._signature = signature
        self._reader = Reader(folder, spills, limits)
        self._fault: BadRequest | None = None

    def feed(self, chunk: bytes) -> None:
        self._signature.update(chunk)
        if self._fault is None:
            try:
                self._reader.feed(chunk)
            except BadRequest as fault:
                self._fault = fault

    def close(self) -> dict[str, Any]:
        try:
            self._signature.check()
            if self._fault is not None:
                raise self._fault
            return self._reader.close()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        self._reader.discard()
