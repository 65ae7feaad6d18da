"""Files of types that cannot be read: which they are, and how they are listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from docmill.cli.output import Out, near, printable
from docmill.core.errors import DocmillError

MAX_UNSUPPORTED_LISTED = 20
"""A folder of programs has thousands of them. --jsonl lists all."""


def refusal(path: Path) -> DocmillError | None:
    """Why a file that lies in a folder is not a document; None: it is one, by its name or its bytes.

    Source code, logs of machines and the like are text as well; who wants them converted names them.
    """
    from docmill.adapters.engines import sniff
    from docmill.adapters.engines.local.reading import READERS

    if sniff.claimed(path.name) in READERS:
        return None
    try:
        found = sniff.sniff(path)
    except OSError:
        return None  # whoever reads it learns why that cannot be done
    if found in READERS.keys() - sniff.TEXTS:
        return None
    return sniff.refuse(found)


def type_name(path: Path) -> str:
    """What people call the type of a file: its extension."""
    return printable(path.suffix[1:].upper()) or "no extension"


def list_unsupported(out: Out, paths: Sequence[Path]) -> Iterator[str]:
    word = out.style("unsupported", fg="yellow")
    for path in paths[:MAX_UNSUPPORTED_LISTED]:
        yield f"{word}: {printable(near(path))} ({type_name(path)})"
    if len(paths) > MAX_UNSUPPORTED_LISTED:
        types = Counter(type_name(path) for path in paths[MAX_UNSUPPORTED_LISTED:])
        most = ", ".join(f"{count} {name}" for name, count in types.most_common(5))
        yield f"{word}: {len(paths) - MAX_UNSUPPORTED_LISTED} more ({most})"
