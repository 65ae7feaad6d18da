"""Credentials: which are taken, which are not, and that no trick turns one kind into another."""

import asyncio
import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.datastructures import Headers

from docmill.core.access import LOCAL, Principal
from docmill.core.errors import DocmillError
from docmill.http.auth import Authenticator, AuthOptions
from docmill.http.jwts import read_jwks
from docmill.work.keys import PREFIX

ETL = "/api/v1/etl"
SECRET = "s" * 40
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
ALICE = Principal("alice", "acme")


class Keys:
    """Stands in for the ring: one key that can be revoked."""

    def __init__(self):
        from hashlib import sha256

        self.known = {sha256(b"dm_good").hexdigest(): ALICE}
        self.asked = 0

    async def find(self, digest):
        self.asked += 1
        return self.known.get(digest)


def identify(headers, keys=None, auth=None, **options):
    auth = auth or Authenticator(AuthOptions(**options), keys or Keys())
    raw = headers if isinstance(headers, list) else list(headers.items())
    return asyncio.run(auth.identify(Headers(raw=[(n.lower().encode(), v.encode("latin-1")) for n, v in raw])))


def refused(headers, **options):
    with pytest.raises(DocmillError) as found:
        identify(headers, **options)
    return found.value.code


def claims(**more):
    return {"sub": "u-1", "exp": time.time() + 60, **more}


def token(key=SECRET, algorithm="HS256", headers=None, **more):
    return jwt.encode(claims(**more), key, algorithm, headers=headers)


def bearer(text):
    return {"Authorization": f"Bearer {text}"}


def jwk(key, kid="k1", **more):
    public = key.public_key()
    algorithm = {
        rsa.RSAPublicKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePublicKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PublicKey: jwt.algorithms.OKPAlgorithm,
    }
    maker = next(one for base, one in algorithm.items() if isinstance(public, base))
    return {**json.loads(maker.to_jwk(public)), "kid": kid, **more}


@pytest.fixture
def jwks_file(tmp_path):
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [jwk(RSA, "r"), jwk(EC, "e"), jwk(ED, "d")]}))
    return path


# API keys


def test_a_key_is_taken_from_either_header():
    assert PREFIX == "dm_"
    assert ALICE == identify(bearer("dm_good"))
    assert ALICE == identify({"Authorization": "bearer   dm_good "})
    assert ALICE == identify({"X-API-Key": "dm_good"})
    assert ALICE == identify({**bearer("dm_good"), "X-API-Key": "dm_good"})


@pytest.mark.parametrize(
    "headers",
    [
        bearer("dm_bad"),
        bearer(""),
        bearer("x" * 9000),
        bearer("dm_gööd"),
        {"Authorization": "Basic dm_good"},
        {"Authorization": "dm_good"},
        {"X-API-Key": ""},
        {"X-API-Key": "good"},
        {**bearer("dm_good"), "X-API-Key": "dm_other"},
        [("Authorization", "Bearer dm_good"), ("Authorization", "Bearer dm_other")],
        [("X-API-Key", "dm_good"), ("X-API-Key", "dm_other")],
    ],
)
def test_a_bad_key_is_invalid(headers):
    assert "credential_invalid" == refused(headers)


def test_nothing_sent_is_unauthenticated():
    assert "unauthenticated" == refused({})
    assert "unauthenticated" == refused({"Cookie": "token=dm_good"})


def test_without_accounts_everybody_is_local():
    assert LOCAL == identify({}, require=False)
    assert LOCAL == identify(bearer("whatever"), require=False)


def test_a_revoked_key_stops_within_five_seconds():
    now, keys = [0.0], Keys()
    auth = Authenticator(AuthOptions(), keys, clock=lambda: now[0])

    assert ALICE == identify(bearer("dm_good"), auth=auth)
    keys.known.clear()
    now[0] = 4.9
    assert ALICE == identify(bearer("dm_good"), auth=auth)
    assert 1 == keys.asked
    now[0] = 5.1
    with pytest.raises(DocmillError, match="revoked"):
        identify(bearer("dm_good"), auth=auth)


