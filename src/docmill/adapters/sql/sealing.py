"""Encryption of secrets in the database: AES-256-GCM with keys derived from the deployment's secret.

    sealed:<id of the key>:<base64 of nonce and ciphertext>

Each value is bound to the row it belongs to, so that it cannot be copied to another row.
"""

from __future__ import annotations

import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

PREFIX = "sealed:"
NONCE_BYTES = 12
PURPOSE = b"docmill data at rest"


class Unreadable(Exception):
    """No known key opens the value: the deployment's secret was lost or changed, or the value was altered."""


@dataclass(frozen=True)
class SealingKey:
    raw: bytes

    @cached_property
    def id(self) -> str:
        return sha256(b"id " + self.raw).hexdigest()[:8]

    def encrypt(self, text: str, bound_to: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # most starts need none of it

        nonce = os.urandom(NONCE_BYTES)
        return b64encode(nonce + AESGCM(self.raw).encrypt(nonce, text.encode(), bound_to.encode())).decode()

    def decrypt(self, body: str, bound_to: str) -> str:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            data = b64decode(body, validate=True)
            return AESGCM(self.raw).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound_to.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise Unreadable from error


class Sealer:
    def __init__(self, secrets: Callable[[], Sequence[bytes]]) -> None:
        """*secrets*: the deployment's secret, then older ones whose values are still read. Asked when first needed."""
        self._secrets = secrets

    @cached_property
    def _keys(self) -> list[SealingKey]:
        return [SealingKey(hmac.digest(secret, PURPOSE, "sha256")) for secret in self._secrets()]

    @property
    def mark(self) -> str:
        """How every value begins that the current key sealed."""
        return f"{PREFIX}{self._keys[0].id}:"

    def seal(self, text: str, *, bound_to: str) -> str:
        return self.mark + self._keys[0].encrypt(text, bound_to)

    def unseal(self, value: str, *, bound_to: str) -> str:
        """The text. A value from before there was encryption is returned as it is. Else `Unreadable`."""
        if not value.startswith(PREFIX):
            return value
        key_id, _, body = value.removeprefix(PREFIX).partition(":")
        for key in self._keys:
            if key.id == key_id:
                return key.decrypt(body, bound_to)
        raise Unreadable
