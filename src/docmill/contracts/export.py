"""The contracts as JSON Schema. `python -m docmill.contracts.export` writes the published files anew."""

import json
from pathlib import Path
from typing import Any

from .checking import ADAPTERS

SCHEMAS = Path(__file__).parent / "schemas"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: str) -> dict[str, Any]:
    """What a valid value of this *kind* looks like, as far as JSON Schema can say it."""
    return {"$schema": _DIALECT, "$id": f"urn:docmill:contracts:{kind}", **ADAPTERS[kind].json_schema()}


def published(kind: str) -> str:
    """The text of the schema file of this *kind*."""
    return json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n"


def write(folder: Path = SCHEMAS) -> None:
    folder.mkdir(exist_ok=True)
    for kind in ADAPTERS:
        (folder / f"{kind}.json").write_text(published(kind), encoding="utf-8")


if __name__ == "__main__":
    write()
