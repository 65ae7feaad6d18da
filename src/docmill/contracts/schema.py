"""The contracts as JSON Schema."""

from typing import Any

from .checking import ADAPTERS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: str) -> dict[str, Any]:
    """What a valid value of this *kind* looks like, as far as JSON Schema can say it."""
    return {"$schema": _DIALECT, "$id": f"urn:docmill:contracts:{kind}", **ADAPTERS[kind].json_schema()}
