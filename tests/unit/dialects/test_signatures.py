"""Who may report: tokens of one job, and signatures over the bytes as they came."""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.core.errors import BadRequest, Forbidden, Unauthorized
from docmill.dialects import DIALECTS, Body, Claim, Dialect, Expected, Signature, digest, new_token
from docmill.dialects.base import NOBODY, Signing, legacy_mac, pretend, standard_mac

JOB = UUID("550e8400-e29b-41d4-a716-446655440000")
OTHER_JOB = UUID("550e8400-e29b-41d4-a716-446655440001")
TOKEN = "cb_0123456789abcdef0123456789abcdef0123456789a"
BODY = b'{"status": "completed"}'
NOW = 1_614_265_330
# The example of the Standard Webhooks reference libraries.
SPEC_KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SPEC_BODY = b'{"test": 2432232314}'
SPEC_CLAIM = Claim(
    JOB,
    webhook_id=("msg_p5jXN8AQM9LWM0D4loKWxJek",),
    webhook_timestamp=("1614265330",),
    webhook_signature=("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",),
)
secretary, dispatcher = DIALECTS["secretary"], DIALECTS["dispatcher"]


def expecting(token: str = TOKEN, *keys: str, signing: Signing = "off") -> Expected:
    return Expected(digest(token), keys, signing)


def is_let_in(dialect: Dialect, claim: Claim, expected: Expected | None = None) -> bool:
    try:
        dialect.authenticate(claim, expected or expecting())
    except (Unauthorized, Forbidden) as error:
        return error.code != "callback_token_invalid"
    return True


def is_signed(claim: Claim, signing: Signing, *keys: str, body: bytes = BODY, now: float = NOW) -> bool:
    signature = Signature(claim, Expected("", keys, signing), now=now)
    for byte in body:
        signature.update(bytes([byte]))
    try:
        signature.check()
    except Forbidden as error:
        return error.code != "callback_signature_invalid"
    return True


def legacy_claim(key: str = "key", body: bytes = BODY, job: UUID = JOB) -> Claim:
    code = hmac.new(key.encode(), f"{job}:".encode() + body, sha256).hexdigest()
    return Claim(JOB, x_kohakku_signature=(f"sha256={code}",))


# Tokens


def test_tokens_are_long_random_and_marked() -> None:
    tokens = {new_token() for _ in range(100)}

    assert 100 == len(tokens)
    assert {(True, 46)} == {(token.startswith("cb_"), len(token)) for token in tokens}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_the_jobs_own_bearer_token_lets_in(dialect: Dialect) -> None:
    assert is_let_in(dialect, Claim(JOB, authorization=(f"Bearer {TOKEN}",)))
    assert is_let_in(dialect, Claim(JOB, authorization=(f"bearer  {TOKEN}",)))


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize(
    "authorization",
    [
        (),
        ("",),
        ("Bearer",),
        ("Bearer ",),
        (TOKEN,),
        (f"Basic {TOKEN}",),
        (f"Bearer {TOKEN}x",),
        (f"Bearer {TOKEN[:-1]}",),
        (f"Bearer {TOKEN} {TOKEN}",),
        (f"Bearer {TOKEN}, Bearer {TOKEN}",),
        (f"Bearer {TOKEN}\n",),
        (f"Bearer {digest(TOKEN)}",),
        (f"Bearer {TOKEN}é",),
        ("Bearer \ud800",),
        ("Bearer " + "x" * 100_000,),
        (f"Bearer {TOKEN}", f"Bearer {TOKEN}"),
    ],
)
def test_any_other_authorization_does_not(dialect: Dialect, authorization: tuple[str, ...]) -> None:
    assert not is_let_in(dialect, Claim(JOB, authorization=authorization))


def test_only_the_secretary_knows_the_second_header() -> None:
    claim = Claim(JOB, x_callback_token=(TOKEN,))

    assert is_let_in(secretary, claim)
    assert not is_let_in(dispatcher, claim)


