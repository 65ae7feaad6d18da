"""How much one document may cost."""

from __future__ import annotations

import re
from dataclasses import dataclass

NO_MEMORY = re.compile(
    r"bad.alloc|MemoryError|memory allocation of|(out of|insufficient) memory|(cannot|failed to|could not) allocate"
    r"|failed to map segment",
    re.IGNORECASE,
)
"""How libraries say that there was no memory left, whatever they do then."""


@dataclass(frozen=True, slots=True)
class Limits:
    seconds: float = 600
    """Wall time of one document; processor time has the same limit."""
    render_seconds: float = 30
    """The same for one page as a picture: somebody sits there and waits."""
    memory_mb: int = 3072
    """Address space of a child."""
    output_mb: int = 512
    """Markdown and figures of one document together."""
    pages: int = 10_000
    pixels: int = 120_000_000
    """Of one image, or of one frame of it."""
    zip_entries: int = 20_000
    zip_mb: int = 1024
    """What a packed document may inflate to."""
    zip_entry_mb: int = 512
    zip_ratio: int = 300
    """Inflated to packed size of one entry, once it is larger than a few MB."""
    members: int = 1000
    """Documents inside one document, however deep."""
    member_depth: int = 3
    member_seconds: float = 120
    """Wall time of one document inside another."""
    documents_per_child: int = 50
    child_rss_mb: int = 900
    """A child that kept more than this after a document is replaced."""
