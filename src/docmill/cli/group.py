"""The root of the commands. A command is imported when it is called."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any

import click
from click.shell_completion import CompletionItem

from docmill import __version__
from docmill.cli import COMMAND_WIDTH, EXIT_INTERRUPTED, INTRO, SECTIONS, raise_on_interrupt

Commands = dict[str, tuple[str, str]]


class LazyGroup(click.Group):
    """A group that imports a command only when it is called."""

    def __init__(self, *args: Any, sections: dict[str, Commands] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections or {}
        self.lazy = {name: entry for section in self.sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        raise_on_interrupt()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Click knows which commands are similar only of those that are imported."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            name = error.command_name
            if Path(name).exists():
                kind = "folder" if Path(name).is_dir() else "file"
                message = f"'{name}' is a {kind}, not a command. Convert it with: docmill convert {quote(name)}"
                raise click.NoSuchCommand(name, message, ctx=ctx) from None
            raise click.NoSuchCommand(name, possibilities=self.lazy, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Ctrl-C ends every command with the exit code that a shell expects, and without click's 'Aborted!'."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
            raise SystemExit(EXIT_INTERRUPTED) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Without importing each command for its help line."""
        names = [
            CompletionItem(name, help=line) for name, (_, line) in self.lazy.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's name
        for title, commands in self.sections.items():
            with formatter.section(title):
                # Padded, so that the help lines of all sections stand in one column.
                formatter.write_dl([(name.ljust(COMMAND_WIDTH), line) for name, (_, line) in commands.items()])


@click.group(
    name="docmill",
    cls=LazyGroup,
    sections=SECTIONS,
    help=INTRO,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="docmill")
def root() -> None:
    pass
