"""The ports, as a parameter of a route."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from docmill.ports import Ports


async def bound(request: Request) -> Ports:
    ports: Ports = request.app.state.ports
    return ports


Bound = Annotated[Ports, Depends(bound)]
