"""Administrators of two tenants and an operator: what every page and form of the console lets them do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import httpx2
import pytest

from docmill.console.app import ACTIONS, PAGES
from docmill.core.access import Principal
from docmill.core.webhooks import WebhookDraft
from docmill.work import keys, rulebook, webhooks

ALICE = Principal("alice", "acme", is_admin=True)
BETA = Principal("alice", "beta", is_admin=True)
OPERATOR = Principal("ops", "ops", is_admin=True, is_operator=True)
MEMBER = Principal("bob", "beta")
CANARY = "acme-canary"
WITHOUT_IDS = {
    "/",
    "/tasks",
    "/tasks/rows",
    "/tasks/counts",
    "/rules",
    "/rules/new",
    "/deliveries",
    "/workers",
    "/settings",
    "/settings?examine=1",
    "/workers?check=1",
    "/reference",
}
FORMS: dict[str, dict[str, str]] = {
    "/tasks/bulk": {"action": "cancel", "task_id": "{task_id}"},
    "/tasks/retry-failed": {"code": "document_broken"},
    "/tasks/{task_id:int}/cancel": {"force": "1", "confirmed": "1"},
    "/tasks/{task_id:int}/retry": {"from_stage": "mineru"},
    "/tasks/{task_id:int}/mount": {"table_id": "1"},
    "/rules/{rule_id:int}": {"name": "stolen", "mode": "skip", "postprocess_mode": "skip"},
    "/rules/{rule_id:int}/delete": {"confirmed": "1"},
    "/rules/{rule_id:int}/test": {"name": "x", "postprocess_mode": "skip", "task_id": "{task_id}"},
    "/deliveries/webhooks/{webhook_id}/test": {},
    "/deliveries/webhooks/{webhook_id}/redeliver": {},
    "/deliveries/webhooks/{webhook_id}/switch": {"enabled": "0"},
    "/deliveries/webhooks/{webhook_id}/rotate": {},
    "/deliveries/webhooks/{webhook_id}/remove": {"confirmed": "1"},
    "/deliveries/{notice_id:int}/redeliver": {},
    "/settings/keys/revoke": {"key_id": "{key_id}", "confirmed": "1"},
}
OWN_FORMS = {
    "/rules/new",
    "/rules/check",
    "/rules/new/test",
    "/deliveries/webhooks",
    "/settings/keys",
    "/sign-out",
}
"""They name nothing of anybody else's."""


@dataclass
class Scene:
    visitor: object
    ids: dict[str, object]
    secrets: dict[str, str] = field(default_factory=dict)

    @property
    def http(self) -> httpx2.AsyncClient:
        return self.visitor.http

    def bearer(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secrets[who]}"}

    async def get(self, who: str, path: str) -> httpx2.Response:
        return await self.http.get(self.filled(path), headers=self.bearer(who))

    async def post(self, who: str, path: str, fields: dict[str, str]) -> httpx2.Response:
        page = await self.http.get("/tasks", headers=self.bearer(who))
        token = re.search(r'name="token" value="([0-9a-f]+)"', page.text)
        assert token
        form = {name: self.filled(value) for name, value in fields.items()}
        headers = {"Origin": "http://localhost", **self.bearer(who)}
        return await self.http.post(self.filled(path), data={"token": token[1], **form}, headers=headers)

    def filled(self, text: str) -> str:
        return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: str(self.ids[found[1]]), text)


@pytest.fixture
async def scene(open_console):
    async with open_console(ALICE, webhook_networks=("127.0.0.1/32",), webhook_ports=(9,)) as visitor:
        ports = visitor.ports
        secrets = {"alice": visitor.http.secret}
        for name, who in (("beta", BETA), ("operator", OPERATOR), ("member", MEMBER)):
            secrets[name] = (await keys.create(ports, f"key of {name}", who))[1]
        acme_key = next(one for one in await keys.listed(ports, OPERATOR) if one.principal.tenant == "acme")
        beta_key = next(one for one in await keys.listed(ports, OPERATOR) if one.principal == BETA)
        bearer = {"Authorization": f"Bearer {secrets['alice']}"}
        task_id = await visitor.submit(f"{CANARY}.txt", b"text of acme", **bearer)
        webhook, _ = await webhooks.add(ports, ALICE, WebhookDraft("http://127.0.0.1:9/" + CANARY))
        notice, _ = await webhooks.test(ports, ALICE, webhook.id)
        rule = await visitor.http.post(
            "/api/v1/etl/rules", json={"name": CANARY, "postprocess_mode": "skip"}, headers=bearer
        )
        task = await visitor.complete(task_id)
        ids = {
            "task_id": task_id,
            "document_id": task.document_id,
            "rule_id": rule.json()["rule_id"],
            "webhook_id": webhook.id,
            "notice_id": notice.id,
            "key_id": acme_key.id,
            "beta_key": beta_key.id,
            "name": "markdown",
        }
        yield Scene(visitor, ids, secrets)


