"""What lies in deploy/ fits the program: variables, commands, probes, metrics; and the pages about it are true."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from docmill import settings
from docmill.cli import COMMANDS
from docmill.http.metrics import Metrics

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
    asyncio.run(_both_start(second, env, tmp_path))


async def _both_start(block: str, env: dict[str, str], folder: Path) -> None:
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = step.partition("\n")
        words = command.removesuffix(" &").split()[1:] + (["--port", "0"] if "serve" in command else [])
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "docmill",
            *words,
            env=env,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout
        line = (await process.stdout.readline()).decode().replace("http://127.0.0.1", "ADDRESS")
        process.terminate()
        await process.wait()
        expected = output.replace("http://127.0.0.1:8321", "ADDRESS…")
        assert re.fullmatch(pattern(expected), line), line


def docmill(words: list[str], env: dict[str, str], folder: Path) -> str:
    command = [sys.executable, "-m", "docmill", *words]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


def pattern(output: str) -> str:
    return ".*".join(re.escape(part) for part in output.split("…"))
