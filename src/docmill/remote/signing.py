"""Signatures over the raw body, fed piece by piece so that a body of any size may be a file.

legacy    X-Kohakku-Signature: sha256=<hex of HMAC-SHA256(key, "<job id>:<body>")>
standard  Standard Webhooks: webhook-id, webhook-timestamp, webhook-signature: v1,<base64 of HMAC-SHA256(key,
          "<id>.<timestamp>.<body>")>
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from typing import Literal

Signing = Literal["legacy", "standard"]

PREFIX = "whsec_"


def legacy(key: str, job_id: str, body: Iterable[bytes]) -> dict[str, str]:
    mac = _digest(key.encode(), f"{job_id}:", body)
    return {"X-Kohakku-Signature": f"sha256={mac.hexdigest()}"}


def standard(key: str, message_id: str, timestamp: int, body: Iterable[bytes]) -> dict[str, str]:
    mac = _digest(secret(key), f"{message_id}.{timestamp}.", body)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(mac.digest()).decode()}",
    }


def secret(key: str) -> bytes:
    """`whsec_…` is base64, as Standard Webhooks writes it; anything else is taken as it is."""
    if not key.startswith(PREFIX):
        return key.encode()
    try:
        return base64.b64decode(key.removeprefix(PREFIX), validate=True)
    except ValueError:
        raise ValueError("the signing key starts with whsec_, but what follows is not base64") from None


def _digest(key: bytes, head: str, body: Iterable[bytes]) -> hmac.HMAC:
    mac = hmac.new(key, head.encode(), hashlib.sha256)
    for piece in body:
        mac.update(piece)
    return mac
