"""The contracts as JSON Schema."""

from typing import Any

from .checking import ADAPTERS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: str) -> dict[str, Any]:
    """What a value of this *kind* looks like once it is normalised, as far as JSON Schema can say it.

    A check accepts more, since it normalises, and refuses more, since it compares fields.
    """
    return {"$schema": _DIALECT, "$id": f"urn:docmill:contracts:{kind}", **ADAPTERS[kind].json_schema()}
