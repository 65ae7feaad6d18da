"""The command `docmill`. Commands load when they are called, and `--help` needs not even click."""

from __future__ import annotations

import sys

INTRO = "Turn documents into clean, validated, addressable content."

# Heading -> name -> (module:attribute, help line). The lines stand here so that `--help` needs no import.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Convert on this machine": {
        "convert": ("docmill.cli.convert:convert", "Turn files and folders into twins, without a server."),
        "plan": ("docmill.cli.plan:plan", "Say what would happen to a document; nothing runs."),
        "demo": ("docmill.cli.demo:demo", "Show a run from end to end on the sample documents."),
    },
    "Run a service": {
        "serve": ("docmill.cli.serve:serve", "Run the service: HTTP API and workers in one process."),
        "worker": ("docmill.cli.worker:worker", "Run a worker beside others, on PostgreSQL, Redis and S3."),
        "worker-server": ("docmill.cli.worker_server:worker_server", "Run an external worker: jobs in, callbacks out."),
        "mcp": ("docmill.cli.mcp:mcp", "Offer the service to language models: an MCP server."),
    },
    "Give work to a service": {
        "submit": ("docmill.cli.submit:submit", "Send files and folders to the service."),
        "inbox": ("docmill.cli.inbox:inbox", "Watch a folder: what is laid there becomes a task."),
        "tasks": ("docmill.cli.tasks:tasks", "List, show, follow, cancel, retry and mount tasks."),
        "watch": ("docmill.cli.tasks:watch", "Follow a task to its end; the same as tasks follow."),
        "cancel": ("docmill.cli.tasks:cancel", "Cancel a task; the same as tasks cancel."),
        "retry": ("docmill.cli.tasks:retry", "Run a finished task again; the same as tasks retry."),
    },
    "Use the results": {
        "docs": ("docmill.cli.documents:docs", "List, show, fetch and delete stored documents."),
        "assets": ("docmill.cli.documents:assets", "List, show and fetch the images and tables of a document."),
        "rules": ("docmill.cli.rules:rules", "List, show, add, replace and remove rules."),
        "tables": ("docmill.cli.tables:tables", "List, show, add and remove tables, into which results are mounted."),
        "webhooks": ("docmill.cli.webhooks:webhooks", "Have programs told when tasks end, and see what was sent."),
        "deliveries": ("docmill.cli.jobs:deliveries", "Show the callbacks that external workers sent for a task."),
        "trigger": ("docmill.cli.jobs:trigger", "Send a correct test callback for a task's job."),
    },
    "Administer": {
        "doctor": ("docmill.cli.doctor:doctor", "Look for what would keep docmill from working."),
        "keys": ("docmill.cli.keys:keys", "Create, list and revoke API keys."),
        "db": ("docmill.cli.db:db", "Check and upgrade the database."),
        "backup": ("docmill.cli.backup:write_backup", "Write everything into one archive."),
        "restore": ("docmill.cli.backup:restore_backup", "Restore an archive into an empty deployment."),
        "onedrive": ("docmill.cli.onedrive:onedrive", "Let docmill write twins to OneDrive."),
    },
    "Look up": {
        "explain": ("docmill.cli.explain:explain", "Say what an error code means and what to do next."),
        "check": ("docmill.cli.check:check", "Check documents, assets and blobs against their contracts."),
        "schema": ("docmill.cli.schema:schema", "Print the JSON Schema of a contract."),
        "completion": ("docmill.cli.completion:completion", "Print a script that completes commands in your shell."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
STOPPED_BY_SIGNALS = frozenset({"serve", "worker", "worker-server", "convert"})
"""Commands that SIGINT and SIGTERM end in order, from the first instruction on."""
COMMAND_WIDTH = max(map(len, COMMANDS))
EXIT_INTERRUPTED = 130
OPTIONS = {"--version": "Show the version and exit.", "-h, --help": "Show this message and exit."}


def main() -> None:
    if STOPPED_BY_SIGNALS.intersection(sys.argv[1:2]):
        # Before all other imports: until then a signal has its default effect, or the one that was inherited.
        from docmill.cli import shutdown

        shutdown.install(is_service=sys.argv[1] != "convert")
    else:
        exit_on_interrupt()
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(help_page())  # noqa: T201 - click would take four times as long to load as this takes in all
        return
    from docmill.cli.group import root

    root()


def exit_on_interrupt() -> None:
    """Until the command is imported Ctrl-C ends the process at once: nothing is open, and there is nothing to say."""
    import os
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as in a script's background job
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))


def raise_on_interrupt() -> None:
    """From here on Ctrl-C is an exception, so that the command can close what it opened."""
    import signal

    handler = signal.getsignal(signal.SIGINT)
    if getattr(handler, "__module__", None) == __name__:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def help_page() -> str:
    """What click would print, in the width of the terminal."""
    import os
    from textwrap import wrap

    try:
        columns = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size().columns
    except (ValueError, OSError):
        columns = 80
    width = max(min(columns, 80) - 2, 50)

    def section(title: str, rows: dict[str, str]) -> list[str]:
        indent = (COMMAND_WIDTH if rows is not OPTIONS else max(map(len, rows))) + 4
        lines = [f"{title}:"]
        for name, text in rows.items():
            first, *others = wrap(text, max(width - indent, 10))
            lines += [f"  {name}".ljust(indent) + first, *(" " * indent + other for other in others)]
        return lines

    intro = [f"  {line}" for line in wrap(INTRO, width - 2)]
    lines = ["Usage: docmill [OPTIONS] COMMAND [ARGS]...", "", *intro, "", *section("Options", OPTIONS)]
    for title, commands in SECTIONS.items():
        lines += ["", *section(title, {name: line for name, (_, line) in commands.items()})]
    return "\n".join(lines)
