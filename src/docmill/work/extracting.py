"""Ask a language model for what a rule's schema describes, check what it says, and trace it back to the document."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import jsonschema_rs

from docmill.core import extraction, provenance
from docmill.core.errors import DocmillError, StageFailed
from docmill.core.extraction import MAX_ANSWER_TOLD, MAX_ERRORS_TOLD, TRIES, Extraction, Unreadable
from docmill.core.parsed import Parsed
from docmill.core.pointer import render
from docmill.core.rules import Draft, Rule
from docmill.core.task import Task
from docmill.ports import Answered, Extractor, Ports, Question
from docmill.work.rulebook import validator_of

MAX_WHY = 300
ROUNDS = 3
"""Of summarising: notes that stay long are taken as they are."""
PIECES_AT_ONCE = 4
STAGE_SHARE = 0.9
"""Of the stage's time: then there is still some left to keep what the model said."""


class NotExtracted(Exception):
    """It ended in an error; what there is of it is kept for reading."""

    def __init__(self, error: DocmillError, kept: Extraction) -> None:
        super().__init__(error.message)
        self.error = error
        self.kept = kept


@dataclass(slots=True)
class Talk:
    """One extraction's conversation with the model, within its budgets."""

    extractor: Extractor
    tokens_left: int
    ends: float
    spent: int = 0
    model: str = ""
    answer: str = ""
    tries: int = 0
    errors: tuple[str, ...] = ()
    pieces: int = 1
    _budget: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._budget = self.tokens_left

    async def ask(self, question: Question) -> Answered:
        expected = extraction.tokens_in(question.system, *question.turns)
        if expected > self.tokens_left:
            raise StageFailed("llm_budget", why=f"{self.spent + expected} of {self._budget} tokens")
        # Taken at once, for several pieces are asked about at the same time.
        self.tokens_left -= expected
        left = self.ends - monotonic()
        try:
            async with asyncio.timeout(max(left, 0)):
                answered = await self.extractor.answer(question)
        except TimeoutError as error:
            raise StageFailed("llm_budget", why="its time is over") from error
        self.tokens_left += expected
        used = answered.tokens if answered.tokens is not None else expected + extraction.tokens_in(answered.text)
        self.spent += used
        self.tokens_left -= used
        self.model, self.answer = answered.model, answered.text
        return answered


async def extract(ports: Ports, rule: Rule | Draft, task: Task, parsed: Parsed) -> Extraction:
    """What the rule's schema describes. Raises NotExtracted with the error and the last answer."""
    strategy = extraction.strategy_for(rule.strategy, parsed.markdown)
    if ports.extractor is None:
        raise NotExtracted(StageFailed("llm_not_configured"), Extraction(strategy))
    if stays_home(ports, task) and not ports.extractor.home:
        raise NotExtracted(StageFailed("llm_forbidden"), Extraction(strategy))
    schema = rule.json_schema or {}
    seconds = min(ports.limits.llm_seconds, ports.limits.task_timeout_s * STAGE_SHARE)
    talk = Talk(ports.extractor, ports.limits.llm_tokens, monotonic() + seconds)
    try:
        text, summarised = parsed.markdown, strategy == "chunked-summarize"
        if summarised:
            text = await _notes(talk, rule, schema, text)
        value = await _value(talk, rule, schema, extraction.task_of(text, notes=summarised))
    except DocmillError as error:
        raise NotExtracted(error, _result(talk, strategy)) from error
    sources = await asyncio.to_thread(provenance.trace, value, parsed.pages)
    return replace(_result(talk, strategy), value=value, valid=True, provenance=sources, errors=())


def stays_home(ports: Ports, task: Task) -> bool:
    """The house may be strict, or the document."""
    return ports.limits.stay_home or task.wishes.parse.get("stay_home") is True


def _result(talk: Talk, strategy: str) -> Extraction:
    return Extraction(
        strategy,
        model=talk.model or talk.extractor.model,
        tries=talk.tries,
        pieces=talk.pieces,
        tokens=talk.spent,
        answer=talk.answer,
        errors=talk.errors,
    )


async def _value(talk: Talk, rule: Rule | Draft, schema: dict[str, Any], task: str) -> Any:
    """Up to three tries; the errors of each go back to the model."""
    system = extraction.system_of(extraction.SYSTEM, rule.system_prompt)
    validator = validator_of(schema)
    turns = [task]
    for number in range(1, TRIES + 1):
        talk.tries = number
        answered = await talk.ask(Question(system, tuple(turns), schema))
        try:
            value = extraction.read_answer(answered.text)
            talk.errors = await asyncio.to_thread(_errors, validator, value)
        except Unreadable as error:
            talk.errors = (str(error),)
        if not talk.errors:
            return value
        if answered.cut:
            talk.errors = ("it was cut off: be brief", *talk.errors)
        told = answered.text[:MAX_ANSWER_TOLD] or "(empty)"
        turns = [task, told, extraction.correction(talk.errors, schema)]
    raise StageFailed("llm_answer_invalid", tries=TRIES, why=talk.errors[0])


def _errors(validator: Any, value: Any) -> tuple[str, ...]:
    found = []
    try:
        for error in validator.iter_errors(value):
            place = render(str(step) for step in error.instance_path)
            found.append(f"at '{place[:MAX_WHY]}': {error.message[:MAX_WHY]}")
            if len(found) == MAX_ERRORS_TOLD:
                break
    except (ValueError, jsonschema_rs.ValidationError) as error:
        found.append(f"it cannot be judged: {str(error)[:MAX_WHY]}")
    return tuple(found)


async def _notes(talk: Talk, rule: Rule | Draft, schema: dict[str, Any], text: str) -> str:
    """Notes on every piece, in order; notes that are too long themselves are noted again."""
    talk.pieces = len(extraction.pieces(text))
    for _ in range(ROUNDS):
        parts = extraction.pieces(text)
        if len(parts) == 1:
            break
        text = "\n\n".join(await _noted(talk, rule, schema, parts))
    return text


async def _noted(talk: Talk, rule: Rule | Draft, schema: dict[str, Any], parts: Sequence[str]) -> list[str]:
    system = extraction.system_of(extraction.NOTES, rule.system_prompt)
    gate = asyncio.Semaphore(PIECES_AT_ONCE)

    async def one(number: int, part: str) -> str:
        question = Question(system, (extraction.piece_of(part, number, len(parts), schema),), None)
        async with gate:
            for _ in range(TRIES):
                answered = await talk.ask(question)
                if answered.text.strip() and not answered.cut:
                    return f"Part {number}:\n{answered.text.strip()}"
        raise StageFailed("llm_answer_invalid", tries=TRIES, why=f"no notes on part {number} of {len(parts)}")

    try:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(one(number, part)) for number, part in enumerate(parts, 1)]
    except* DocmillError as several:
        raise several.exceptions[0] from several
    return [task.result() for task in asked]
