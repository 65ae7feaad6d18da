"""Under which names and addresses the service answers: any if a credential is required, else those of loopback."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import httpx2
import jwt
import pytest
import yaml

from support.serving import Service

SECRET = "a secret of the tests that is long enough for HS256"
DEPLOYMENT = Path(__file__).parents[2] / "deploy" / "kubernetes" / "docmill.yaml"
PROBES = ("/health", "/ready", "/metrics")


def addresses() -> list[str]:
    """Addresses of this machine other than 127.0.0.1: a second one of loopback, and one of a network if it has any."""
    found = ["127.0.0.2"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only asks for the route
            found.append(probe.getsockname()[0])
        except OSError:
            pass
    return found


def get(base: str, path: str, **headers: str) -> httpx2.Response:
    return httpx2.get(base + path, headers=headers, timeout=30, trust_env=False)


def test_with_a_credential_every_name_is_served(tmp_path: Path) -> None:
    token = jwt.encode({"sub": "anna", "exp": time.time() + 600}, SECRET, "HS256")
    authorization = f"Bearer {token}"
    with Service(tmp_path / "data", "--host", "0.0.0.0", DOCMILL_JWT_SECRET=SECRET) as service:
        for address in addresses():
            base = f"http://{address}:{service.port}"
            assert 200 == get(base, "/api/v1/etl/tasks", Authorization=authorization).status_code, base
            assert 401 == get(base, "/api/v1/etl/tasks").status_code
        local = f"http://127.0.0.1:{service.port}"
        for name in ("docs.example.org", "docmill.default.svc.cluster.local:8321"):
            assert 200 == get(local, "/api/v1/etl/tasks", Authorization=authorization, Host=name).status_code, name


def test_with_a_credential_and_names_only_these_are_served(tmp_path: Path) -> None:
    settings = {"DOCMILL_JWT_SECRET": SECRET, "DOCMILL_ALLOWED_HOSTS": '["docs.example.org"]'}
    with Service(tmp_path / "data", **settings) as service:
        assert 401 == get(service.url, "/api/v1/etl/tasks", Host="docs.example.org").status_code
        refused = get(service.url, "/api/v1/etl/tasks", Host="nas.lan")
        assert (400, "host_not_allowed") == (refused.status_code, refused.json()["code"])


def test_without_a_credential_only_loopback_names_are_served(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        assert 200 == get(service.url, "/api/v1/etl/tasks").status_code
        assert 200 == get(service.url, "/api/v1/etl/tasks", Host="localhost").status_code
        refused = get(service.url, "/api/v1/etl/tasks", Host="rebound.example")
        assert (400, "host_not_allowed") == (refused.status_code, refused.json()["code"])
        for path in PROBES:
            assert 200 == get(service.url, path, Host="rebound.example").status_code, path


def kubernetes_probes() -> list[str]:
    documents = [one.get("spec", {}) for one in yaml.safe_load_all(DEPLOYMENT.read_text())]
    containers = [one for spec in documents for one in spec.get("template", {}).get("spec", {}).get("containers", [])]
    probes = [one.get(name, {}) for one in containers for name in ("readinessProbe", "livenessProbe", "startupProbe")]
    return [probe["httpGet"]["path"] for probe in probes if "httpGet" in probe]


@pytest.mark.parametrize("hosts", ["[]", '["docs.example.org"]'])
def test_the_probes_of_the_deployment_pass_as_a_kubelet_sends_them(tmp_path: Path, hosts: str) -> None:
    """By the pod's address, with Go's headers and without a credential."""
    assert {"/ready", "/health"} == set(kubernetes_probes())
    settings = {"DOCMILL_JWT_SECRET": SECRET, "DOCMILL_ALLOWED_HOSTS": hosts, "APP_URL": "https://docs.example.org"}
    with Service(tmp_path / "data", "--host", "0.0.0.0", **settings) as service:
        for path in kubernetes_probes():
            with socket.create_connection((addresses()[-1], service.port), timeout=30) as pod:
                request = f"GET {path} HTTP/1.1\r\nHost: 10.244.1.7:8321\r\nUser-Agent: kube-probe/1.31\r\n"
                pod.sendall(f"{request}Accept: */*\r\nConnection: close\r\n\r\n".encode())
                assert re.match(rb"HTTP/1[.]1 200 ", pod.recv(64)), path
