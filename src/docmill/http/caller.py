"""Who calls, as a parameter of a route."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from docmill.core.access import Principal
from docmill.core.errors import Forbidden
from docmill.http.auth import Authenticator

_FORWARDED = ("x-forwarded-for", "forwarded", "x-real-ip", "via")


async def caller(request: Request) -> Principal:
    auth: Authenticator = request.app.state.auth
    who = await auth.identify(request.headers)
    request.state.who = who
    return who


async def operator(who: Annotated[Principal, Depends(caller)]) -> Principal:
    if not who.is_operator:
        raise Forbidden("forbidden")
    return who


Caller = Annotated[Principal, Depends(caller)]
Operator = Annotated[Principal, Depends(operator)]


def is_local_peer(request: Request) -> bool:
    """Whether the request comes from this machine itself, and neither through a proxy on it nor from a rebound page."""
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    try:
        return _is_loopback(request.client.host) and _is_loopback(request.url.hostname or "")
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