def test_bad_keys_fill_no_memory():
    auth = Authenticator(AuthOptions(), Keys())
    for n in range(50):
        with pytest.raises(DocmillError):
            identify(bearer(f"dm_{n}"), auth=auth)
    assert {} == auth._seen


# JWT with a shared secret


@pytest.mark.parametrize(
    ("more", "who"),
    [
        ({}, Principal("u-1", "user:u-1")),
        ({"tenant_id": "t"}, Principal("u-1", "t")),
        ({"app_metadata": {"tenant_id": "t"}, "tenant_id": "other"}, Principal("u-1", "t")),
        ({"user_metadata": {"tenant_id": "victim", "role": "admin"}}, Principal("u-1", "user:u-1")),
        ({"app_metadata": {"role": "admin"}}, Principal("u-1", "user:u-1", is_admin=True)),
        ({"app_metadata": "junk", "role": "admin", "aud": "authenticated"}, Principal("u-1", "user:u-1")),
    ],
)
def test_claims_become_a_principal(more, who):
    assert who == identify(bearer(token(**more)), jwt_secret=SECRET)


@pytest.mark.parametrize(
    "more",
    [
        {"exp": time.time() - 31},
        {"exp": None},
        {"exp": "soon"},
        {"exp": 10**400},
        {"exp": "99999999999"},
        {"exp": True},
        {"nbf": time.time() + 86_400},
        {"sub": ""},
        {"sub": 7},
        {"sub": None},
        {"sub": "a\nb"},
        {"sub": "a\0b"},
        {"sub": " a"},
        {"sub": "x" * 256},
        {"tenant_id": ""},
        {"tenant_id": 5},
        {"tenant_id": ["a"]},
        {"app_metadata": {"tenant_id": {}}},
    ],
)
def test_bad_claims_are_invalid(more):
    body = {name: value for name, value in claims(**more).items() if value is not None}
    try:
        raw = jwt.encode(body, SECRET, "HS256")
    except TypeError:
        raw = forged({"alg": "HS256"}, body, SECRET)
    assert "credential_invalid" == refused(bearer(raw), jwt_secret=SECRET)


def test_a_clock_may_be_thirty_seconds_off():
    assert identify(bearer(token(exp=time.time() - 20)), jwt_secret=SECRET)


def test_the_audience_is_checked_when_configured():
    right, wrong = token(aud="authenticated"), token(aud="anon")

    assert identify(bearer(right), jwt_secret=SECRET, audience="authenticated")
    assert "credential_invalid" == refused(bearer(wrong), jwt_secret=SECRET, audience="authenticated")
    assert "credential_invalid" == refused(bearer(token()), jwt_secret=SECRET, audience="authenticated")
    assert identify(bearer(wrong), jwt_secret=SECRET)


def test_the_issuer_is_checked_when_configured():
    assert identify(bearer(token(iss="https://a")), jwt_secret=SECRET, issuer="https://a")
    assert "credential_invalid" == refused(bearer(token(iss="https://b")), jwt_secret=SECRET, issuer="https://a")


def part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def forged(header, body, secret=b""):
    import hashlib
    import hmac

    secret = secret.encode() if isinstance(secret, str) else secret
    text = f"{part(header)}.{part(body)}"
    signature = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", "HS384", "HS512", "RS512", "PS256", None, 5, ["HS256"]])
def test_other_algorithms_are_refused(alg, jwks_file):
    unsigned = f"{part({'alg': alg, 'typ': 'JWT'})}.{part(claims())}."

    for raw in (unsigned, forged({"alg": alg}, claims(), SECRET)):
        assert "credential_invalid" == refused(bearer(raw), jwt_secret=SECRET, jwks_file=jwks_file)


def test_a_public_key_is_no_shared_secret(jwks_file):
    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = RSA.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    for secret in (pem, der, pem.strip(), jwks_file.read_bytes(), b""):
        for alg in ("HS256", "RS256"):
            raw = forged({"alg": alg, "kid": "r"}, claims(), secret)
            assert "credential_invalid" == refused(bearer(raw), jwks_file=jwks_file)
            assert "credential_invalid" == refused(bearer(raw), jwks_file=jwks_file, jwt_secret=SECRET)


