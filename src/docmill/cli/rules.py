"""`docmill rules`: how the Markdown of a task is treated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from docmill.cli import api as service
from docmill.cli.api import ETL, json_option, url_option
from docmill.cli.output import Out, printable, standard_output
from docmill.cli.table import write_fields, write_table

TRIAL_S = 600.0
TEST_EXITS = (
    "Exit codes: 0 done, 1 the model gave no valid answer, 2 wrong usage or no service there, 4 the service refused."
)
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
    """List, show, add, replace, test and remove rules."""


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


@rules.command("test", epilog=TEST_EXITS)
@click.argument("rule_id", type=click.IntRange(1), metavar="[ID]", required=False)
@click.option("--task", "task_id", type=click.IntRange(1), help="Task whose document it is tried on.")
@click.option("--document", "document_id", type=click.UUID, help="Document that it is tried on; or --task.")
@click.option(
    "--schema",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Instead of ID: file with the JSON Schema of a draft.",
)
@click.option("--prompt", help="System prompt of the draft.")
@click.option("--strategy", type=click.Choice(("direct-json", "chunked-summarize")), help="Of the draft.")
@url_option
@json_option
def test_rule(
    rule_id: int | None,
    task_id: int | None,
    document_id: UUID | None,
    schema: Path | None,
    prompt: str | None,
    strategy: str | None,
    url: str,
    as_json: bool,
) -> None:
    """Try a rule, or the draft of one, on a document; nothing is saved."""
    if (rule_id is None) == (schema is None):
        raise click.UsageError("Give either the ID of a rule or --schema.")
    if (task_id is None) == (document_id is None):
        raise click.UsageError("Give either --task or --document.")
    draft = {"name": "draft", "json_schema": read_json(schema), "system_prompt": prompt} if schema else None
    if draft and strategy:
        draft["postprocess_strategy"] = strategy
    body = {
        "rule_id": rule_id,
        "rule": draft,
        "task_id": task_id,
        "document_id": str(document_id) if document_id else None,
    }
    found = service.run(url, lambda api: api.call("POST", f"{ETL}/rules/test", json=body, timeout=TRIAL_S))
    with standard_output() as out:
        if as_json:
            out.json(found)
        else:
            _show_trial(out, found)
    if not found["valid"]:
        raise SystemExit(1)


def _show_trial(out: Out, found: dict[str, Any]) -> None:
    extraction = found["extraction"] or {}
    if found["valid"]:
        for line in json.dumps(found["output"], ensure_ascii=False, indent=2).split("\n"):
            out.line(printable(line))
    else:
        out.line(printable(f"{found['error_code']}: {found['error']}"))
        for error in extraction.get("errors", ()):
            out.line(f"- {printable(error)}")
        if extraction.get("answer"):
            out.line("The last answer:")
            out.line(printable(extraction["answer"]))
    if extraction.get("provenance"):
        out.line("")
        rows = [(one["pointer"], one["found"], one["page"], one["text"]) for one in extraction["provenance"]]
        write_table(out, ("VALUE", "FOUND", "PAGE", "AS"), rows)


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
