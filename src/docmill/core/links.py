"""Links in Markdown, found in linear time.

A pattern with two unbounded runs (`\\[[^\\]]*\\]\\([^)]*\\)`) begins anew at each bracket and reads to the end of the
text: 60,000 of `[` take seconds. Here no run goes past the place where the next match could begin: a label ends at the
next bracket, a target at the next `](`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

LABEL: Final = r"[^\[\]]*+"
"""Pattern of what stands between the brackets."""
LINE_LABEL: Final = r"[^\[\]\n]*+"
TARGET: Final = r"(?:[^)>\s\]]++|\](?!\())++"
"""Pattern of an address without blanks."""
IMAGE: Final = re.compile(rf"!\[{LABEL}\]\((?:[^)\]]++|\](?!\())*+\)")

_TARGET: Final = re.compile(rf"\]\(<?({TARGET})>?((?:\s++\"[^\"]*+\")?\))")


def without_images(markdown: str) -> str:
    return IMAGE.sub("", markdown)


def replace_targets(markdown: str, resolve: Callable[[str], str | None]) -> str:
    """Put *resolve(target)* in place of each link's target; None leaves the link as it is."""

    def mend(match: re.Match[str]) -> str:
        target = resolve(match[1])
        return match[0] if target is None else f"]({target}{match[2]}"

    return _TARGET.sub(mend, markdown)
