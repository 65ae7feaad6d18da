"""Prometheus's own tool for testing alert rules, out of Debian's package; nothing of the package is installed or run.

The tool is unpacked once and kept in the user's cache.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from support.servers.debian import ProgramMissing

PACKAGE = "prometheus"
MINUTES = 60


def ensure_promtool() -> Path:
    if found := shutil.which("promtool"):
        return Path(found)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "docmill-tests"
    program = cache / "promtool"
    if not program.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            _unpack(Path(folder))
            (Path(folder) / "usr/bin/promtool").replace(program)
    return program


def _unpack(folder: Path) -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise ProgramMissing("promtool is missing, and can be fetched on Debian only: install Prometheus's tools")
    _run(["apt-get", "-qq", "download", PACKAGE], folder)
    [package] = folder.glob("*.deb")
    _run(["dpkg-deb", "-x", package.name, "."], folder)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise ProgramMissing(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")


def check_alerts(rules: Path, series: Mapping[str, str], firing: Collection[str], folder: Path) -> None:
    """Assert that after an hour with these values (one a minute) exactly the alerts in *firing* fire."""
    alerts = [rule for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]]
    assert set(firing) <= {rule["alert"] for rule in alerts}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [_expectation(rule, fires=rule["alert"] in firing) for rule in alerts],
    }
    file = folder / "alerts.test.yaml"
    file.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(
        [ensure_promtool(), "test", "rules", str(file)], capture_output=True, text=True, timeout=60, cwd=folder
    )
    assert 0 == done.returncode, done.stdout + done.stderr


def _expectation(rule: dict[str, Any], *, fires: bool) -> dict[str, Any]:
    found = {"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}
    return {"eval_time": f"{MINUTES}m", "alertname": rule["alert"], "exp_alerts": [found] if fires else []}
