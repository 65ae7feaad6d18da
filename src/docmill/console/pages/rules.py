"""Rules: a list, and an editor that says on which line a schema is wrong and tries the rule on a document."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from docmill.console.schema_text import Flaw, form_of, read
from docmill.console.visit import Form, Visit
from docmill.core.errors import Conflict, DocmillError, Invalid, NotFound
from docmill.core.pointer import parse, resolve
from docmill.core.provenance import Source
from docmill.core.rules import MODES, STRATEGIES, Draft, Rule
from docmill.core.task import Task
from docmill.ports import Filter
from docmill.work import query, rulebook, trial
from docmill.work.trial import Trial

if TYPE_CHECKING:
    from docmill.console.app import Console

PAGE = 200
RECENT = 50
"""Documents that are offered to try a rule on."""
MOST_SHOWN = 100_000
"""Characters of an output that a page shows."""
EXAMPLE = {
    "type": "object",
    "properties": {
        "number": {"type": "string", "title": "Invoice number"},
        "date": {"type": "string", "format": "date", "title": "Date"},
        "total": {"type": "number", "title": "Total"},
    },
    "required": ["number", "total"],
}


async def show(console: Console, visit: Visit) -> Response:
    rules, total = await rulebook.page(visit.ports, visit.who, limit=PAGE, offset=0)
    return console.render(visit, "rules.html", page="rules", rules=rules, total=total, said=visit.query("said"))


async def new(console: Console, visit: Visit) -> Response:
    example = Draft(name="", json_schema=EXAMPLE)
    return await _editor(console, visit, None, example, _text(example.json_schema))


async def edit(console: Console, visit: Visit) -> Response:
    rule = await _rule(visit)
    return await _editor(console, visit, rule, _draft_of(rule), _text(rule.json_schema))


async def add(console: Console, visit: Visit, form: Form) -> Response:
    return await _save(console, visit, None, form)


async def save(console: Console, visit: Visit, form: Form) -> Response:
    return await _save(console, visit, await _rule(visit), form)


async def delete(console: Console, visit: Visit, form: Form) -> Response:
    rule, _ = await _rule(visit), visit.words
    if not form.is_confirmed:
        return console.confirm(
            visit,
            form,
            title=_("Delete the rule %(name)s?", name=rule.name),
            losses=[
                _("Its schema, instructions and description are deleted and cannot be restored."),
                _("Tasks that still wait for this rule will fail. Existing results are kept."),
            ],
            button=_("Delete"),
            back=f"/rules/{rule.id}",
        )
    await rulebook.remove(visit.ports, visit.who, rule.id)
    return console.redirect(visit, "/rules?said=deleted")


async def check(console: Console, visit: Visit, form: Form) -> Response:
    """What is wrong with a schema while it is typed, and the form that it makes."""
    text = form.get("json_schema")
    schema, flaws = read(text) if text.strip() else (None, [])
    return console.render(visit, "rule_check.html", flaws=flaws, fields=form_of(schema) if schema else [])


async def test(console: Console, visit: Visit, form: Form) -> Response:
    """Try the rule as it stands in the editor. Nothing is saved."""
    rule = await _rule(visit) if "rule_id" in visit.request.path_params else None
    draft, text, flaws = (_draft_of(rule), "", list[Flaw]()) if rule and rule.is_default else _typed(form)
    if flaws:
        return await _editor(console, visit, rule, draft, text, flaws=flaws, status=422)
    chosen = form.get("task")
    try:
        if not chosen.isdecimal() or len(chosen) > 18:
            raise Invalid("request_invalid", why=visit.words("Select a document."))
        found = await trial.try_rule(visit.ports, visit.who, draft, int(chosen))
        shown = await _shown(visit, found)
    except (Invalid, Conflict, NotFound) as error:
        return await _editor(console, visit, rule, draft, text, error=error, status=error.status)
    return await _editor(console, visit, rule, draft, text, tried=shown)


def _typed(form: Form) -> tuple[Draft, str, list[Flaw]]:
    text = form.get("json_schema")
    schema, flaws = read(text) if text.strip() else (None, [])
    draft = Draft(
        name=form.get("name").strip(),
        description=form.get("description").strip(),
        json_schema=schema,
        system_prompt=form.get("system_prompt").strip() or None,
        mode=form.get("mode", "llm"),
        strategy=form.get("strategy") or None,
    )
    return draft, text, flaws


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial as the page shows it."""

    trial: Trial
    task: Task
    output: str
    sources: list[tuple[Source, str]]
    """Each with its value."""


async def _shown(visit: Visit, found: Trial) -> Tried:
    output = json.dumps(found.output, indent=2, ensure_ascii=False)
    sources = found.extraction.provenance if found.extraction else ()
    values = [(one, _text_of(found.extraction.value, one.pointer)) for one in sources if found.extraction]
    return Tried(found, await query.task(visit.ports, visit.who, found.task_id), output[:MOST_SHOWN], values)


def _text_of(value: Any, pointer: str) -> str:
    found = resolve(value, parse(pointer))
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


async def _save(console: Console, visit: Visit, rule: Rule | None, form: Form) -> Response:
    draft, text, flaws = _typed(form)
    if flaws:
        return await _editor(console, visit, rule, draft, text, flaws=flaws, status=422)
    try:
        if not 1 <= len(draft.name) <= 255:
            raise Invalid("request_invalid", why=visit.words("The name must have 1 to 255 characters."))
        if rule is None:
            rule = await rulebook.add(visit.ports, visit.who, draft)
        else:
            rule = await rulebook.replace(visit.ports, visit.who, rule.id, draft)
    except (Invalid, Conflict) as error:
        return await _editor(console, visit, rule, draft, text, error=error, status=error.status)
    return console.redirect(visit, f"/rules/{rule.id}?said=saved")


async def _editor(
    console: Console,
    visit: Visit,
    rule: Rule | None,
    draft: Draft,
    text: str,
    *,
    flaws: list[Flaw] | None = None,
    error: DocmillError | None = None,
    tried: Tried | None = None,
    status: int = 200,
) -> Response:
    recent = await query.tasks(visit.ports, Filter(visit.who.owner, status="completed", limit=RECENT))
    return console.render(
        visit,
        "rule.html",
        status,
        page="rules",
        rule=rule,
        draft=draft,
        text=text,
        flaws=flaws or [],
        error=error,
        fields=form_of(draft.json_schema) if draft.json_schema else [],
        modes=MODES,
        strategies=STRATEGIES,
        documents=[one for one in recent.tasks if one.artifacts.parsed_key],
        tried=tried,
        said=visit.query("said"),
    )


async def _rule(visit: Visit) -> Rule:
    rule_id: int = visit.request.path_params["rule_id"]
    if rule_id >= 2**63:
        raise NotFound("rule_not_found", rule=rule_id)
    return await rulebook.get(visit.ports, visit.who, rule_id)


def _draft_of(rule: Rule) -> Draft:
    return Draft(rule.name, rule.description, rule.json_schema, rule.system_prompt, rule.mode, rule.strategy)


def _text(schema: dict[str, Any] | None) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) if schema is not None else ""
