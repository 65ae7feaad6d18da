"""Signing in: a cookie that other sites cannot use, and that ends with sign-out and with its key."""

import re
from html import unescape

import pytest

from docmill.console.pages.sign_in import GUESSES
from docmill.core.access import LOCAL, Principal
from docmill.core.errors import Unauthorized
from docmill.work import keys
from docmill.work.sessions import COOKIE, Sessions

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


async def test_signing_out_ends_the_session_on_the_server(locked):
    await sign_in(locked)
    session = locked.http.cookies[COOKIE]
    await locked.fill("/tasks", "/sign-out")

    locked.http.cookies.set(COOKIE, session)
    assert 303 == (await locked.http.get("/tasks")).status_code
    assert 401 == (await locked.http.get(f"{ETL}/tasks")).status_code


async def test_signing_out_ends_no_other_session(locked):
    await sign_in(locked)
    session = locked.http.cookies[COOKIE]
    await sign_in(locked)
    assert session != locked.http.cookies[COOKIE]
    await locked.fill("/tasks", "/sign-out")

    locked.http.cookies.set(COOKIE, session)
    assert 200 == (await locked.http.get("/tasks")).status_code


async def test_revoking_a_key_ends_its_sessions(locked):
    await sign_in(locked)
    assert 200 == (await locked.http.get("/tasks")).status_code
    for key in await keys.listed(locked.ports, LOCAL):
        await keys.revoke(locked.ports, key.id, LOCAL)

    assert 303 == (await locked.http.get("/tasks")).status_code


async def test_a_session_cannot_be_forged_and_says_nothing(locked):
    sessions = Sessions(b"secret", locked.ports.keys)
    session = await sessions.open(locked.http.secret)
    assert ALICE == await sessions.who(session)
    assert keys.digest(locked.http.secret) not in session
    for forged in ("", "..", "ü.1.2", session[:-1], f"{session}x", keys.digest(session), "x" * 10_000):
        with pytest.raises(Unauthorized):
            await sessions.who(forged)


def forwarded(address):
    return {"X-Forwarded-For": address}


async def test_guesses_count_per_client_behind_a_trusted_proxy(open_console):
    """The test client's own address is 127.0.0.1: the proxy."""
    async with open_console(ALICE, trusted_proxies=("127.0.0.1",)) as visitor:
        token = re.search(r'name="token" value="([0-9a-f]+)"', await visitor.see("/sign-in"))[1]

        async def guess(address):
            form = {"token": token, "key": "dm_wrong"}
            headers = {"Origin": "http://localhost", **forwarded(address)}
            return (await visitor.http.post("/sign-in", data=form, headers=headers)).status_code

        assert [401] * GUESSES == [await guess(f"9.9.9.{n}, 2001:db8::{n}") for n in range(GUESSES)]
        assert 429 == await guess("2001:db8::ffff:1"), "one subscriber has a whole /64"
        assert 401 == await guess("2001:db8:1::1")
        assert 401 == await guess("198.51.100.7")


async def test_without_trusted_proxies_the_header_is_not_believed(locked):
    token = re.search(r'name="token" value="([0-9a-f]+)"', await locked.see("/sign-in"))[1]
    answers = [
        await locked.http.post(
            "/sign-in",
            data={"token": token, "key": "dm_wrong"},
            headers={"Origin": "http://localhost", **forwarded(f"198.51.100.{n}")},
        )
        for n in range(GUESSES + 1)
    ]
    assert 429 == answers[-1].status_code


async def test_only_administrators_see_settings_and_make_keys(open_console):
    async with open_console(Principal("bob", "acme")) as visitor:
        await sign_in(visitor)

        page = await visitor.see("/settings")
        answer = await visitor.fill("/settings", "/settings/keys", name="mine")

        assert "Administrators only" in page
        assert 403 == answer.status_code


async def test_a_key_is_shown_once(locked):
    await sign_in(locked)

    answer = await locked.fill("/settings", "/settings/keys", name="laptop", days="30")

    assert 200 == answer.status_code
    assert 1 == answer.text.count('<code id="secret">dm_')
    assert "dm_" not in (await locked.see("/settings")).replace("dm_…", "")
    assert "laptop" in await locked.see("/settings")


async def test_the_python_of_a_task_carries_the_key(open_console):
    async with open_console(Principal("bob", "acme")) as visitor:
        await sign_in(visitor)
        headers = {"Authorization": f"Bearer {visitor.http.secret}"}
        task = await visitor.submit(**headers)

        page = await visitor.see(f"/tasks/{task}")

        shown = unescape(page.partition('id="python">')[2].partition("</pre>")[0])
        assert 'Client("http://localhost", api_key=os.environ["DOCMILL_API_KEY"])' in shown
        compile(shown, "snippet.py", "exec")


async def test_revoking_a_key_asks_first(open_console):
    async with open_console(Principal("ann", "acme", is_admin=True)) as visitor:
        await sign_in(visitor)
        (key,) = await keys.listed(visitor.ports, Principal("ann", "acme", is_admin=True))

        asked = await visitor.fill("/settings", "/settings/keys/revoke", key_id=key.id)

        assert (200, True) == (asked.status_code, "lose access immediately" in asked.text)
        assert f'name="key_id" value="{key.id}"' in asked.text
        assert "Settings" in await visitor.see("/settings"), "the session goes on"
        await visitor.fill("/settings", "/settings/keys/revoke", key_id=key.id, confirmed="1")
        assert 303 == (await visitor.http.get("/settings")).status_code
