"""Rules: checked before they are kept, and seen only by their owner. The default rule belongs to all and to nobody."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NoReturn

import jsonschema_rs
import msgspec

from docmill.core.access import Principal
from docmill.core.errors import Conflict, Invalid, NotFound, StorageFull, Unavailable
from docmill.core.pointer import render
from docmill.core.rules import Draft, Rule, check
from docmill.ports import Ports

MAX_WHY = 300
MAX_SCHEMA = 256 * 1024
MAX_PATTERNS = 500
PATTERNS = jsonschema_rs.RegexOptions(size_limit=1024**2, dfa_size_limit=1024**2)
"""Patterns are matched in linear time and have a bounded size. Look-around and back-references are refused: to compile
ten of them stops the service for a second."""


async def page(ports: Ports, who: Principal, *, limit: int, offset: int) -> tuple[list[Rule], int]:
    """The caller's rules after the default rule, and how many there are in all."""
    with suppress(Unavailable, StorageFull):  # a list without the default rule is better than none
        await ports.rules.default()
    return await ports.rules.list(who.owner, limit=limit, offset=offset)


async def get(ports: Ports, who: Principal, rule_id: int) -> Rule:
    rule = await ports.rules.get(rule_id, who.owner)
    if rule is None:
        raise NotFound("rule_not_found", rule=rule_id)
    return rule


async def add(ports: Ports, who: Principal, draft: Draft) -> Rule:
    return await ports.rules.add(checked(draft), who.owner)


async def replace(ports: Ports, who: Principal, rule_id: int, draft: Draft) -> Rule:
    await _changeable(ports, who, rule_id)
    rule = await ports.rules.replace(rule_id, checked(draft), who.owner)
    if rule is None:
        raise NotFound("rule_not_found", rule=rule_id)
    return rule


async def remove(ports: Ports, who: Principal, rule_id: int) -> None:
    await _changeable(ports, who, rule_id)
    if not await ports.rules.remove(rule_id, who.owner):
        raise NotFound("rule_not_found", rule=rule_id)


def checked(draft: Draft) -> Draft:
    """The draft itself, if mode, strategy and schema are what a stage can work with; else Invalid."""
    check(draft)
    if draft.json_schema is not None:
        _check_schema(draft.json_schema)
    return draft


async def _changeable(ports: Ports, who: Principal, rule_id: int) -> None:
    if (await get(ports, who, rule_id)).is_default:
        raise Conflict("rule_global")


def _check_schema(schema: dict[str, Any]) -> None:
    """Against its meta-schema, with every regular expression and every reference in it."""
    text = msgspec.json.encode(schema)
    if len(text) > MAX_SCHEMA:
        raise Invalid("rule_schema_invalid", why=f"it has more than {MAX_SCHEMA} bytes.")
    if text.count(b'"pattern') > MAX_PATTERNS:
        raise Invalid("rule_schema_invalid", why=f"it has more than {MAX_PATTERNS} patterns.")
    try:
        validator_of(schema)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        place = render(str(step) for step in getattr(error, "instance_path", ()))
        raise Invalid("rule_schema_invalid", why=_sentence(place, error.message)) from None
    except ValueError as error:
        raise Invalid("rule_schema_invalid", why=_sentence("", str(error))) from None


def validator_of(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """Judges values by a schema that was checked; nothing is fetched for it."""
    return jsonschema_rs.validator_for(schema, retriever=_never_fetched, pattern_options=PATTERNS)


def _sentence(place: str, message: str) -> str:
    said = message if len(message) <= MAX_WHY else f"{message[:MAX_WHY]}…"
    return f"at '{place[:MAX_WHY]}': {said}" if place else said


def _never_fetched(uri: str) -> NoReturn:
    raise ValueError(f"a rule's schema must be complete in itself, and {uri[:100]} is not part of it")
