"""The command `docmill`. Commands load when they are called: `--help` imports none of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from docmill import __version__

# name -> (module:attribute, help line). The line stands here so that `--help` needs no import.
COMMANDS: dict[str, tuple[str, str]] = {
    "convert": ("docmill.cli.convert:convert", "Turn files and folders into twins, without a server."),
    "plan": ("docmill.cli.plan:plan", "Say what would happen to a document; nothing runs."),
    "serve": ("docmill.cli.serve:serve", "Run the service: HTTP API and workers in one process."),
    "worker": ("docmill.cli.worker:worker", "Run a worker beside others, on PostgreSQL, Redis and S3."),
    "worker-server": ("docmill.cli.worker_server:worker_server", "Run an external worker: jobs in, callbacks out."),
    "demo": ("docmill.cli.demo:demo", "Show a run from end to end on the sample documents."),
    "submit": ("docmill.cli.submit:submit", "Send files to the service."),
    "tasks": ("docmill.cli.tasks:tasks", "List, show, follow, cancel, retry and mount tasks."),
    "watch": ("docmill.cli.tasks:watch", "Follow a task to its end; the same as tasks follow."),
    "cancel": ("docmill.cli.tasks:cancel", "Cancel a task; the same as tasks cancel."),
    "retry": ("docmill.cli.tasks:retry", "Run a finished task again; the same as tasks retry."),
    "deliveries": ("docmill.cli.jobs:deliveries", "Show the callbacks that external workers sent for a task."),
    "trigger": ("docmill.cli.jobs:trigger", "Send a correct test callback for a task's job."),
    "rules": ("docmill.cli.rules:rules", "List, show, add, replace and remove rules."),
    "tables": ("docmill.cli.tables:tables", "List, show, add and remove tables, into which results are mounted."),
    "docs": ("docmill.cli.documents:docs", "List, show, fetch and delete stored documents."),
    "assets": ("docmill.cli.documents:assets", "List, show and fetch the images and tables of a document."),
    "onedrive": ("docmill.cli.onedrive:onedrive", "Let docmill write twins to OneDrive."),
    "keys": ("docmill.cli.keys:keys", "Create, list and revoke API keys."),
    "db": ("docmill.cli.db:db", "Check and upgrade the database."),
    "doctor": ("docmill.cli.doctor:doctor", "Look for what would keep docmill from working."),
    "check": ("docmill.cli.check:check", "Check documents, assets and blobs against their contracts."),
    "schema": ("docmill.cli.schema:schema", "Print the JSON Schema of a contract."),
    "explain": ("docmill.cli.explain:explain", "Say what an error code means and what to do next."),
}


class LazyGroup(click.Group):
    """A group that imports a command only when it is called."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's name
        rows = [(name, line) for name, (_, line) in self.lazy.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="docmill")
def main() -> None:
    """Turn documents into clean, validated, addressable content."""
