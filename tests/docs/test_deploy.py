"""What lies in deploy/ fits the program: variables, commands, probes, metrics; and the pages about it are true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from docmill import __version__, settings
from docmill.cli import COMMANDS
from docmill.compose import keeping
from docmill.core.errors import Invalid
from docmill.http.metrics import Metrics
from support.servers.promtool import ensure_promtool
from support.waiting import read_line

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NAMES = {settings.environment_name(name) for name in settings.Settings.model_fields}
ELSEWHERE = re.compile(r"AWS_[A-Z_]+")


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "docmill.yaml").read_text()))


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_every_variable_is_a_setting() -> None:
    secret = next(one for one in manifests() if one["kind"] == "Secret")
    for given in (compose()["services"]["api"]["environment"], secret["stringData"]):
        assert [] == [name for name in given if name not in NAMES and not ELSEWHERE.fullmatch(name)]
        assert {"DATABASE_URL", "REDIS_URL", "OBJECTS_URL"} <= set(given)


def test_the_settings_of_the_manifests_are_a_possible_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = next(one for one in manifests() if one["kind"] == "Secret")
    for name, value in secret["stringData"].items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Invalid) as caught:  # the placeholders are no secrets
        settings.load()
    assert "32 bytes" in caught.value.message
    for name, value in secret["stringData"].items():
        monkeypatch.setenv(name, value.replace("change-me", "0123456789abcdef" * 3))

    assert settings.load().is_distributed


def test_every_command_exists() -> None:
    containers = [
        container
        for one in manifests()
        if one["kind"] in ("Deployment", "Job")
        for container in one["spec"]["template"]["spec"]["containers"]
    ]
    commands = [compose()["services"][name]["command"] for name in ("migrate", "api", "worker")]
    commands += [container["args"] for container in containers]

    assert {"db", "serve", "worker"} == {command[0] for command in commands} <= set(COMMANDS)


def pods() -> list[dict[str, Any]]:
    return [one["spec"]["template"]["spec"] for one in manifests() if one["kind"] in ("Deployment", "Job")]


def test_every_image_is_pinned_to_an_exact_version() -> None:
    used = [one["image"] for one in compose()["services"].values()]
    used += [container["image"] for pod in pods() for container in pod["containers"]]
    used += re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)

    assert [] == [image for image in used if not re.fullmatch(r"[a-z/]+:\d+\.\d+(\.\d+)?(-[a-z-]+)?", image)]
    assert {f"docmill:{__version__}"} == {image for image in used if image.startswith("docmill")}


def test_the_migration_job_is_named_after_its_version() -> None:
    [job] = [one for one in manifests() if one["kind"] == "Job"]

    assert f"docmill-migrate-{__version__.replace('.', '-')}" == job["metadata"]["name"]


def test_kubernetes_does_not_set_our_variables_for_its_services() -> None:
    services = [one["metadata"]["name"] for one in manifests() if one["kind"] == "Service"]

    assert ["docmill"] == services, "its variables begin with DOCMILL_"
    assert [False] * 3 == [pod.get("enableServiceLinks") for pod in pods()]


def test_one_address_is_published_and_it_is_the_proxy() -> None:
    published = {name: one["ports"] for name, one in compose()["services"].items() if "ports" in one}

    assert {"proxy": ["127.0.0.1:8321:8321"]} == published


def test_workers_are_probed_and_scraped_where_they_listen() -> None:
    [worker] = [one for one in manifests() if one["metadata"]["name"] == "docmill-worker"]
    [container] = worker["spec"]["template"]["spec"]["containers"]
    port = int(container["args"][container["args"].index("--metrics-port") + 1])

    assert port == container["livenessProbe"]["httpGet"]["port"] == container["ports"][0]["containerPort"]
    assert str(port) == worker["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"]
    assert ["worker", "--metrics-port", str(port)] == compose()["services"]["worker"]["command"]
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    found = prometheus["scrape_configs"][0]["dns_sd_configs"]
    assert {"api": 8321, "worker": port} == {one["names"][0]: one["port"] for one in found}


def test_links_for_external_workers_lead_through_the_address_that_they_reach(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The buckets of these files are not reachable from outside; APP_URL is."""
    secret = next(one for one in manifests() if one["kind"] == "Secret")["stringData"]
    for name, value in secret.items():
        monkeypatch.setenv(name, value.replace("change-me", "0123456789abcdef" * 3))
    chosen = settings.load(data=tmp_path)

    link = keeping.links(chosen, keeping.open_store(chosen), chosen.app_url or "").download("t", "k", seconds=60)

    assert link.startswith(f"{secret['APP_URL']}/api/v1/objects/")
    environment = compose()["services"]["api"]["environment"]
    assert "service" == environment["DOCMILL_OBJECT_LINKS"]
    assert "http://proxy:8321" in environment["APP_URL"]


