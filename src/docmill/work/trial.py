"""Try a rule on a document that is already here. Nothing is saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from docmill.core.access import Principal
from docmill.core.errors import Conflict, DocmillError, NotFound
from docmill.core.extraction import Extraction
from docmill.core.output import skip_output
from docmill.core.rules import Draft, Rule
from docmill.core.task import Task
from docmill.ports import Ports
from docmill.work import documents, query, rulebook
from docmill.work.extracting import NotExtracted, extract
from docmill.work.stages.parse import load


@dataclass(frozen=True, slots=True)
class Trial:
    """How a task with this rule would end."""

    task_id: int
    output: Any = None
    extraction: Extraction | None = None
    error: DocmillError | None = None


async def try_rule(ports: Ports, who: Principal, rule: Draft | int, on: int | UUID) -> Trial:
    """*rule*: a draft, or the id of a rule; *on*: the id of a task, or of the document that it made."""
    chosen: Rule | Draft = rulebook.checked(rule) if isinstance(rule, Draft) else await rulebook.get(ports, who, rule)
    task = await _task(ports, who, on)
    if not task.artifacts.parsed_key:
        raise Conflict("artifact_missing", stage="postprocess", needs="Markdown artifact")
    parsed = await load(ports, task.tenant, task.artifacts.parsed_key)
    if chosen.mode != "llm":
        return Trial(task.id, skip_output(task.filename, parsed.markdown))
    try:
        found = await extract(ports, chosen, task, parsed)
    except NotExtracted as failed:
        return Trial(task.id, None, failed.kept, failed.error)
    return Trial(task.id, found.value, found)


async def _task(ports: Ports, who: Principal, on: int | UUID) -> Task:
    if isinstance(on, int):
        return await query.task(ports, who, on)
    document = await documents.get_document(ports, who, on)
    made_by = (document.meta.external_ref or {}).get("task_id", "")
    if not made_by.isdecimal():
        # It was stored from outside: there are no pages of ours to read.
        raise NotFound("document_not_found")
    return await query.task(ports, who, int(made_by))
