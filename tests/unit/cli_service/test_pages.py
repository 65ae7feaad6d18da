"""What the commands say of themselves, and the page that repeats it."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from docmill.cli import COMMANDS, reference
from docmill.cli.group import root

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    """`python -m docmill.cli.reference` writes it again."""
    assert reference.page() == PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_explains_itself(name: str) -> None:
    shown = CliRunner().invoke(root, [name, "--help"])

    assert (0, True) == (shown.exit_code, f"Usage: docmill {name}" in shown.output)


def commands(group: click.Group, path: str = "") -> list[tuple[str, click.Command]]:
    found = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += (
            commands(command, f"{path} {name}") if isinstance(command, click.Group) else [(f"{path} {name}", command)]
        )
    return found


@pytest.mark.parametrize(("path", "command"), commands(root))
def test_every_command_has_a_sentence_and_no_option_takes_a_secret(path: str, command: click.Command) -> None:
    assert (command.help or "").strip()
    names = {name for parameter in command.params for name in parameter.opts}
    assert not {name for name in names if any(word in name for word in ("secret", "token", "password", "api-key"))}
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in ("help", "strategy"):
            assert option.help, f"{path}: {option.name}"
