"""`docmill completion`: the script that a shell needs to complete commands, options and file names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from docmill.cli.output import standard_output

VARIABLE = "_DOCMILL_COMPLETE"
"""Under this name click looks for the shell's question when it runs as `docmill`."""


@click.command(epilog="Exit codes: 0 done, 2 wrong usage.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print a script that completes docmill's commands and options with the Tab key.

    \b
    bash:  docmill completion bash > ~/.local/share/bash-completion/completions/docmill
    zsh:   docmill completion zsh > ~/.docmill-completion.zsh
           echo 'source ~/.docmill-completion.zsh' >> ~/.zshrc
    fish:  docmill completion fish > ~/.config/fish/completions/docmill.fish
    """
    from docmill.cli.group import root

    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - the choice above is what click has
    with standard_output() as out:
        out.line(found(root, {}, "docmill", VARIABLE).source().rstrip())