def test_the_matrix_has_every_page_and_form():
    pages = {path for path in PAGES if "{" not in path}
    assert set() == pages - {path.partition("?")[0] for path in WITHOUT_IDS}, "put the new page into the matrix"
    assert set() == set(ACTIONS) - set(FORMS) - OWN_FORMS, "put the new form into the matrix"


async def test_an_administrator_sees_no_page_of_another_tenant(scene):
    for path in PAGES:
        if "{" in path:
            assert 404 == (await scene.get("beta", path)).status_code, path
            if "artifacts" not in path:
                assert 200 == (await scene.get("alice", path)).status_code, path
    for path in WITHOUT_IDS:
        answer = await scene.get("beta", path)
        assert 200 == answer.status_code, path
        assert "acme" not in answer.text, path


async def test_an_administrator_changes_nothing_of_another_tenant(scene):
    for path, fields in FORMS.items():
        answer = await scene.post("beta", path, fields)
        if path in ("/tasks/bulk", "/tasks/retry-failed"):
            assert "acme" not in answer.text
            continue
        assert 404 == answer.status_code, (path, answer.text[:500])
    task = await scene.visitor.ports.ledger.get(scene.ids["task_id"])
    assert ("completed", 1) == (task.status, task.run)
    assert CANARY == (await rulebook.get(scene.visitor.ports, ALICE, scene.ids["rule_id"])).name
    webhook = await webhooks.get(scene.visitor.ports, ALICE, scene.ids["webhook_id"])
    assert (True, 1) == (webhook.is_enabled, len(webhook.secrets))
    assert 200 == (await scene.get("alice", "/tasks")).status_code, "the key was not revoked"


async def test_an_administrator_manages_the_keys_of_the_own_tenant(scene):
    page = await scene.get("beta", "/settings")
    assert "key of beta" in page.text
    assert "key of member" in page.text
    assert "key of operator" not in page.text
    for deployment_wide in ("Current settings", "Diagnostics", 'name="tenant"', 'name="is_operator"'):
        assert deployment_wide not in page.text

    made = await scene.post("beta", "/settings/keys", {"name": "more", "user": "eve", "is_admin": "1"})
    assert 200 == made.status_code
    found = [one for one in await keys.listed(scene.visitor.ports, OPERATOR) if one.name == "more"]
    assert [Principal("eve", "beta", is_admin=True)] == [one.principal for one in found]
    for stolen in ({"tenant": "acme"}, {"is_operator": "1"}):
        assert 403 == (await scene.post("beta", "/settings/keys", {"name": "stolen", **stolen})).status_code
    assert "stolen" not in {one.name for one in await keys.listed(scene.visitor.ports, OPERATOR)}
    assert (
        303
        == (await scene.post("beta", "/settings/keys/revoke", {"key_id": found[0].id, "confirmed": "1"})).status_code
    )


async def test_a_member_manages_no_keys(scene):
    assert "Administrators only" in (await scene.get("member", "/settings")).text
    assert 403 == (await scene.post("member", "/settings/keys", {"name": "mine"})).status_code
    assert 403 == (await scene.post("member", "/settings/keys/revoke", {"key_id": "{beta_key}"})).status_code


async def test_an_operator_sees_the_deployment_but_no_documents_of_others(scene):
    page = (await scene.get("operator", "/settings")).text
    for seen in ("Current settings", "Diagnostics", "key of beta", "key of operator", "acme"):
        assert seen in page
    assert "In progress" in (await scene.get("operator", "/workers")).text
    assert "In progress" not in (await scene.get("alice", "/workers")).text
    for path in PAGES:
        if "{" in path:
            assert 404 == (await scene.get("operator", path)).status_code, path
    made = await scene.post("operator", "/settings/keys", {"name": "first of gamma", "tenant": "gamma", "user": "g"})
    assert 200 == made.status_code
    revoke = {"key_id": "{beta_key}", "confirmed": "1"}
    assert 303 == (await scene.post("operator", "/settings/keys/revoke", revoke)).status_code


async def test_numbers_beyond_64_bits_are_not_found(scene):
    huge = "99999999999999999999"
    for path in (*PAGES, *ACTIONS):
        if ":int}" not in path:
            continue
        address = scene.filled(re.sub(r"\{\w+:int\}", huge, path))
        if path in PAGES:
            assert 404 == (await scene.http.get(address, headers=scene.bearer("alice"))).status_code, path
        if path in ACTIONS:
            assert 404 == (await scene.post("alice", address, FORMS.get(path, {}))).status_code, path
    for address in ("/tasks?before={0}&page={0}", "/deliveries?before={0}&sent={0}&task={0}", "/tasks/rows?after={0}"):
        answer = await scene.http.get(address.format(huge), headers=scene.bearer("alice"))
        assert answer.status_code < 500, address
