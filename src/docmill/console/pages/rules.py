"""Rules: a list, and an editor that says on which line a schema is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from docmill.console.schema_text import Flaw, form_of, read
from docmill.console.visit import Form, Visit
from docmill.core.errors import Conflict, DocmillError, Invalid, NotFound
from docmill.core.rules import MODES, STRATEGIES, Draft, Rule
from docmill.work import rulebook

if TYPE_CHECKING:
    from docmill.console.app import Console

PAGE = 200
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
    return _editor(console, visit, None, example, _text(example.json_schema))


async def edit(console: Console, visit: Visit) -> Response:
    rule = await _rule(visit)
    return _editor(console, visit, rule, _draft_of(rule), _text(rule.json_schema))


async def add(console: Console, visit: Visit, form: Form) -> Response:
    return await _save(console, visit, None, form)


async def save(console: Console, visit: Visit, form: Form) -> Response:
    return await _save(console, visit, await _rule(visit), form)


async def delete(console: Console, visit: Visit, _: Form) -> Response:
    await rulebook.remove(visit.ports, visit.who, (await _rule(visit)).id)
    return console.redirect(visit, "/rules?said=deleted")


async def check(console: Console, visit: Visit, form: Form) -> Response:
    """What is wrong with a schema while it is typed, and the form that it makes."""
    text = form.get("json_schema")
    schema, flaws = read(text) if text.strip() else (None, [])
    return console.render(visit, "rule_check.html", flaws=flaws, fields=form_of(schema) if schema else [])


async def _save(console: Console, visit: Visit, rule: Rule | None, form: Form) -> Response:
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
    if flaws:
        return _editor(console, visit, rule, draft, text, flaws=flaws, status=422)
    try:
        if not 1 <= len(draft.name) <= 255:
            raise Invalid("request_invalid", why="name: 1 to 255 characters.")
        if rule is None:
            rule = await rulebook.add(visit.ports, visit.who, draft)
        else:
            rule = await rulebook.replace(visit.ports, visit.who, rule.id, draft)
    except (Invalid, Conflict) as error:
        return _editor(console, visit, rule, draft, text, error=error, status=error.status)
    return console.redirect(visit, f"/rules/{rule.id}?said=saved")


def _editor(
    console: Console,
    visit: Visit,
    rule: Rule | None,
    draft: Draft,
    text: str,
    *,
    flaws: list[Flaw] | None = None,
    error: DocmillError | None = None,
    status: int = 200,
) -> Response:
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
