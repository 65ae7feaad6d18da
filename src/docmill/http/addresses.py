"""The address under which a caller reaches this service, for links in answers to that caller."""

from __future__ import annotations

import re

from starlette.requests import Request

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::[0-9]{1,5})?")


def base_url(request: Request) -> str:
    """As the caller spelled it, without a slash at the end. A proxy in between says what it was asked for.

    The forwarded headers are believed from everybody: a caller who forges them gets a wrong link, and nobody else does.
    """
    headers = request.headers
    scheme = _first(headers.get("x-forwarded-proto", "")).lower()
    host = _first(headers.get("x-forwarded-host", ""))
    if scheme not in ("http", "https"):
        scheme = request.url.scheme
    if not _HOST.fullmatch(host):
        host = headers.get("host", "")
    return f"{scheme}://{host if _HOST.fullmatch(host) else request.url.netloc}"


def _first(value: str) -> str:
    return value.split(",", 1)[0].strip()
