"""The settings of a command that opens the database itself. A command that only reads creates nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from docmill.cli.failure import Trouble

if TYPE_CHECKING:
    from docmill.settings import Settings

OVERRIDDEN = "--data has no effect here, because {} is set ({}). Leave out the flag, or unset {}."


def load_settings(data: Path | None, *, create: bool, with_objects: bool = False) -> Settings:
    """The settings in force for *data*.

    Refuses a flag --data that other settings override. Unless *create*, there must be a database already, so that a
    misspelt folder is an error and not a new database. *with_objects*: the command also uses the object store.
    """
    from docmill import settings

    chosen = settings.load(data=data)
    is_overridden = chosen.database_url and (chosen.objects_url or not with_objects)
    if data is not None and is_overridden:
        origin = settings.origins(data=data)["database_url"]
        raise Trouble(OVERRIDDEN.format("database_url", origin, "it"))
    if not create and not chosen.database_url and not (chosen.data / "docmill.db").exists():
        raise Trouble(f"There is no database in {chosen.data}. 'docmill db upgrade' creates one.")
    return chosen
