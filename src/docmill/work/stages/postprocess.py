"""Postprocess: the rule turns Markdown into the task's output."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from docmill.core.errors import NotFound
from docmill.core.extraction import Extraction
from docmill.core.face import listed_result
from docmill.core.machine import WIRE_STAGE, StageResult
from docmill.core.output import skip_output
from docmill.core.provenance import tally
from docmill.core.rules import Rule
from docmill.core.task import Stage
from docmill.ports import Ports
from docmill.work.extracting import NotExtracted, extract
from docmill.work.objects import objects
from docmill.work.stages.parse import load
from docmill.work.stages.step import AtStage, Step


async def run(ports: Ports, step: Step) -> StageResult:
    rule = await ports.rules.get(step.task.rule_id, step.owner)
    if rule is None:
        raise NotFound("rule_not_found", rule=step.task.rule_id)
    if rule.mode == "llm":
        return await _extracted(ports, step, rule)
    markdown = (await objects(ports, step.task.tenant).read(step.task.artifacts.markdown_key or "")).decode()
    output = msgspec.json.encode(skip_output(step.task.filename, markdown))
    output_key = await _keep(ports, step, "output.json", output)
    return StageResult(
        artifacts=replace(step.task.artifacts, output_key=output_key, extraction_key=None),
        output=listed_result(output),
        facts={"rule": rule.id, "mode": rule.mode},
    )


async def _extracted(ports: Ports, step: Step, rule: Rule) -> StageResult:
    parsed = await load(ports, step.task.tenant, step.task.artifacts.parsed_key or "")
    try:
        extraction = await extract(ports, rule, step.task, parsed)
    except NotExtracted as failed:
        # What the model said last is worth reading: it tells whether the rule, the model or the document is at fault.
        said = msgspec.json.encode(failed.kept)
        kept = await _keep(ports, step, "extraction.json", said) if failed.kept.answer else None
        artifacts = replace(step.task.artifacts, extraction_key=kept)
        raise AtStage(failed.error, WIRE_STAGE[Stage.POSTPROCESS], artifacts) from failed
    extraction_key = await _keep(ports, step, "extraction.json", msgspec.json.encode(extraction))
    output = msgspec.json.encode(extraction.value)
    output_key = await _keep(ports, step, "output.json", output)
    return StageResult(
        artifacts=replace(step.task.artifacts, output_key=output_key, extraction_key=extraction_key),
        output=listed_result(output),
        facts={"rule": rule.id, "mode": rule.mode, **facts_of(extraction)},
    )


def facts_of(extraction: Extraction) -> dict[str, Any]:
    return {
        "model": extraction.model,
        "strategy": extraction.strategy,
        "tries": extraction.tries,
        "tokens": extraction.tokens,
        "provenance": tally(extraction.provenance),
    }


async def _keep(ports: Ports, step: Step, name: str, data: bytes) -> str:
    stored = await objects(ports, step.task.tenant).put_bytes(step.key(name), data)
    return stored.key
