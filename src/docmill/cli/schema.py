"""`docmill schema`: the JSON Schema of the contracts."""

from __future__ import annotations

import json

import click

from docmill.cli.output import standard_output
from docmill.contracts import KINDS, json_schema


@click.command()
@click.argument("kind", type=click.Choice((*KINDS, "all")), metavar="KIND|all")
@click.option("--indent", type=click.IntRange(0, 8), default=2, show_default=True, help="0 prints one line.")
def schema(kind: str, indent: int) -> None:
    """Print the JSON Schema of a contract.

    KIND is document, document-ref, document-meta, blob, asset or asset-ref; all prints one object with the
    schema of every kind.
    """
    value = {name: json_schema(name) for name in KINDS} if kind == "all" else json_schema(kind)
    with standard_output() as out:
        out.line(json.dumps(value, ensure_ascii=False, indent=indent or None))
