"""What is asked of a language model: facts of a document, and words for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from docmill.core.captions import Caption


@dataclass(frozen=True, slots=True)
class Question:
    """What a language model is asked: instructions, and turns that begin with ours and then alternate."""

    system: str
    turns: tuple[str, ...]
    schema: dict[str, Any] | None
    """Of the JSON that the answer shall be; None: it shall be text."""


@dataclass(frozen=True, slots=True)
class Answered:
    text: str
    model: str
    tokens: int | None
    """In and out, as the server counted; None: it did not."""
    cut: bool = False
    """It would have said more, but had no more room."""


class Extractor(Protocol):
    """A language model. What it says is checked by whoever asks."""

    home: bool
    """It stands in the house: documents that must not leave may be shown to it."""

    @property
    def model(self) -> str: ...

    async def answer(self, question: Question) -> Answered:
        """Raises StageFailed: llm_rate_limit and llm_unreachable (both worth another try later), llm_refused."""
        ...

    async def offered(self) -> Sequence[str]:
        """The models that its server has, as far as it tells. Raises like `answer`."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Picture:
    """An image and what stands around it, each at most 512 bytes."""

    data: bytes
    media_type: str
    before: str = ""
    after: str = ""
    ocr_text: str = ""


class Captioner(Protocol):
    """A vision model."""

    home: bool

    @property
    def model(self) -> str: ...

    async def caption(self, picture: Picture) -> Caption:
        """Raises like an Extractor, and `llm_answer_invalid`."""
        ...

    async def offered(self) -> Sequence[str]: ...

    async def close(self) -> None: ...
