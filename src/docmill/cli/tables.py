"""`docmill tables`: JSON values of a project, into which results are mounted."""

from __future__ import annotations

import json
from pathlib import Path

import click

from docmill.cli import api as service
from docmill.cli.api import json_option, url_option
from docmill.cli.output import standard_output
from docmill.cli.rules import read_json
from docmill.cli.table import short_time, write_table

EXITS = "Exit codes: 0 done, 2 wrong usage or no service there, 4 the service refused."

table_argument = click.argument("table_id", type=click.IntRange(1), metavar="ID")
project_option = click.option("--project", type=click.IntRange(0), default=0, show_default=True, help="The project.")


@click.group()
def tables() -> None:
    """List, show, add and remove tables, into which results are mounted."""


@tables.command("list", epilog=EXITS)
@project_option
@url_option
@json_option
def list_tables(project: int, url: str, as_json: bool) -> None:
    """List the tables of a project."""
    found = service.run(url, lambda api: api.get(f"/api/v1/projects/{project}/tables"))
    with standard_output() as out:
        if as_json:
            out.json(found)
            return
        rows = [(one["id"], short_time(one["updated_at"]), one["name"]) for one in found["tables"]]
        write_table(out, ("TABLE", "UPDATED", "NAME"), rows)


@tables.command("show", epilog=EXITS)
@table_argument
@click.option("--pointer", default="", metavar="POINTER", help="Only what is there: a JSON Pointer.")
@url_option
def show_table(table_id: int, pointer: str, url: str) -> None:
    """Print the value of a table as JSON."""
    value = service.run(url, lambda api: api.get(f"/api/v1/tables/{table_id}/data", pointer=pointer))
    with standard_output() as out:
        out.line(json.dumps(value, ensure_ascii=False, indent=2))


@tables.command("add", epilog=EXITS)
@click.argument("name")
@project_option
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the JSON value; default: an empty object.",
)
@url_option
@json_option
def add_table(name: str, project: int, data: Path | None, url: str, as_json: bool) -> None:
    """Add a table."""
    body = {"name": name, "data": read_json(data) if data else {}}
    table = service.run(url, lambda api: api.post(f"/api/v1/projects/{project}/tables", body))
    with standard_output() as out:
        if as_json:
            out.json(table)
        else:
            out.line(f"table {table['id']}")


@tables.command("remove", epilog=EXITS)
@table_argument
@url_option
def remove_table(table_id: int, url: str) -> None:
    """Remove a table."""
    service.run(url, lambda api: api.call("DELETE", f"/api/v1/tables/{table_id}"))
