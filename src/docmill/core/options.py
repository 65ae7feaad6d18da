"""The options of a task, and which engine takes which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from docmill.core.errors import Invalid

PARSE_OPTIONS: Final = frozenset({"language", "ocr", "page_images", "max_pages", "stay_home", "budget_pages"})
"""Every engine takes them."""
SECRETARY_OPTIONS: Final = frozenset(
    {"extraction_method", "target_language", "use_cache", "include_images", "force_refresh", "template"}
)
"""Fields of the start request of a secretary worker. No other engine could honour them."""
MAX_NAMES_LENGTH: Final = 200


def check_options(options: Mapping[str, Any], *, engine: str, dialect: str | None = None) -> None:
    """Refuse options that the engine does not know. *dialect*: of the external worker, if the engine is one."""
    known = PARSE_OPTIONS | SECRETARY_OPTIONS if dialect == "secretary" else PARSE_OPTIONS
    if unknown := sorted(options.keys() - known):
        names = ", ".join(f"'{name}'" for name in unknown)[:MAX_NAMES_LENGTH]
        raise Invalid("option_unknown", engine=engine, options=names, known=", ".join(sorted(known)))
