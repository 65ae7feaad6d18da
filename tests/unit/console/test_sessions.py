"""Signing in: a cookie that other sites cannot use, and that ends with its key."""

import pytest

from docmill.core.access import Principal
from docmill.core.errors import Unauthorized
from docmill.work import keys
from docmill.work.sessions import COOKIE, LASTS_S, Sessions

ALICE = Principal("alice", "acme", is_admin=True)
ETL = "/api/v1/etl"


@pytest.fixture
async def locked(open_console):
    async with open_console(ALICE) as visitor:
        yield visitor


async def sign_in(visitor):
    return await visitor.fill("/sign-in?next=/rules", "/sign-in", key=visitor.http.secret, next="/rules")


async def test_whoever_has_no_session_is_led_to_the_door(locked):
    answer = await locked.http.get("/tasks")

    assert (303, "/sign-in?next=/tasks") == (answer.status_code, answer.headers["location"])
    assert 401 == (await locked.http.get(f"{ETL}/tasks")).status_code


async def test_a_key_opens_pages_and_api_for_a_browser(locked):
    answer = await sign_in(locked)

    assert (303, "/rules") == (answer.status_code, answer.headers["location"])
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert locked.http.secret not in cookie
    assert "alice" in await locked.see("/tasks")
    assert 200 == (await locked.http.get(f"{ETL}/tasks")).status_code
    assert 1 <= await locked.submit(Origin="http://localhost")


async def test_a_wrong_key_opens_nothing_and_guesses_are_limited(locked):
    answers = [await locked.fill("/sign-in", "/sign-in", key=f"dm_{n}") for n in range(25)]

    assert 401 == answers[0].status_code
    assert "credential_invalid" in answers[0].text
    assert 429 == answers[-1].status_code
    assert COOKIE not in locked.http.cookies


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
async def test_a_session_counts_for_our_own_pages_only(locked, headers):
    await sign_in(locked)

    assert 401 == (await locked.http.get(f"{ETL}/tasks", headers=headers)).status_code
    assert 401 == (await locked.http.post(f"{ETL}/tasks/1/cancel", headers=headers)).status_code


async def test_a_link_from_elsewhere_may_be_followed(locked):
    await sign_in(locked)

    answer = await locked.http.get("/tasks", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})

    assert 200 == answer.status_code


async def test_a_form_without_the_token_of_this_browser_changes_nothing(locked):
    await sign_in(locked)
    task_id = await locked.submit()

    for token in ("", "0" * 64, "ü"):
        answer = await locked.http.post(f"/tasks/{task_id}/cancel", data={"token": token})
        assert 403 == answer.status_code
        assert "form_expired" in answer.text
    task = await locked.ports.ledger.get(task_id)
    assert "pending" == task.status


async def test_signing_out_and_revoking_end_a_session(locked):
    await sign_in(locked)
    session = locked.http.cookies[COOKIE]
    await locked.fill("/tasks", "/sign-out")
    assert 303 == (await locked.http.get("/tasks")).status_code

    locked.http.cookies.set(COOKIE, session)
    assert 200 == (await locked.http.get("/tasks")).status_code
    for key in await keys.listed(locked.ports):
        await keys.revoke(locked.ports, key.id)
    assert 303 == (await locked.http.get("/tasks")).status_code


async def test_a_session_cannot_be_forged_lengthened_or_kept_for_ever(locked):
    now = 1_000_000.0
    sessions = Sessions(b"secret", locked.ports.keys, clock=lambda: now)
    session = await sessions.open(locked.http.secret)
    digest, ends, mac = session.split(".")
    assert ALICE == await sessions.who(session)

    other = Sessions(b"other", locked.ports.keys)
    for forged in (
        f"{digest}.{int(ends) + 1}.{mac}",
        f"{digest}.{ends}.{mac[:-1]}0" if mac[-1] != "0" else f"{digest}.{ends}.{mac[:-1]}1",
        await other.open(locked.http.secret),
        "",
        "..",
        "ü.1.2",
    ):
        with pytest.raises(Unauthorized):
            await sessions.who(forged)
    now += LASTS_S
    with pytest.raises(Unauthorized):
        await sessions.who(session)


async def test_only_administrators_see_settings_and_make_keys(open_console):
    async with open_console(Principal("bob", "acme")) as visitor:
        await sign_in(visitor)

        page = await visitor.see("/settings")
        answer = await visitor.fill("/settings", "/settings/keys", name="mine")

        assert "For administrators" in page
        assert 403 == answer.status_code


async def test_a_key_is_shown_once(locked):
    await sign_in(locked)

    answer = await locked.fill("/settings", "/settings/keys", name="laptop", days="30")

    assert 200 == answer.status_code
    assert 1 == answer.text.count('<code id="secret">dm_')
    assert "dm_" not in (await locked.see("/settings")).replace("dm_…", "")
    assert "laptop" in await locked.see("/settings")
