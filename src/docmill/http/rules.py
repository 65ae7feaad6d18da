"""Rules: how the Markdown of a task is treated."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from docmill.core.face import iso
from docmill.core.rules import Draft, Rule, mode_or_default
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems
from docmill.http.wire import Json
from docmill.work import rulebook

MAX_OFFSET = 2**63 - 1

router = APIRouter(prefix="/api/v1/etl", tags=["rules"], responses=problems(403, 404, 409, 429))


class RuleIn(BaseModel):
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


@router.get("/rules", response_model=RuleList, summary="The default rule, and the caller's own")
async def get_rules(
    who: Caller,
    ports: Bound,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
) -> Json:
    rules, total = await rulebook.page(ports, who, limit=limit, offset=offset)
    return Json({"rules": [rule_json(rule) for rule in rules], "total": total, "limit": limit, "offset": offset})


@router.post("/rules", status_code=201, response_model=RuleOut, summary="Make a rule")
async def post_rule(rule: RuleIn, who: Caller, ports: Bound) -> Json:
    return Json(rule_json(await rulebook.add(ports, who, rule.draft())), 201)


@router.get("/rules/{rule_id}", response_model=RuleOut, summary="A rule")
async def get_rule(rule_id: int, who: Caller, ports: Bound) -> Json:
    return Json(rule_json(await rulebook.get(ports, who, rule_id)))


@router.put("/rules/{rule_id}", response_model=RuleOut, summary="Replace a rule")
async def put_rule(rule_id: int, rule: RuleIn, who: Caller, ports: Bound) -> Json:
    return Json(rule_json(await rulebook.replace(ports, who, rule_id, rule.draft())))


@router.delete("/rules/{rule_id}", status_code=204, summary="Delete a rule")
async def delete_rule(rule_id: int, who: Caller, ports: Bound) -> None:
    await rulebook.remove(ports, who, rule_id)


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
