"""What a route allows of a request's body, declared beside the route and enforced before the route runs.

    @router.post("/tables")
    @accept_body(max_bytes=20 * 1024**2)
    async def post_table(...): ...

A route that declares nothing takes a small JSON body from an authenticated caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

MAX_JSON_DEPTH: Final = 64
MAX_JSON_NODES: Final = 200_000
"""Values, keys and containers. A node costs up to 300 bytes once it is an object: 60 MB."""
MAX_LARGE_JSON_NODES: Final = 1_000_000
"""For routes that store JSON: tables, documents, assets."""
ATTRIBUTE: Final = "__body_limits__"


@dataclass(frozen=True, slots=True)
class BodyLimits:
    max_bytes: int | None = None
    """None: the service's limit for JSON."""
    max_nodes: int = MAX_JSON_NODES
    is_streamed: bool = False
    """The route reads the body itself, piece by piece, and counts it by its own limit."""
    is_public: bool = False
    """The route authenticates by itself before it reads the body, or serves anybody."""
    refuse: Callable[[Any, Any], Any] | None = None
    """Makes the answer to a refused body from the ASGI scope and the error; None: the usual problem document."""


DEFAULT: Final = BodyLimits()


def accept_body(
    *,
    max_bytes: int | None = None,
    max_nodes: int = MAX_JSON_NODES,
    is_streamed: bool = False,
    is_public: bool = False,
    refuse: Callable[[Any, Any], Any] | None = None,
) -> Callable[[Endpoint], Endpoint]:
    """Declare the limits of an endpoint."""
    limits = BodyLimits(max_bytes, max_nodes, is_streamed, is_public, refuse)

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, ATTRIBUTE, limits)
        return endpoint

    return declare


def limits_of(endpoint: Any) -> BodyLimits:
    found = getattr(endpoint, ATTRIBUTE, DEFAULT)
    return found if isinstance(found, BodyLimits) else DEFAULT
