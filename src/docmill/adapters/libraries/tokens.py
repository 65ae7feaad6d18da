"""Tokens for Microsoft Graph by msal: for a user who signed in with a code, or for the app itself. Never logged."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from docmill.core.errors import StageFailed

LOGIN: Final = "https://login.microsoftonline.com"


@dataclass(frozen=True, slots=True)
class App:
    """The app registration in Microsoft Entra."""

    client_id: str
    tenant: str = "common"
    secret: str = field(default="", repr=False)
    """With a secret the app speaks for itself (client credentials), else for a user who signed in (device code)."""
    authority: str = LOGIN

    @property
    def scopes(self) -> list[str]:
        return ["https://graph.microsoft.com/.default"] if self.secret else ["Files.ReadWrite"]


class MsalTokens:
    """Tokens by msal, kept in a file of ours alone."""

    def __init__(self, app: App, cache: Path, *, key: str = "", older: Sequence[str] = (), client: Any = None) -> None:
        """*key* encrypts the file; *older* ones may have done so before. *client*: msal's application."""
        self._app = app
        self._cache = CacheFile(cache, key, older)
        self._client = client
        self._lock = asyncio.Lock()

    async def get(self, *, fresh: bool = False) -> str:
        async with self._lock:
            return await asyncio.to_thread(self._get, fresh)

    async def sign_in(self, show: Callable[[str], None]) -> None:
        """Let a user sign in elsewhere with a code, which *show* tells them; returns when they have."""
        flow = await asyncio.to_thread(self._msal().initiate_device_flow, scopes=self._app.scopes)
        if "message" not in flow:
            raise StageFailed("twin_unavailable", why=f"sign-in failed: {flow.get('error', 'unknown')}")
        show(flow["message"])
        _token(await asyncio.to_thread(self._msal().acquire_token_by_device_flow, flow))
        self._cache.save(self._msal().token_cache)

    def _get(self, fresh: bool) -> str:
        client = self._msal()
        if self._app.secret:
            if fresh:
                client.remove_tokens_for_client()
            found = client.acquire_token_for_client(scopes=self._app.scopes)
        else:
            accounts = client.get_accounts()
            if not accounts:
                raise StageFailed("twin_unavailable", why="nobody has signed in to OneDrive")
            found = client.acquire_token_silent_with_error(self._app.scopes, accounts[0], force_refresh=fresh)
        self._cache.save(client.token_cache)
        return _token(found)

    def _msal(self) -> Any:
        if self._client is None:
            import msal  # an extra of its own: docmill[onedrive]

            authority = f"{self._app.authority}/{self._app.tenant}"
            cache = self._cache.load(msal.SerializableTokenCache())
            if self._app.secret:
                self._client = msal.ConfidentialClientApplication(
                    self._app.client_id, client_credential=self._app.secret, authority=authority, token_cache=cache
                )
            else:
                self._client = msal.PublicClientApplication(self._app.client_id, authority=authority, token_cache=cache)
        return self._client


def _token(found: dict[str, Any] | None) -> str:
    token = (found or {}).get("access_token")
    if not isinstance(token, str):
        # msal's description may quote the request; its code never does.
        why = (found or {}).get("error", "no token")
        raise StageFailed("twin_unavailable", why=f"signing in to OneDrive failed: {why}")
    return token


class CacheFile:
    """msal's tokens in a file that only its owner can read, encrypted if there is a key."""

    def __init__(self, path: Path, key: str = "", older: Sequence[str] = ()) -> None:
        self._path = path
        self._key = key
        self._older = older

    def load(self, cache: Any) -> Any:
        with suppress(FileNotFoundError):
            data = self._path.read_bytes()
            is_plain = data.startswith(b"{")
            try:
                cache.deserialize((data if is_plain or not self._key else self._fernet().decrypt(data)).decode())
                if is_plain and self._key:
                    cache.has_state_changed = True  # a file of an older version: encrypt it
                    self.save(cache)
            except Exception as error:
                raise StageFailed("twin_unavailable", why=f"{self._path.name} cannot be read with this key") from error
        return cache

    def save(self, cache: Any) -> None:
        """Write it if it changed: whole, or not at all."""
        if not getattr(cache, "has_state_changed", False):
            return
        data = cache.serialize().encode()
        data = self._fernet().encrypt(data) if self._key else data
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=self._path.parent, prefix=".tokens-")  # 0600 from the start
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        cache.has_state_changed = False

    def _fernet(self) -> Any:
        from cryptography.fernet import Fernet, MultiFernet

        keys = [base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest()) for key in (self._key, *self._older)]
        return MultiFernet([Fernet(key) for key in keys])
