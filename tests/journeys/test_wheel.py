"""The wheel in an empty environment: what `pip install docmill` brings is enough for a first result.

The wheel is built from the source distribution, as `python -m build` does it, and installed with its pinned
dependencies, but without the extras, on the oldest and the newest supported Python that is at hand.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SUPPORTED = [(3, int(minor)) for minor in re.findall(r"Python :: 3\.(\d+)", (ROOT / "pyproject.toml").read_text())]
STEP_TIMEOUT_S = 240


def interpreters() -> dict[str, Path]:
    """The oldest and the newest supported Python on the search path or among pyenv's."""
    found = {}
    for path in (Path(sys.executable), *_candidates()):
        question = [path, "-c", "import sys, venv; print(*sys.version_info[:2])"]
        done = subprocess.run(question, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode == 0 and (version := tuple(map(int, done.stdout.split()))) in SUPPORTED:
            found.setdefault(version, path)
    chosen = dict.fromkeys((min(found), max(found)))
    return {f"{major}.{minor}": found[major, minor] for major, minor in chosen}


def _candidates() -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for major, minor in SUPPORTED:
        yield from sorted(pyenv.glob(f"{major}.{minor}.*/bin/python"))
        if on_path := shutil.which(f"python{major}.{minor}"):
            yield Path(on_path)


PYTHONS = interpreters()


def run(*command: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("DOCMILL_", "PYTHON", "VIRTUAL_"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=STEP_TIMEOUT_S,
    )
    assert 0 == done.returncode, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Without isolation: what the build needs is installed here, pinned.
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    [built] = folder.glob("*.whl")
    return built


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_a_first_result_from_the_wheel(version: str, wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run(BIN / "uv", "venv", "--quiet", "--python", PYTHONS[version], venv, cwd=tmp_path)
    pins = ROOT / "requirements.txt"
    run(BIN / "uv", "pip", "install", "--quiet", "--python", venv / "bin" / "python", wheel, "-c", pins, cwd=tmp_path)
    docmill, env = venv / "bin" / "docmill", {"XDG_STATE_HOME": str(tmp_path / "state")}
    samples = venv / "lib" / f"python{version}" / "site-packages" / "docmill" / "samples"
    (tmp_path / "papers").mkdir()
    for name in ("report.en.pdf", "notes.docx", "sign.png"):
        shutil.copy(samples / name, tmp_path / "papers" / name)

    converted = run(docmill, "convert", "papers", "--jsonl", cwd=tmp_path, **env)
    shown = run(docmill, "demo", cwd=tmp_path, **env)

    outcomes = [json.loads(line) for line in converted.stdout.splitlines()]
    assert {"papers/report.en.pdf", "papers/notes.docx", "papers/sign.png"} == {one["path"] for one in outcomes}
    assert "NORTH ENTRANCE" in (tmp_path / "papers" / "_sign.png" / "sign.md").read_text()
    count = len([path for path in samples.iterdir() if path.name != "README.md"])
    assert f"{count} of {count} completed" in shown.stdout
    assert (ROOT / "samples").is_dir()
    assert {path.name for path in (ROOT / "samples").iterdir()} == {path.name for path in samples.iterdir()}
