"""A model behind any OpenAI-compatible server: `chat/completions` and `models`, through our own client.

How a JSON Schema is passed is found out by trying, and remembered: as structured output (`json_schema`), as a wish
for JSON (`json_object`), or in words alone. What is refused for other reasons stays refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from docmill.core.errors import StageFailed

from .client import Answer, ProviderClient

WAYS: Final = ("json_schema", "json_object", "words")
REFUSED_FORM: Final = frozenset({400, 404, 415, 422, 501})
"""How servers say that they do not know a field of the request; also how they say other things."""
MAX_WHY: Final = 300
MAX_READ: Final = 1_000
"""Of a message: what follows is not worth the look."""
CODES: Final = {"provider_busy": "llm_rate_limit", "provider_refused": "llm_refused"}

_ENDINGS = (
    "local|localdomain|internal|intranet|lan|home|corp|private|host|svc|cluster|com|net|org|io|ai|dev|cloud|eu|de|cn"
)
_SECRETS = re.compile(
    r"\w+://\S+"  # addresses
    r"|\bsk-\S+"  # keys
    r"|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?|\[[0-9A-Fa-f:.%]*:[0-9A-Fa-f:.%]*\](?::\d+)?"  # numbers of hosts
    r"|\blocalhost\b(?::\d+)?|\b[A-Za-z][\w.-]*:\d{2,5}\b"  # host:port
    rf"|\b(?:[\w-]+\.)+(?:{_ENDINGS})\b",  # names of hosts
    re.IGNORECASE,
)
"""What a server may say about its surroundings, and nobody shall read."""


@dataclass(frozen=True, slots=True)
class Said:
    text: str
    model: str
    tokens: int | None
    """In and out, as the server counted; None: it did not."""
    cut: bool
    """It would have said more, but had no more room."""


@dataclass(slots=True)
class Chat:
    client: ProviderClient
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """What goes along with every request; null takes a field of ours away."""
    way: str = ""
    """How this server takes a schema, once it is known."""

    async def say(
        self, messages: Sequence[Mapping[str, Any]], *, schema: Mapping[str, Any] | None, max_tokens: int
    ) -> Said:
        """The model's next turn. Raises StageFailed: llm_rate_limit, llm_unreachable, llm_refused."""
        first: Answer | None = None
        for way in self._ways(schema):
            answer = await self._ask(self._body(messages, schema, way, max_tokens))
            if answer.ok:
                if schema is not None:
                    self.way = way
                return self._said(answer)
            first = first or answer
            if answer.status not in REFUSED_FORM:
                break
        assert first is not None  # noqa: S101 - there is at least one way
        raise StageFailed("llm_refused", why=_why(first))

    async def models(self) -> list[str]:
        """What the server has to offer."""
        answer = await self._ask(None)
        if not answer.ok:
            raise StageFailed("llm_refused", why=_why(answer))
        rows = _table(answer).get("data")
        return [str(row.get("id")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    async def close(self) -> None:
        await self.client.close()

    def _ways(self, schema: Mapping[str, Any] | None) -> tuple[str, ...]:
        if schema is None:
            return ("none",)
        return (self.way,) if self.way else WAYS

    def _body(
        self, messages: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None, way: str, max_tokens: int
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "temperature": 0, "max_tokens": max_tokens}
        if way == "json_schema":
            # Not strict: servers that are would refuse schemas beyond their own subset. We check the answer anyway.
            wish = {"name": "extraction", "schema": schema, "strict": False}
            body["response_format"] = {"type": "json_schema", "json_schema": wish}
        elif way == "json_object":
            body["response_format"] = {"type": "json_object"}
        told = list(messages)
        if way in ("json_object", "words"):
            shown = msgspec.json.encode(schema).decode()
            told = [_with(told[0], f"\n\nThe JSON Schema:\n{shown}"), *told[1:]]
        body |= {"messages": told, **self.options}
        return {name: value for name, value in body.items() if value is not None}

    async def _ask(self, body: dict[str, Any] | None) -> Answer:
        try:
            if body is None:
                return await self.client.ask("GET", "models", tries=1, seconds=10)
            return await self.client.ask("POST", "chat/completions", json=body)
        except StageFailed as failed:
            raise _ours(failed) from failed

    def _said(self, answer: Answer) -> Said:
        table = _table(answer)
        choices = table.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(message, dict):
            raise StageFailed("llm_unreachable", why="its answer has no message")
        text = message.get("content")
        usage = table.get("usage")
        total = usage.get("total_tokens") if isinstance(usage, dict) else None
        return Said(
            text if isinstance(text, str) else "",
            str(table.get("model") or self.model)[:200],
            total if isinstance(total, int) and not isinstance(total, bool) and total >= 0 else None,
            choice.get("finish_reason") == "length",
        )


def _with(message: Mapping[str, Any], more: str) -> dict[str, Any]:
    return {**message, "content": f"{message['content']}{more}"}


def _table(answer: Answer) -> dict[str, Any]:
    try:
        return answer.table()
    except StageFailed as failed:
        raise _ours(failed) from failed


def _ours(failed: StageFailed) -> StageFailed:
    return StageFailed(CODES.get(failed.code, "llm_unreachable"), why=failed.facts["why"])


def _why(answer: Answer) -> str:
    """What the server says, without addresses and keys."""
    if answer.status in (401, 403):
        return f"it does not accept the key ({answer.status})"
    try:
        told = answer.table().get("error")
    except StageFailed:
        told = None
    message = told.get("message") if isinstance(told, dict) else told
    if not isinstance(message, str) or not message.strip():
        return f"it answers {answer.status}"
    return f"{_SECRETS.sub('…', ' '.join(message[:MAX_READ].split()))[:MAX_WHY]} ({answer.status})"
