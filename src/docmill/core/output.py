"""The output of a task: what `result` shows and `mount` mounts."""

from __future__ import annotations

from typing import Any


def stem_of(filename: str) -> str:
    """`report.final.pdf` is `report.final`; a name that is all extension keeps it."""
    stem, dot, _ = filename.rpartition(".")
    return stem if dot and stem else filename


def skip_output(filename: str, markdown: str) -> dict[str, Any]:
    """The Markdown itself under the file's stem: no ids, no keys."""
    return {stem_of(filename): {"filename": filename, "content": markdown}}