def test_every_variable_of_the_compose_file_is_in_the_example() -> None:
    wanted = set(re.findall(r"(?<!\$)\$\{([A-Z0-9_]+)", (DEPLOY / "compose.yaml").read_text()))
    example = (DEPLOY / "env.example").read_text()

    assert wanted == set(re.findall(r"^([A-Z0-9_]+)=", example, re.MULTILINE))


def test_alerts_and_dashboard_name_metrics_that_exist() -> None:
    exposed = set(re.findall(r"^# TYPE (\S+)", generate_latest(Metrics("1").registry).decode(), re.MULTILINE))
    histograms = {f"{name}_bucket" for name in exposed}
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    board = json.loads((DEPLOY / "grafana" / "docmill.json").read_text())
    expressions = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    expressions += [target["expr"] for panel in board["panels"] for target in panel["targets"]]

    named = {name for one in expressions for name in re.findall(r"\b(?:docmill|process)_[a-z_]+", one)}

    assert {"docmill_tasks", "docmill_ledger_up"} <= named
    assert set() == named - exposed - histograms


def test_the_configuration_of_prometheus_is_valid() -> None:
    file = DEPLOY / "prometheus" / "prometheus.yaml"
    command = [ensure_promtool(), "check", "config", "--syntax-only", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert 0 == done.returncode, done.stdout + done.stderr


def test_the_capacity_page_is_what_the_model_says() -> None:
    page = ROOT / "docs" / "reference" / "capacity.md"
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import capacity
    finally:
        sys.path.remove(str(ROOT / "bench"))
    figures = capacity.Figures()
    plans = [capacity.plan(load, figures) for load in capacity.LOADS]

    assert page.read_text("utf-8") == capacity.page(figures), f"run: python bench/capacity.py {page}"
    assert [one.worker_cores for one in plans] == sorted(one.worker_cores for one in plans)
    assert "SQLite" in plans[0].database
    assert "PostgreSQL" in plans[2].database
    for one in plans:
        assert one.load / 3600 * figures.parse_cpu_s <= one.worker_cores * capacity.BUSY
    slow_disk = capacity.Figures(parse_cpu_s=0.01, ledger_tasks_per_s=5.0)
    assert "commits" in capacity.plan(100_000, slow_disk).first_limit


HOWTO = ROOT / "docs" / "howto" / "go-distributed.md"
BLOCK = re.compile(r"^```console distributed\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_how_to_s_commands_print_what_it_says(
    postgres_database: str, redis_url: str, s3: Any, s3_prefix: str, tmp_path: Path
) -> None:
    import os

    env = os.environ | {
        "DATABASE_URL": postgres_database,
        "REDIS_URL": redis_url,
        "OBJECTS_URL": f"s3://{s3.bucket}/{s3_prefix}",
        **s3.environment,
    }
    first, second = BLOCK.findall(HOWTO.read_text("utf-8"))
    for step in re.split(r"^\$ ", first, flags=re.MULTILINE)[1:]:
        command, _, output = step.partition("\n")
        done = docmill(command.split()[1:], env, tmp_path)
        assert re.fullmatch(pattern(output), done), done
    _both_start(second, env, tmp_path)


def _both_start(block: str, env: dict[str, str], folder: Path) -> None:
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = step.partition("\n")
        words = command.removesuffix(" &").split()[1:] + (["--port", "0"] if "serve" in command else [])
        process = subprocess.Popen(
            [sys.executable, "-m", "docmill", *words],
            env=env,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            line = read_line(process).replace("http://127.0.0.1", "ADDRESS")
            process.terminate()
            _, log = process.communicate(timeout=30)
        finally:
            process.kill()
        expected = output.replace("http://127.0.0.1:8321", "ADDRESS…")
        assert re.fullmatch(pattern(expected), line), line + log
        assert 0 == process.returncode, log


def docmill(words: list[str], env: dict[str, str], folder: Path) -> str:
    command = [sys.executable, "-m", "docmill", *words]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


def pattern(output: str) -> str:
    return ".*".join(re.escape(part) for part in output.split("…"))