def test_two_carriers_must_agree() -> None:
    def both(bearer: str, other: str) -> Claim:
        return Claim(JOB, authorization=(f"Bearer {bearer}",), x_callback_token=(other,))

    assert is_let_in(secretary, both(TOKEN, TOKEN))
    assert not is_let_in(secretary, both(TOKEN, "cb_other"))
    assert not is_let_in(secretary, both("cb_other", TOKEN))
    assert not is_let_in(secretary, both(TOKEN, ""))
    assert not is_let_in(secretary, Claim(JOB, x_callback_token=(TOKEN, TOKEN)))


def test_each_dialect_refuses_with_its_own_status() -> None:
    with pytest.raises(Unauthorized):
        secretary.authenticate(Claim(JOB), expecting())
    with pytest.raises(Forbidden):
        dispatcher.authenticate(Claim(JOB), expecting())
    with pytest.raises(Unauthorized):
        secretary.signature(Claim(JOB), expecting(signing="both"), now=NOW).check()
    with pytest.raises(Forbidden):
        dispatcher.signature(Claim(JOB), expecting(signing="both"), now=NOW).check()


@pytest.mark.parametrize("token_hash", ["", "é", digest("")])
def test_a_job_without_a_token_lets_nobody_in(token_hash: str) -> None:
    for claim in (Claim(JOB), Claim(JOB, authorization=("Bearer ",)), Claim(JOB, x_callback_token=("",))):
        assert not is_let_in(secretary, claim, Expected(token_hash))


def test_unknown_jobs_cost_a_comparison_and_say_nothing() -> None:
    for dialect in DIALECTS.values():
        pretend(dialect, Claim(JOB))
        pretend(dialect, Claim(JOB, authorization=(f"Bearer {TOKEN}",)))
    assert 64 == len(NOBODY.token_hash)


def test_a_claim_is_made_of_asgi_headers_and_shows_no_secret() -> None:
    headers = [
        (b"authorization", b"Bearer secret-1"),
        (b"X-Callback-Token", b" secret-2\t"),
        (b"x-kohakku-signature", b"secret-3"),
        (b"webhook-id", b"msg"),
        (b"webhook-timestamp", b"1"),
        (b"webhook-signature", b"secret-4"),
        (b"webhook-signature", b"\xff"),
        (b"accept", b"*/*"),
    ]

    claim = Claim.of(JOB, headers)

    expected = Claim(JOB, ("Bearer secret-1",), ("secret-2",), ("secret-3",), ("msg",), ("1",), ("secret-4", "ÿ"))
    assert expected == claim
    assert "secret" not in repr(claim)
    assert "secret" not in repr(Expected("", ("secret",), "both"))


# The signature of seed 001


def test_the_seeds_signature_is_over_guid_and_raw_body() -> None:
    assert is_signed(legacy_claim(), "legacy", "key")
    assert is_signed(legacy_claim(), "both", "key")


def test_every_active_key_is_tried_and_a_revoked_one_is_not() -> None:
    assert is_signed(legacy_claim("old"), "legacy", "new", "old")
    assert is_signed(legacy_claim("new"), "legacy", "new", "old")
    assert not is_signed(legacy_claim("old"), "legacy", "new")
    assert not is_signed(legacy_claim("old"), "legacy")


def test_an_empty_key_signs_nothing() -> None:
    assert not is_signed(legacy_claim(""), "legacy", "")


def test_the_signature_of_another_job_or_body_is_refused() -> None:
    assert not is_signed(legacy_claim(job=OTHER_JOB), "legacy", "key")
    assert not is_signed(legacy_claim(body=b'{"status":"completed"}'), "legacy", "key")


def test_a_flip_anywhere_in_the_seeds_signature_is_refused() -> None:
    right = legacy_claim().x_kohakku_signature[0]
    for at in range(len(right)):
        for bit in range(8):
            wrong = f"{right[:at]}{chr(ord(right[at]) ^ 1 << bit)}{right[at + 1 :]}"
            assert not is_signed(Claim(JOB, x_kohakku_signature=(wrong,)), "legacy", "key")


@pytest.mark.parametrize(
    "signature", ["", "sha256", "sha256=", "sha1=00", "é", "sha256=é", "\ud800", "sha256=" + "0" * 10**5]
)
def test_a_malformed_seed_signature_is_refused(signature: str) -> None:
    assert not is_signed(Claim(JOB, x_kohakku_signature=(signature,)), "legacy", "key")


