"""Extraction by a language model behind an OpenAI-compatible server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from docmill.ports import Answered, Question

if TYPE_CHECKING:
    from docmill.adapters.providers.chat import Chat


@dataclass(slots=True)
class OpenAIExtractor:
    chat: Chat
    max_tokens: int = 8192
    """Of one answer."""
    home: bool = False

    @property
    def model(self) -> str:
        return self.chat.model

    async def answer(self, question: Question) -> Answered:
        roles = ("user", "assistant")
        turns = [{"role": roles[number % 2], "content": text} for number, text in enumerate(question.turns)]
        messages = [{"role": "system", "content": question.system}, *turns]
        said = await self.chat.say(messages, schema=question.schema, max_tokens=self.max_tokens)
        return Answered(said.text, said.model, said.tokens, said.cut)

    async def offered(self) -> list[str]:
        return await self.chat.models()

    async def close(self) -> None:
        await self.chat.close()
