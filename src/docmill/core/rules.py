"""A rule says how `postprocess` treats the Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from docmill.core.errors import Invalid

MODES = ("skip", "llm")
STRATEGIES = ("direct-json", "chunked-summarize")
DEFAULT_NAME = "global_default"


@dataclass(frozen=True, slots=True)
class Draft:
    """A rule as somebody wrote it, before it has an id."""

    name: str
    description: str = ""
    json_schema: dict[str, Any] | None = None
    system_prompt: str | None = None
    mode: str = "llm"
    strategy: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    id: int
    name: str
    description: str
    json_schema: dict[str, Any] | None
    system_prompt: str | None
    mode: str
    strategy: str | None
    is_default: bool
    created_ms: int
    updated_ms: int


DEFAULT = Draft(name=DEFAULT_NAME, description="Keeps the Markdown as it is; no language model is called.", mode="skip")


def mode_or_default(mode: str | None, json_schema: object) -> str:
    """Whoever names no mode but gives a schema wants it filled in."""
    if mode is not None:
        return mode
    return "skip" if json_schema is None else "llm"


def check(draft: Draft) -> Draft:
    """Mode and strategy are known, and mode `llm` has a schema. The schema's validity is judged by a library."""
    if draft.mode not in MODES:
        raise Invalid("rule_mode_unknown", mode=draft.mode[:64])
    if draft.strategy is not None and draft.strategy not in STRATEGIES:
        raise Invalid("rule_strategy_unknown", strategy=draft.strategy[:64])
    if draft.mode == "llm" and draft.json_schema is None:
        raise Invalid("rule_schema_required")
    return draft
