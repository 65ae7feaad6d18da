"""Canary secrets go in through every channel, and come out of none."""

import json
import statistics
import time
from pathlib import Path
from uuid import uuid4

import httpx2
import jwt

from support.elsewhere import Elsewhere
from support.serving import Etl, Service

SIGNING = "canary-signing-key-000000000000000000000000"
JWT_SECRET = "canary-jwt-secret-00000000000000000000000000"
LINKS = "canary-link-secret-0000000000000000000000000"
OTHER = "canary-in-a-header-00000000000000000000000000"
HOOK = "canary-of-a-webhook-0000000000000000000000000"


def test_canaries_appear_in_no_log_row_metric_or_error(tmp_path: Path) -> None:
    canaries = {SIGNING, JWT_SECRET, LINKS, OTHER, "sec-key-canary", "dis-key-canary"}
    answers: list[str] = []
    with (
        Elsewhere() as worker,
        Service(
            tmp_path / "data",
            DOCMILL_WORKERS=worker.settings().replace("sec-key", "sec-key-canary").replace("dis-key", "dis-key-canary"),
            CALLBACK_SIGNING_KEY=SIGNING,
            DOCMILL_JWT_SECRET=JWT_SECRET,
            DOCMILL_SECRET=LINKS,
            DOCMILL_LOG_LEVEL="debug",
            DOCMILL_WEBHOOK_NETWORKS='["127.0.0.1/32"]',
            DOCMILL_WEBHOOK_PORTS="[9]",
        ) as service,
    ):
        token = jwt.encode({"sub": "anna", "exp": time.time() + 600}, JWT_SECRET, "HS256")
        canaries.add(token)
        with service.client(headers={"Authorization": f"Bearer {token}"}) as client:
            etl = Etl(client)
            webhook = client.post("/api/v1/webhooks", json={"url": f"http://127.0.0.1:9/?key={HOOK}"}).json()
            for engine in ("secretary", "dispatcher"):
                task = etl.submit("a.pdf", uuid4().bytes, engine=engine)
                job = worker.next_job()
                canaries |= {job.token, job.form.get("env", {}).get("BRIEF_URL", OTHER).rsplit("/", 1)[-1]}
                both = {"X-Callback-Token": job.token} if engine == "secretary" else {}
                stray = json.dumps({"phase": "x", "token": OTHER, "callback_token": OTHER}).encode()
                answers += [job.send(bad, **both).text for bad in (b"{", stray)]
                answers.append(job.send({"status": "failed"}, token=OTHER, key=SIGNING).text)
                answers.append(httpx2.post(f"{job.url}?token={OTHER}", json={}, trust_env=False).text)
                if engine == "secretary":
                    job.send({"phase": "failed", "error": {"message": "no", "details": {"api_key": OTHER}}})
                else:
                    job.send({"status": "failed", "result_metadata": {"token": OTHER}}, key=SIGNING)
                answers.append(json.dumps(etl.wait(task)))
                answers.append(json.dumps(etl.events(task)))
                answers.append(client.get(f"/api/external/jobs/{job.id}").text)
            for header in ("Authorization", "X-API-Key", "Cookie"):
                with service.client(headers={header: f"Bearer {OTHER}"}) as stranger:
                    answers.append(stranger.get("/api/v1/etl/tasks").text)
                    answers.append(stranger.post("/api/v1/etl/submit", json={"s3_key": OTHER * 20}).text)
            hook = f"/api/v1/webhooks/{webhook['id']}"
            answers += [client.post(f"{hook}/test").text, client.get(hook).text.replace(HOOK, "")]
            answers.append(client.get("/api/v1/webhooks/deliveries").text)
            answers.append(client.get("/metrics").text)
            answers.append(client.get("/api/v1/etl/tasks").text)
    places = {"answers": "\n".join(answers), "log": "".join(service.log)}
    for path in (tmp_path / "data").glob("docmill.db*"):
        places[path.name] = path.read_bytes().decode("latin-1")
    for place, text in places.items():
        assert text, place
        assert [] == [canary for canary in canaries if canary in text], place
    # The database must hold what messages are signed with; nothing else does, and of an address nothing is logged.
    for place in ("answers", "log"):
        assert [] == [one for one in (webhook["secret"], HOOK, "v1,") if one in places[place]], place
    for line in ("callback_refused", "webhook_tried"):
        assert any(line in said for said in service.log), "the log was not silent"


def test_a_wrong_token_takes_as_long_whatever_its_first_wrong_character(tmp_path: Path) -> None:
    """Medians of many, interleaved: no difference by position beyond the noise of two equal sets."""
    from uuid import UUID

    from docmill.dialects.base import Claim, Expected, digest, new_token
    from docmill.dialects.secretary import Secretary

    token, dialect = new_token(), Secretary()
    expected = Expected(digest(token))

    def spoiled(position: int) -> Claim:
        wrong = token[:position] + ("A" if token[position] != "A" else "B") + token[position + 1 :]
        return Claim(UUID(int=1), authorization=(f"Bearer {wrong}",))

    def timed(claim: Claim) -> int:
        began = time.perf_counter_ns()
        try:
            dialect.authenticate(claim, expected)
        except Exception:
            return time.perf_counter_ns() - began
        raise AssertionError("a wrong token passed")

    first, last, control = spoiled(0), spoiled(len(token) - 1), spoiled(0)
    times: dict[str, list[int]] = {"first": [], "last": [], "control": []}
    for _ in range(10_000):
        for name, claim in (("first", first), ("last", last), ("control", control)):
            times[name].append(timed(claim))
    medians = {name: statistics.median(values) for name, values in times.items()}
    noise = max(abs(medians["first"] - medians["control"]), 0.05 * medians["first"])

    assert abs(medians["first"] - medians["last"]) <= 3 * noise, medians
