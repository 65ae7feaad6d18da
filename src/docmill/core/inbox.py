"""Which files of a watched folder are documents that somebody laid there."""

from __future__ import annotations

from pathlib import PurePath

HALF_WRITTEN = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".download", ".opdownload", ".swp", ".lock", "~")
LOCKS = ("~$", ".~", "#")
"""How office programs and editors begin the names of their own files."""
JUNK = frozenset({"thumbs.db", "desktop.ini"})


def is_wanted(path: PurePath) -> bool:
    """*path*: relative to the watched folder. What is hidden, half written or a program's own file is not wanted."""
    name = path.name.lower()
    is_hidden = any(part.startswith(".") for part in path.parts)
    return not (is_hidden or name.endswith(HALF_WRITTEN) or name.startswith(LOCKS) or name in JUNK)


def content_key(sha256: str) -> str:
    """The Idempotency-Key of a file in an inbox: one task for each content, whatever its name."""
    return f"inbox-{sha256}"
