"""The root of the commands. A command is imported when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from docmill import __version__
from docmill.cli import COMMANDS, INTRO


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


@click.group(
    name="docmill", cls=LazyGroup, lazy=COMMANDS, help=INTRO, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="docmill")
def root() -> None:
    pass