@pytest.mark.parametrize(
    "header",
    [{"crit": ["exp"]}, {"crit": []}, {"b64": False}, {"jwk": {"kty": "oct", "k": "c3Nzcw"}}, {"jku": "http://evil"}],
)
def test_headers_that_bring_their_own_rules(header):
    raw = forged({"alg": "HS256", **header}, claims(), SECRET if "crit" in header or "b64" in header else "ssss")

    assert "credential_invalid" == refused(bearer(raw), jwt_secret=SECRET)


@pytest.mark.parametrize("raw", ["a.b.c", "..", "a.b", "e30.e30.", "e30." * 500, "W10.W10.W10", "bnVsbA.e30.x"])
def test_junk_is_no_token(raw):
    assert "credential_invalid" == refused(bearer(raw), jwt_secret=SECRET)


def test_a_flipped_byte_is_noticed():
    raw = token()
    for at in range(len(raw) - 1):
        changed = raw[:at] + ("A" if raw[at] != "A" else "B") + raw[at + 1 :]
        assert "credential_invalid" == refused(bearer(changed), jwt_secret=SECRET)


def test_without_a_configured_mechanism_no_token_is_good():
    assert "credential_invalid" == refused(bearer(token()))


# Published keys


@pytest.mark.parametrize(("key", "algorithm", "kid"), [(RSA, "RS256", "r"), (EC, "ES256", "e"), (ED, "EdDSA", "d")])
def test_published_keys_judge_their_own_algorithm(jwks_file, key, algorithm, kid):
    good = token(key, algorithm, {"kid": kid})

    assert Principal("u-1", "user:u-1") == identify(bearer(good), jwks_file=jwks_file)
    assert identify(bearer(token(key, algorithm)), jwks_file=jwks_file)
    assert "credential_invalid" == refused(bearer(token(key, algorithm, {"kid": "x"})), jwks_file=jwks_file)
    assert "credential_invalid" == refused(bearer(good), jwt_secret=SECRET)


def test_a_foreign_key_is_refused(jwks_file):
    other = ec.generate_private_key(ec.SECP256R1())

    assert "credential_invalid" == refused(bearer(token(other, "ES256", {"kid": "e"})), jwks_file=jwks_file)


def test_unfit_keys_are_left_out():
    weak = ec.generate_private_key(ec.SECP384R1())
    listed = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        jwk(RSA, use="enc"),
        jwk(RSA, alg="RS512"),
        jwk(weak),
        {"kty": "RSA", "n": "!", "e": "AQAB"},
        {"kty": "EC"},
        {},
        5,
        jwk(EC, "good", use="sig", alg="ES256"),
    ]

    assert ["good"] == [key.key_id for key in read_jwks(json.dumps({"keys": listed}).encode())]


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"keys": 5}', b"\xff", b"[" * 5000])
def test_a_broken_jwks_is_our_fault_and_not_the_callers(tmp_path, raw):
    path = tmp_path / "jwks.json"
    path.write_bytes(raw)

    assert "keys_unavailable" == refused(bearer(token(EC, "ES256")), jwks_file=path)
    assert "keys_unavailable" == refused(bearer(token(EC, "ES256")), jwks_file=tmp_path / "missing")


class KeyServer:
    def __init__(self):
        self.keys, self.fetched, self.status = [jwk(RSA, "old")], 0, 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.fetched += 1
                body = json.dumps({"keys": outer.keys}).encode()
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join(60)
        self.server.server_close()


def test_keys_rotate_and_unknown_ids_do_not_flood_the_publisher():
    now = [0.0]
    with KeyServer() as server:

        async def walk():
            auth = Authenticator(AuthOptions(jwks_url=server.url), Keys(), clock=lambda: now[0])

            async def asks(raw):
                return await auth.identify(Headers({"authorization": f"Bearer {raw}"}))

            old, new = token(RSA, "RS256", {"kid": "old"}), token(EC, "ES256", {"kid": "new"})
            await asyncio.gather(*(asks(token(RSA, "RS256", {"kid": "old"}, n=n)) for n in range(20)))
            assert 1 == server.fetched

            server.keys.append(jwk(EC, "new"))
            for _ in range(20):
                with pytest.raises(DocmillError):
                    await asks(new)
            assert 1 == server.fetched
            now[0] = 11
            assert await asks(new)
            assert 2 == server.fetched

            server.status = 500
            now[0] = 1000
            assert await asks(old), "keys that we have stay good while the publisher is away"
            assert 3 == server.fetched

        asyncio.run(walk())


