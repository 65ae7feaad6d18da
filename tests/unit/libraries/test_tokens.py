"""Tokens: kept for their owner alone, renewed when refused, and never told to anybody."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Any

import msal
import pytest

from docmill.adapters.libraries.tokens import App, CacheFile, MsalTokens
from docmill.core.errors import StageFailed

pytestmark = pytest.mark.anyio

SECRET = "s3cret-canary-token"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Entra:
    """Stands for msal's application: it speaks HTTPS to Microsoft only."""

    def __init__(self, answer: dict[str, Any] | None = None, *, accounts: int = 1) -> None:
        self.answer = {"access_token": SECRET} if answer is None else answer
        self.accounts = accounts
        self.calls: list[tuple[str, Any]] = []
        self.token_cache = a_cache()

    def get_accounts(self) -> list[str]:
        return ["anna"] * self.accounts

    def acquire_token_silent_with_error(self, scopes: list[str], account: str, *, force_refresh: bool) -> Any:
        self.calls.append(("silent", force_refresh))
        return self.answer

    def acquire_token_for_client(self, scopes: list[str]) -> Any:
        self.calls.append(("client", tuple(scopes)))
        return self.answer

    def remove_tokens_for_client(self) -> None:
        self.calls.append(("forget", None))

    def initiate_device_flow(self, scopes: list[str]) -> dict[str, str]:
        return {"message": "Open the page and enter ABC", "device_code": "x"}

    def acquire_token_by_device_flow(self, flow: dict[str, str]) -> Any:
        self.calls.append(("device", flow["device_code"]))
        return self.answer


def a_cache() -> msal.SerializableTokenCache:
    cache = msal.SerializableTokenCache()
    cache.add(
        {
            "client_id": "app",
            "scope": ["Files.ReadWrite"],
            "token_endpoint": "https://login.microsoftonline.com/common/oauth2/v2.0/token",
            "response": {"access_token": SECRET, "expires_in": 3600, "token_type": "Bearer", "refresh_token": SECRET},
        }
    )
    return cache


@pytest.mark.parametrize("key", ["", "a passphrase"])
def test_the_cache_is_a_file_of_its_owner_alone(tmp_path: Path, key: str) -> None:
    path = tmp_path / "new" / "tokens"

    CacheFile(path, key).save(a_cache())

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert ["tokens"] == [one.name for one in path.parent.iterdir()]
    assert (SECRET.encode() in path.read_bytes()) == (key == "")
    again = CacheFile(path, key).load(msal.SerializableTokenCache())
    assert SECRET in again.serialize()


def test_a_plain_cache_of_an_older_version_is_encrypted_and_an_older_key_still_reads(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    CacheFile(path).save(a_cache())
    assert SECRET.encode() in path.read_bytes()

    assert SECRET in CacheFile(path, "first").load(msal.SerializableTokenCache()).serialize()

    assert SECRET.encode() not in path.read_bytes()
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    again = CacheFile(path, "second", ["first"]).load(msal.SerializableTokenCache())
    assert SECRET in again.serialize()


def test_a_cache_that_did_not_change_is_not_written(tmp_path: Path) -> None:
    CacheFile(tmp_path / "tokens").save(msal.SerializableTokenCache())

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("key", ["", "another"])
def test_a_cache_of_another_key_is_said(tmp_path: Path, key: str) -> None:
    CacheFile(tmp_path / "tokens", "first").save(a_cache())

    with pytest.raises(StageFailed) as caught:
        CacheFile(tmp_path / "tokens", key).load(msal.SerializableTokenCache())

    assert "twin_unavailable" == caught.value.code


async def test_a_signed_in_user_s_token_is_renewed_when_refused(tmp_path: Path) -> None:
    entra = Entra()
    tokens = MsalTokens(App("app"), tmp_path / "tokens", client=entra)

    assert [SECRET, SECRET] == [await tokens.get(), await tokens.get(fresh=True)]

    assert [("silent", False), ("silent", True)] == entra.calls
    assert (tmp_path / "tokens").exists()


async def test_the_app_itself_may_hold_the_token(tmp_path: Path) -> None:
    entra = Entra()
    tokens = MsalTokens(App("app", "tenant", "secret"), tmp_path / "tokens", client=entra)

    await tokens.get()
    await tokens.get(fresh=True)

    scopes = ("https://graph.microsoft.com/.default",)
    assert [("client", scopes), ("forget", None), ("client", scopes)] == entra.calls


async def test_a_user_signs_in_with_a_code(tmp_path: Path) -> None:
    shown: list[str] = []
    entra = Entra()

    await MsalTokens(App("app"), tmp_path / "tokens", client=entra).sign_in(shown.append)

    assert ["Open the page and enter ABC"] == shown
    assert [("device", "x")] == entra.calls
    assert (tmp_path / "tokens").exists()


@pytest.mark.parametrize(
    "entra",
    [
        Entra(accounts=0),
        Entra({"error": "invalid_grant", "error_description": f"token {SECRET} is over"}),
        Entra({}),
    ],
)
async def test_no_token_is_a_fault_that_tells_no_secret(
    tmp_path: Path, entra: Entra, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(StageFailed) as caught:
        await MsalTokens(App("app"), tmp_path / "tokens", client=entra).get()

    assert ("twin_unavailable", True) == (caught.value.code, caught.value.retryable)
    assert SECRET not in caught.value.message + caplog.text


def test_a_secret_is_not_shown() -> None:
    assert SECRET not in repr(App("app", secret=SECRET))
