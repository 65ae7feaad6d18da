"""A callback token: made for one attempt, sent to its worker, kept as SHA-256 only."""

from __future__ import annotations

import secrets
from hashlib import sha256


def new_token() -> str:
    return f"cb_{secrets.token_urlsafe(32)}"


def digest(token: str) -> str:
    """How a token is stored."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
