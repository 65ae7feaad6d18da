"""The page of all commands, made from their own help: `python -m docmill.cli.reference [FILE]` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from docmill.cli.group import root

HEAD = """\
# Commands

<!-- Made by 'python -m docmill.cli.reference'; a test keeps it the same as what the commands say. -->

`docmill COMMAND --help` prints what stands here. [Checking contracts](cli-contracts.md) tells more about `check`,
`schema` and `explain`.

## Settings
`convert`, `serve`, `keys`, `db` and `doctor` take a setting from its flag, else from the environment (`DOCMILL_DATA`,
`DOCMILL_PORT`, …), else from `docmill.toml` in the working folder, else its default. The commands that talk to a
service find it by `--url` or `DOCMILL_URL`, and send the API key in `DOCMILL_API_KEY`; no flag takes a secret.

## Output
Results go to standard output, everything else to standard error. `--json` prints one JSON value, `--jsonl` one per
line. Colours and live displays appear on a terminal only. An error is one line with its stable code; `docmill explain
CODE` tells more.

## Exit codes
| code | meaning |
|---|---|
| 0 | done |
| 1 | tried, but not all succeeded: a document, a task or a check failed |
| 2 | wrong usage, a setting that cannot be used, or no service at the address |
| 3 | `check`: a value breaks its contract |
| 4 | the service answered with an error; its code is printed |
| 5 | `convert`, `submit`: done, but some files are of unsupported types; `--ignore-unsupported` accepts them |
| 130 | interrupted by SIGINT; the command says how to go on |
| 141 | the reader of the output went away, as with `\\| head` |
| 143 | ended by SIGTERM |

`serve`, `worker` and `worker-server` exit with 0 when SIGINT or SIGTERM stops them, also while they start. They exit
with 130 or 143 if a second signal ends them at once, or if they did not stop within the grace period and 2 seconds.
"""
WIDTH = 100


def page() -> str:
    return HEAD + "".join(_sections(root, click.Context(root, info_name="docmill", **root.context_settings), 2))


def _sections(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """A section per command, groups before what is in them."""
    context.terminal_width = context.max_content_width = WIDTH
    if isinstance(command, click.Group):
        if context.parent:
            yield _section(context, command, level)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _sections(
                    inner, click.Context(inner, info_name=name, parent=context), level + bool(context.parent)
                )
        return
    yield _section(context, command, level)


def _section(context: click.Context, command: click.Command, level: int) -> str:
    return f"\n{'#' * level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
    target.write_text(page(), "utf-8")
