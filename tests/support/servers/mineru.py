"""A real MinerU server in its flash tier, which needs no model. It lives in an environment of its own.

The environment is made once and kept: in the folder that DOCMILL_TEST_MINERU names, or in the user's cache. What goes
into it is pinned by hash in `requirements-mineru.txt`, where that file is there.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import httpx2

from support.servers.process import Server, ServiceFailed, new_secret

VERSION = "4.0.12"
PINS = Path(__file__).parents[3] / "requirements-mineru.txt"
INSTALL_S = 900


class MinerUServer(Server):
    name = "MinerU"
    grace = 10.0

    def __init__(self, folder: Path | None = None, port: int | None = None) -> None:
        super().__init__(folder, port)
        self.key = new_secret()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def prepare(self, folder: Path) -> None:
        (folder / "uploads").mkdir()

    def command(self, folder: Path, port: int) -> list[str]:
        program = ensure_environment() / "bin" / "mineru-kit"
        flags = ["--tier", "flash", "--upload-dir", str(folder / "uploads"), "--api-key", self.key]
        return [str(program), "api-server", "--host", "127.0.0.1", "--port", str(port), *flags]

    def is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/v1/health", trust_env=False, timeout=5).is_success
        except httpx2.HTTPError:
            return False


def ensure_environment() -> Path:
    """The environment's folder, made if need be. Several runs at once make it once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("DOCMILL_TEST_MINERU") or cache / "docmill-tests" / f"mineru-{VERSION}")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = hashlib.sha256(PINS.read_bytes() if PINS.exists() else VERSION.encode()).hexdigest()
    done = folder / ".docmill"
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != wanted:
            install(folder)
            done.write_text(wanted)
    return folder


def install(folder: Path) -> None:
    """uv takes seconds; where it finds no packages, pip does it."""
    python = folder / "bin/python"
    what = ["--require-hashes", "-r", str(PINS)] if PINS.exists() else [f"mineru=={VERSION}"]
    uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--python", str(python)]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([sys.executable, "-m", "venv", str(folder)])
    try:
        _run([*uv, "--compile-bytecode", *what])
    except (ServiceFailed, OSError):
        _run([*pip, *what])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode:
        raise ServiceFailed(f"MinerU cannot be installed:\n{done.stderr[-2000:]}")
