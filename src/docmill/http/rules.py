"""Rules: how the Markdown of a task is treated."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field, model_validator

from docmill.core.face import iso
from docmill.core.rules import Draft, Rule, mode_or_default
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems
from docmill.http.strict import StrictModel
from docmill.http.wire import Json
from docmill.work import query, rulebook, trial

MAX_OFFSET = 2**63 - 1

RuleId = Annotated[int, Path(ge=-MAX_OFFSET, le=MAX_OFFSET)]

router = APIRouter(prefix="/api/v1/etl", tags=["rules"], responses=problems(403, 404, 409, 410, 429))


class RuleIn(StrictModel):
    name: str = Field(min_length=1, max_length=255)
    description: str | None = Field(None, max_length=4096)
    json_schema: dict[str, Any] | None = None
    system_prompt: str | None = Field(None, max_length=100_000)
    postprocess_mode: str | None = Field(
        None, description="llm or skip; left out: llm if there is a json_schema, else skip"
    )
    postprocess_strategy: str | None = Field(None, description="direct-json or chunked-summarize")

    def draft(self) -> Draft:
        return Draft(
            name=self.name,
            description=self.description or "",
            json_schema=self.json_schema,
            system_prompt=self.system_prompt,
            mode=mode_or_default(self.postprocess_mode, self.json_schema),
            strategy=self.postprocess_strategy,
        )


class RuleOut(BaseModel):
    id: int
    rule_id: int
    name: str
    description: str
    json_schema: dict[str, Any] | None
    system_prompt: str | None
    postprocess_mode: str
    postprocess_strategy: str | None
    is_default: bool
    created_at: datetime
    updated_at: datetime


class RuleList(BaseModel):
    rules: list[RuleOut]
    total: int
    limit: int
    offset: int


class TrialIn(StrictModel):
    rule_id: int | None = Field(None, ge=1, le=MAX_OFFSET)
    rule: RuleIn | None = Field(None, description="A draft; or rule_id")
    task_id: int | None = Field(None, ge=1, le=MAX_OFFSET)
    document_id: UUID | None = Field(None, description="A document that a task made; or task_id")

    @model_validator(mode="after")
    def _one_of_each(self) -> TrialIn:
        if (self.rule_id is None) == (self.rule is None):
            raise ValueError("give either rule_id or rule")
        if (self.task_id is None) == (self.document_id is None):
            raise ValueError("give either task_id or document_id")
        return self

    def chosen(self) -> Draft | int:
        return self.rule.draft() if self.rule else self.rule_id or 0

    def on(self) -> int | UUID:
        return self.document_id or self.task_id or 0


class SourceOut(BaseModel):
    pointer: str = Field(description="JSON Pointer to the value within the output")
    found: Literal["verbatim", "normalised", "not_found"]
    page: int | None = Field(description="The first page that has it, counted from 1")
    text: str | None = Field(description="The document's own spelling, where it is another")


class ExtractionOut(BaseModel):
    """How a language model came to an output, or what it said last when it did not."""

    strategy: str
    value: Any
    valid: bool
    provenance: list[SourceOut]
    model: str
    tries: int
    pieces: int
    tokens: int
    answer: str = Field(description="The model's last answer, word for word")
    errors: list[str]


class TrialOut(BaseModel):
    task_id: int
    valid: bool
    output: Any
    extraction: ExtractionOut | None
    error_code: str | None
    error: str | None


@router.get("/rules", response_model=RuleList, summary="The default rule, and the caller's own")
async def list_rules(
    who: Caller,
    ports: Bound,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
) -> Json:
    """The default rule and the rules of the caller."""
    rules, total = await rulebook.page(ports, who, limit=limit, offset=offset)
    return Json({"rules": [rule_json(rule) for rule in rules], "total": total, "limit": limit, "offset": offset})


@router.post("/rules", status_code=201, response_model=RuleOut, summary="Make a rule")
async def create_rule(rule: RuleIn, who: Caller, ports: Bound) -> Json:
    """Create a rule: whether, and with which schema and prompt, a language model extracts values."""
    return Json(rule_json(await rulebook.add(ports, who, rule.draft())), 201)


@router.post("/rules/test", response_model=TrialOut, summary="Try a rule on a task's document; nothing is saved")
async def try_rule(body: TrialIn, who: Caller, ports: Bound) -> Json:
    """Run a rule, or a draft of one, on the document of a task. Nothing is saved."""
    return Json(trial_json(await trial.try_rule(ports, who, body.chosen(), body.on())))


@router.get("/rules/{rule_id}", response_model=RuleOut, summary="A rule")
async def get_rule(rule_id: RuleId, who: Caller, ports: Bound) -> Json:
    """A rule by its id."""
    return Json(rule_json(await rulebook.get(ports, who, rule_id)))


@router.put("/rules/{rule_id}", response_model=RuleOut, summary="Replace a rule")
async def replace_rule(rule_id: RuleId, rule: RuleIn, who: Caller, ports: Bound) -> Json:
    """Replace a rule of the caller."""
    return Json(rule_json(await rulebook.replace(ports, who, rule_id, rule.draft())))


@router.delete("/rules/{rule_id}", status_code=204, summary="Delete a rule")
async def delete_rule(rule_id: RuleId, who: Caller, ports: Bound) -> None:
    """Delete a rule of the caller."""
    await rulebook.remove(ports, who, rule_id)


@router.get(
    "/tasks/{task_id}/extraction",
    response_model=ExtractionOut,
    summary="How a language model came to a task's output, with the provenance of every value",
)
async def get_extraction(task_id: Annotated[int, Path(ge=1, le=MAX_OFFSET)], who: Caller, ports: Bound) -> Json:
    """What the language model answered for a task, and where in the document each value stands."""
    return Json(await query.extraction(ports, who, task_id))


def trial_json(found: trial.Trial) -> dict[str, Any]:
    return {
        "task_id": found.task_id,
        "valid": found.error is None,
        "output": found.output,
        "extraction": found.extraction,
        "error_code": found.error.code if found.error else None,
        "error": found.error.message if found.error else None,
    }


def rule_json(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "rule_id": rule.id,
        "name": rule.name,
        "description": rule.description,
        "json_schema": rule.json_schema,
        "system_prompt": rule.system_prompt,
        "postprocess_mode": rule.mode,
        "postprocess_strategy": rule.strategy,
        "is_default": rule.is_default,
        "created_at": iso(rule.created_ms),
        "updated_at": iso(rule.updated_ms),
    }
