"""Files of types that cannot be read: which they are, and how they are listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from docmill.cli.output import Out, near, printable

MAX_UNSUPPORTED_LISTED = 20
"""A folder of programs has thousands of them. --jsonl lists all."""


def unsupported_type(path: Path) -> str | None:
    """The type of a file that lies in a folder and is not a document; None: it is one, by its name or its bytes.

    Source code, logs of machines and the like are text as well; who wants them converted names them.
    """
    from docmill.adapters.engines import sniff
    from docmill.adapters.engines.local.reading import READERS

    if sniff.claimed(path.name) in READERS:
        return None
    try:
        found = sniff.sniff(path)
    except OSError:
        return type_name(path)
    is_document = found in READERS.keys() - {sniff.TEXT, sniff.MARKDOWN, sniff.CSV, sniff.HTML, sniff.EML}
    return None if is_document else type_name(path)


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
