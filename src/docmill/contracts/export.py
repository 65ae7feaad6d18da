"""Publishes the contracts as files: `python -m docmill.contracts.export` writes them anew."""

import json
from pathlib import Path

from .checking import KINDS
from .schema import json_schema

SCHEMAS = Path(__file__).parent / "schemas"


def published(kind: str) -> str:
    """The text of the schema file of this *kind*."""
    return json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n"


def write(folder: Path = SCHEMAS) -> None:
    folder.mkdir(exist_ok=True)
    for kind in KINDS:
        (folder / f"{kind}.json").write_text(published(kind), encoding="utf-8")


if __name__ == "__main__":
    write()