# At the door


async def test_the_door_says_how_to_come_in(open_desk):
    async with open_desk(auth=AuthOptions(require=True, jwt_secret=SECRET)) as desk:
        missing = await desk.http.get(f"{ETL}/tasks")
        bad = await desk.http.get(f"{ETL}/tasks", headers=bearer("dm_x"))
        in_query = await desk.http.get(f"{ETL}/tasks?token={token()}&access_token={token()}&api_key=dm_x")
        good = await desk.http.get(f"{ETL}/tasks", headers=bearer(token()))

        assert (401, "unauthenticated") == (missing.status_code, missing.json()["code"])
        assert 'Bearer realm="docmill"' == missing.headers["www-authenticate"]
        assert (401, "credential_invalid") == (bad.status_code, bad.json()["code"])
        assert "invalid_token" in bad.headers["www-authenticate"]
        assert 401 == in_query.status_code
        assert 200 == good.status_code
        for path in ("/health", "/ready", "/livez", "/readyz"):
            assert 200 == (await desk.http.get(path)).status_code


async def test_no_route_is_open_without_a_credential(open_desk):
    async with open_desk(auth=AuthOptions(require=True)) as desk:
        schema = desk.app.openapi()
        for path, operations in schema["paths"].items():
            for method in operations:
                if path in ("/health", "/ready", "/livez", "/readyz", "/metrics", "/docs/codes/{code}"):
                    continue
                url = path.replace("{task_id}", "1").replace("{parse_id}", "1.m.0-1.auto.pipeline")
                url = url.replace("{", "").replace("}", "")
                answer = await desk.http.request(
                    method.upper(), url, headers={"Content-Type": "multipart/form-data; boundary=b"}
                )
                if path.startswith("/api/v1/objects/"):
                    assert (403, "link_invalid") == (answer.status_code, answer.json()["code"]), (
                        "a link is a credential"
                    )
                    continue
                if path.startswith(("/api/v4/uploads/", "/api/v4/results/")):
                    assert answer.status_code in (403, 404), "a link is a credential; without a signer there are none"
                    continue
                if operations[method]["operationId"].startswith("report_"):
                    assert 404 == answer.status_code, "a callback needs a job before it needs its token"
                    continue
                assert answer.status_code in (401, 422), (method, path, answer.status_code)
                assert answer.status_code == 401 or "etl" not in path or answer.json()["code"] == "request_invalid"


async def test_tenants_do_not_see_each_other(open_desk):
    async with open_desk(auth=AuthOptions(require=True, jwt_secret=SECRET)) as desk:
        alice = bearer(token(sub="alice", tenant_id="a"))
        for eve in (bearer(token(sub="eve", tenant_id="a")), bearer(token(sub="alice", tenant_id="b"))):
            desk.http.headers.update(alice)
            task_id = await desk.submit()
            desk.http.headers.update(eve)

            for method, path in (
                ("GET", f"tasks/{task_id}"),
                ("GET", f"tasks/{task_id}?wait=1"),
                ("GET", f"tasks/{task_id}/events"),
                ("POST", f"tasks/{task_id}/cancel?force=true"),
            ):
                assert 404 == (await desk.http.request(method, f"{ETL}/{path}")).status_code, path
            for path, body in (("retry", {"from_stage": "mineru"}), ("mount", {"table_id": 1})):
                assert 404 == (await desk.http.post(f"{ETL}/tasks/{task_id}/{path}", json=body)).status_code
            as_json = {"Accept": "application/json"}
            assert 404 == (await desk.http.get(f"{ETL}/tasks/{task_id}/events", headers=as_json)).status_code
            assert [] == (await desk.http.get(f"{ETL}/tasks/batch?task_ids={task_id}")).json()["tasks"]
            assert 0 == (await desk.http.get(f"{ETL}/tasks")).json()["total"]