def test_a_seed_signature_that_comes_twice_is_refused() -> None:
    once = legacy_claim().x_kohakku_signature

    assert not is_signed(Claim(JOB, x_kohakku_signature=once * 2), "legacy", "key")


# Standard Webhooks


def test_the_example_of_standard_webhooks_is_accepted() -> None:
    assert is_signed(SPEC_CLAIM, "standard", SPEC_KEY, body=SPEC_BODY)
    assert is_signed(SPEC_CLAIM, "both", "other", SPEC_KEY, body=SPEC_BODY)
    assert not is_signed(SPEC_CLAIM, "standard", "other", body=SPEC_BODY)
    assert not is_signed(SPEC_CLAIM, "standard", SPEC_KEY, body=SPEC_BODY + b" ")


@pytest.mark.parametrize(("seconds", "accepted"), [(-301, False), (-300, True), (300, True), (301, False)])
def test_a_timestamp_counts_for_five_minutes(seconds: int, accepted: bool) -> None:
    assert accepted == is_signed(SPEC_CLAIM, "standard", SPEC_KEY, body=SPEC_BODY, now=NOW + seconds)


def test_one_good_signature_among_several_is_enough() -> None:
    right = SPEC_CLAIM.webhook_signature[0]
    for listed in (f"v1,AAAA {right}", f"{right} v1,AAAA", f"v1a,AAAA {right}", f"  {right} "):
        assert is_signed(replace(SPEC_CLAIM, webhook_signature=(listed,)), "standard", SPEC_KEY, body=SPEC_BODY)


def test_a_flip_anywhere_in_a_standard_signature_is_refused() -> None:
    right = SPEC_CLAIM.webhook_signature[0]
    for at in range(len(right)):
        for bit in range(8):
            wrong = f"{right[:at]}{chr(ord(right[at]) ^ 1 << bit)}{right[at + 1 :]}"
            claim = replace(SPEC_CLAIM, webhook_signature=(wrong,))
            assert not is_signed(claim, "standard", SPEC_KEY, body=SPEC_BODY), wrong


@pytest.mark.parametrize(
    "change",
    [
        {"webhook_signature": ("v1",)},
        {"webhook_signature": ("v1,",)},
        {"webhook_signature": ("v1 g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",)},
        {"webhook_signature": ("v1,%%%",)},
        {"webhook_signature": ("v1,é",)},
        {"webhook_signature": ("v1,\ud800",)},
        {"webhook_signature": ("",)},
        {"webhook_signature": ()},
        {"webhook_signature": SPEC_CLAIM.webhook_signature * 2},
        {"webhook_signature": (" ".join([*["v1,AAAA"] * 1_000, *SPEC_CLAIM.webhook_signature]),)},
        {"webhook_id": ()},
        {"webhook_id": ("",)},
        {"webhook_id": ("msg_other",)},
        {"webhook_id": ("é",)},
        {"webhook_id": SPEC_CLAIM.webhook_id * 2},
        {"webhook_timestamp": ()},
        {"webhook_timestamp": ("",)},
        {"webhook_timestamp": ("1614265330.0",)},
        {"webhook_timestamp": ("-1614265330",)},
        {"webhook_timestamp": ("1614265331",)},
        {"webhook_timestamp": ("١٦١٤٢٦٥٣٣٠",)},
        {"webhook_timestamp": ("9" * 5_000,)},
        {"webhook_timestamp": SPEC_CLAIM.webhook_timestamp * 2},
    ],
    ids=str,
)
def test_malformed_standard_headers_are_refused(change: dict[str, tuple[str, ...]]) -> None:
    assert not is_signed(replace(SPEC_CLAIM, **change), "standard", SPEC_KEY, body=SPEC_BODY)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["", "whsec_", "whsec_%%%"])
def test_a_key_that_says_nothing_signs_nothing(key: str) -> None:
    code = b64encode(hmac.new(b"", b"msg.1614265330." + BODY, sha256).digest()).decode()
    claim = Claim(JOB, webhook_id=("msg",), webhook_timestamp=(str(NOW),), webhook_signature=(f"v1,{code}",))

    assert not is_signed(claim, "standard", key)


