"""`docmill onedrive`: let docmill into somebody's drive."""

from __future__ import annotations

import asyncio

import click

from docmill.cli.failure import told


@click.group()
def onedrive() -> None:
    """Let docmill write twins to OneDrive."""


@onedrive.command("login", epilog="Exit codes: 0 signed in, 2 it is not set up, or the sign-in failed.")
def login() -> None:
    """Sign in with a code, once. The setting `onedrive` names the app registration."""
    with told():
        from docmill import compose, settings

        chosen = settings.load()
        chosen.data.mkdir(parents=True, exist_ok=True)
        asyncio.run(compose.onedrive_tokens(chosen).sign_in(click.echo))
        click.echo("Signed in. Twins whose folder begins with onedrive: can be written now.")
