"""Signatures: the published vectors, and what docmill's own receiver says to them."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from pathlib import Path
from uuid import UUID

import pytest

from docmill.dialects.base import Claim, Expected, digest
from docmill.dialects.dispatcher import Dispatcher, validation_errors
from docmill.remote import Callback, resume, signing
from support.receiver import Heard, Receiver, Say

KEY = "a key of the dispatcher"
GUID = "550e8400-e29b-41d4-a716-446655440000"


def test_the_legacy_vector() -> None:
    """Computed by hand with openssl: printf '<guid>:<body>' | openssl dgst -sha256 -hmac key."""
    body = b'{"status":"completed"}'

    signed = signing.legacy("key", GUID, [body[:5], body[5:]])

    assert {"X-Kohakku-Signature": "sha256=e170e08cf8921c62a3ff6e1c8f3bb4e8cf495d2f15617327d8644a0d25347651"} == signed
    assert signed["X-Kohakku-Signature"].endswith(
        hmac.new(b"key", f"{GUID}:".encode() + body, hashlib.sha256).hexdigest()
    )


def test_the_standard_webhooks_vector() -> None:
    """The one that the reference libraries are tested with."""
    signed = signing.standard(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        [b'{"test": 2432232314}'],
    )

    assert {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    } == signed


def test_a_key_that_is_not_what_it_says_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="not base64"):
        Callback("http://127.0.0.1/jobs/1", "t", signing_key="whsec_ö", signing="standard")


@pytest.mark.parametrize("form", ["legacy", "standard"])
@pytest.mark.parametrize("key", [KEY, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
def test_docmill_accepts_what_the_sdk_signs(form: signing.Signing, key: str, tmp_path: Path) -> None:
    """First try, retry, and what `resume` sends, each over the bytes that went over the wire."""
    with Receiver() as docmill:
        docmill.says(Say(500), Say(400))
        with pytest.raises(Exception, match="400"):
            Callback(
                docmill.task(GUID),
                "token",
                dialect="dispatcher",
                signing_key=key,
                signing=form,
                spool=tmp_path,
                backoff=(0.01, 0.02),
            ).finish("completed", 0, f"results/{GUID}/output.zip", {"straße": "größer"})
        resume(tmp_path, refused=True, signing_key=key)

    assert 3 == len(docmill.finals)
    for heard in docmill.finals:
        verify(heard, key, form)
        assert [] == validation_errors(heard.json)
    ids = {heard.headers.get("webhook-id") for heard in docmill.finals}
    assert 1 == len(ids), "a retry is the same message"


def verify(heard: Heard, key: str, form: signing.Signing) -> None:
    raw = [(name.encode(), value.encode()) for name, value in heard.headers.items()]
    claim = Claim.of(UUID(GUID), raw)
    expected = Expected(digest("token"), (key,), form)
    Dispatcher().authenticate(claim, expected)
    signature = Dispatcher().signature(claim, expected, now=time.time())
    signature.update(heard.body)
    signature.check()


def test_a_signed_report_is_not_sent_without_its_key(tmp_path: Path) -> None:
    with Receiver() as docmill:
        docmill.says(Say(400))
        with pytest.raises(Exception, match="400"):
            Callback(docmill.job(), "token", signing_key=KEY, spool=tmp_path).fail("A", "b")
        (end,) = resume(tmp_path, refused=True)

        assert "give the signing key" in str(end)
        assert 1 == len(docmill.posts)
        assert json.loads(next(tmp_path.glob("*.json")).read_bytes())["is_signed"]
