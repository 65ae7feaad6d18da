"""The local engine: everything from packages, in child processes that may die without harm.

engine   LocalEngine: warm children, recycling, long documents shared out
slots    places for children
process  one child as its parent sees it: spawn, run, kill
gathering  what comes out of a document, from one child or several
frames   what the two say to each other
child    the other side: confine, preload, serve
confine  limits, no network, death with the parent
sniff    which type the bytes are
guards   bombs, refused before anything is parsed
job      one document inside the child: pages and figures go out through it
drawing  one page as a picture
damage   pictures that are not what was written
reading  which reader a type has; coverage: the second reader that every result is compared with
pdf, image, office, sheets, web, mail, outlook, text, lightweight (rst, org, asciidoc, latex), records, notebook,
markup, picture, xps, iwork, korean, archive: the formats; members: documents inside documents; ocr, xml, compact:
what they share
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import LocalEngine, parse_file
    from .limits import Limits

__all__ = ["Limits", "LocalEngine", "parse_file"]

_HOMES = {"LocalEngine": "engine", "parse_file": "engine", "Limits": "limits"}


def __getattr__(name: str) -> Any:
    """Resolved when asked for: a child imports this package too, and needs none of the parent's half."""
    if name not in _HOMES:
        raise AttributeError(name)
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
