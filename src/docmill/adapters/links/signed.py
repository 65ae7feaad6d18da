"""Links to objects that carry their own permission: tenant, key, method and expiry under a signature of ours."""

from __future__ import annotations

import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

import msgspec

from docmill.core.errors import Forbidden

PATH = "/api/v1/objects"
MAX_TOKEN = 4096


class Permission(msgspec.Struct, array_like=True, frozen=True):
    method: str
    tenant: str
    key: str
    expires: int


class SignedLinks:
    def __init__(self, secret: bytes, app_url: str, *, path: str = PATH) -> None:
        self._secret = secret
        self._base = app_url.rstrip("/") + path

    def download(self, tenant: str, key: str, *, seconds: float) -> str:
        return self._link("GET", tenant, key, seconds)

    def upload(self, tenant: str, key: str, *, seconds: float) -> str:
        return self._link("PUT", tenant, key, seconds)

    def read(self, token: str, *, method: str) -> tuple[str, str]:
        body, _, given = token.rpartition(".")
        if len(token) > MAX_TOKEN or not token.isascii() or not hmac.compare_digest(self._sign(body), given):
            raise Forbidden("link_invalid")
        permission = msgspec.json.decode(urlsafe_b64decode(_padded(body)), type=Permission)
        if permission.method != method or permission.expires < time.time():
            raise Forbidden("link_invalid")
        return permission.tenant, permission.key

    def _link(self, method: str, tenant: str, key: str, seconds: float) -> str:
        permission = Permission(method, tenant, key, int(time.time() + seconds))
        body = urlsafe_b64encode(msgspec.json.encode(permission)).decode().rstrip("=")
        return f"{self._base}/{body}.{self._sign(body)}"

    def _sign(self, body: str) -> str:
        return urlsafe_b64encode(hmac.digest(self._secret, body.encode(), sha256)).decode().rstrip("=")


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)
