"""Postprocess: the rule turns Markdown into the task's output."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from docmill.core.errors import NotFound, StageFailed
from docmill.core.machine import StageResult
from docmill.core.output import skip_output
from docmill.core.rules import Rule
from docmill.ports import Ports
from docmill.work.objects import objects
from docmill.work.stages.step import Step


async def run(ports: Ports, step: Step) -> StageResult:
    rule = await ports.rules.get(step.task.rule_id, step.owner)
    if rule is None:
        raise NotFound("rule_not_found", rule=step.task.rule_id)
    markdown = (await objects(ports, step.task.tenant).read(step.task.artifacts.markdown_key or "")).decode()
    output = await _output(rule, step, markdown)
    stored = await objects(ports, step.task.tenant).put_bytes(step.key("output.json"), msgspec.json.encode(output))
    return StageResult(
        artifacts=replace(step.task.artifacts, output_key=stored.key), facts={"rule": rule.id, "mode": rule.mode}
    )


async def _output(rule: Rule, step: Step, markdown: str) -> dict[str, Any]:
    if rule.mode == "llm":
        raise StageFailed("llm_not_configured")
    return skip_output(step.task.filename, markdown)
