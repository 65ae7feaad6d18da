"""Origins of web pages (RFC 6454), as browsers send them."""

from __future__ import annotations

import re
from typing import Final

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


def parse_origin(text: str) -> str:
    """The origin as a browser spells it: lower case, and the port only if it is not the scheme's own."""
    origin = text.strip().lower().removesuffix("/")
    if not _ORIGIN.fullmatch(origin):
        raise ValueError(f"'{text}' is not an origin such as https://app.example.org (no path, no wildcard)")
    port = _DEFAULT_PORTS.get(origin.partition("://")[0])
    return origin.removesuffix(port) if port else origin
