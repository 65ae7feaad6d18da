"""`docmill rules`: how the Markdown of a task is treated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from docmill.cli import api as service
from docmill.cli.api import ETL, json_option, url_option
from docmill.cli.output import standard_output
from docmill.cli.table import write_fields, write_table

EXITS = "Exit codes: 0 done, 2 wrong usage or no service there, 4 the service refused."

rule_argument = click.argument("rule_id", type=click.IntRange(1), metavar="ID")


def rule_options(command: Any) -> Any:
    for option in reversed(
        (
            click.argument("name"),
            click.option("--description", help="What it is for."),
            click.option("--mode", type=click.Choice(("skip", "llm")), help="Default: llm with a schema, else skip."),
            click.option(
                "--schema",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="File with the JSON Schema of what is extracted.",
            ),
            click.option("--prompt", help="System prompt for the language model."),
            click.option("--strategy", type=click.Choice(("direct-json", "chunked-summarize"))),
        )
    ):
        command = option(command)
    return command


@click.group()
def rules() -> None:
    """List, show, add, replace and remove rules."""


@rules.command("list", epilog=EXITS)
@url_option
@json_option
def list_rules(url: str, as_json: bool) -> None:
    """List the default rule and your own."""
    found = service.run(url, lambda api: api.get(f"{ETL}/rules", limit=1000))
    with standard_output() as out:
        if as_json:
            out.json(found)
            return
        rows = [
            (one["id"], one["postprocess_mode"], one["postprocess_strategy"], one["name"], one["description"])
            for one in found["rules"]
        ]
        write_table(out, ("RULE", "MODE", "STRATEGY", "NAME", "DESCRIPTION"), rows)


@rules.command("show", epilog=EXITS)
@rule_argument
@url_option
@json_option
def show_rule(rule_id: int, url: str, as_json: bool) -> None:
    """Show a rule."""
    _show(service.run(url, lambda api: api.get(f"{ETL}/rules/{rule_id}")), as_json=as_json)


@rules.command("add", epilog=EXITS)
@rule_options
@url_option
@json_option
def add_rule(url: str, as_json: bool, **asked: Any) -> None:
    """Add a rule."""
    body = _body(asked)
    _show(service.run(url, lambda api: api.post(f"{ETL}/rules", body)), as_json=as_json)


@rules.command("replace", epilog=EXITS)
@rule_argument
@rule_options
@url_option
@json_option
def replace_rule(rule_id: int, url: str, as_json: bool, **asked: Any) -> None:
    """Replace a rule."""
    body = _body(asked)
    _show(service.run(url, lambda api: api.call("PUT", f"{ETL}/rules/{rule_id}", json=body)), as_json=as_json)


@rules.command("remove", epilog=EXITS)
@rule_argument
@url_option
def remove_rule(rule_id: int, url: str) -> None:
    """Remove a rule."""
    service.run(url, lambda api: api.call("DELETE", f"{ETL}/rules/{rule_id}"))


def _body(asked: dict[str, Any]) -> dict[str, Any]:
    body = {
        "name": asked["name"],
        "description": asked["description"],
        "json_schema": read_json(asked["schema"]) if asked["schema"] else None,
        "system_prompt": asked["prompt"],
        "postprocess_mode": asked["mode"],
        "postprocess_strategy": asked["strategy"],
    }
    return {name: value for name, value in body.items() if value is not None}


def read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise click.UsageError(f"{file} is not JSON: {error}.") from error


def _show(rule: dict[str, Any], *, as_json: bool) -> None:
    with standard_output() as out:
        if as_json:
            out.json(rule)
            return
        schema = json.dumps(rule["json_schema"], ensure_ascii=False) if rule["json_schema"] else None
        hidden = ("rule_id", "json_schema")
        write_fields(out, {name: value for name, value in rule.items() if name not in hidden} | {"json_schema": schema})