def test_the_codes_for_senders_are_those_that_we_accept() -> None:
    legacy, standard = legacy_mac("key", JOB), standard_mac("key", "msg", str(NOW))
    legacy.update(BODY)
    standard.update(BODY)
    code = b64encode(standard.digest()).decode()

    assert is_signed(Claim(JOB, x_kohakku_signature=(f"sha256={legacy.hexdigest()}",)), "legacy", "key")
    assert is_signed(
        Claim(JOB, webhook_id=("msg",), webhook_timestamp=(str(NOW),), webhook_signature=(f"v1,{code}",)),
        "standard",
        "key",
    )


# Modes


def test_a_mode_accepts_its_own_form_only() -> None:
    assert not is_signed(legacy_claim(), "standard", "key")
    assert not is_signed(SPEC_CLAIM, "legacy", SPEC_KEY, body=SPEC_BODY)
    assert not is_signed(Claim(JOB), "both", "key")
    assert is_signed(Claim(JOB), "off")
    assert is_signed(Claim(JOB, x_kohakku_signature=("nonsense",)), "off", "key")


def test_with_both_a_wrong_form_is_not_outweighed_by_a_right_one() -> None:
    right = replace(SPEC_CLAIM, x_kohakku_signature=legacy_claim(SPEC_KEY, SPEC_BODY).x_kohakku_signature)
    wrong = replace(SPEC_CLAIM, x_kohakku_signature=("sha256=00",))

    assert is_signed(right, "both", SPEC_KEY, body=SPEC_BODY)
    assert not is_signed(wrong, "both", SPEC_KEY, body=SPEC_BODY)


def test_what_no_body_can_mend_shows_before_the_body() -> None:
    def hopeless(claim: Claim, signing: Signing, now: float = NOW) -> bool:
        return Signature(claim, Expected("", (SPEC_KEY,), signing), now=now).hopeless

    assert hopeless(Claim(JOB), "legacy")
    assert hopeless(SPEC_CLAIM, "standard", now=NOW + 301)
    assert hopeless(replace(SPEC_CLAIM, webhook_signature=("v1",)), "standard")
    assert not hopeless(SPEC_CLAIM, "standard")
    assert not hopeless(Claim(JOB), "off")


ANYTHING = st.lists(st.text(st.characters(exclude_categories=()), max_size=40) | st.just("v1,"), max_size=2).map(tuple)


@given(st.tuples(*[ANYTHING] * 6))
def test_no_header_breaks_the_check(headers: tuple[tuple[str, ...], ...]) -> None:
    claim = Claim(JOB, *headers)

    assert not is_let_in(secretary, claim)
    assert not is_let_in(dispatcher, claim)
    assert not is_signed(claim, "both", "key", SPEC_KEY)


# Signature and content together


def body_of(claim: Claim, folder: Path, content: bytes) -> Body:
    body = Body(dispatcher.signature(claim, expecting(TOKEN, "key", signing="legacy"), now=NOW), folder)
    for byte in content:
        body.feed(bytes([byte]))
    return body


def test_a_signed_body_is_read(tmp_path: Path) -> None:
    assert {"status": "completed"} == body_of(legacy_claim(), tmp_path, BODY).close()


def test_a_body_that_is_neither_signed_nor_json_is_called_unsigned(tmp_path: Path) -> None:
    with pytest.raises(Forbidden):
        body_of(legacy_claim(), tmp_path, b'{"status": oops}').close()


def test_a_signed_body_that_is_no_json_is_called_that(tmp_path: Path) -> None:
    broken = b'{"status": oops}'

    with pytest.raises(BadRequest, match="broken at byte 11"):
        body_of(legacy_claim(body=broken), tmp_path, broken).close()


def test_an_unsigned_body_leaves_no_files(tmp_path: Path) -> None:
    body = Body(secretary.signature(Claim(JOB), expecting(signing="both"), now=NOW), tmp_path, secretary.spills)
    body.feed(b'{"data": {"extracted_text": "a", "images_archive_data": "QUJD"}}')

    with pytest.raises(Unauthorized):
        body.close()

    assert [] == list(tmp_path.iterdir())
