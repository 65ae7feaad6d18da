"""The client that MinerU 3.x publishes, as far as it speaks to a server: that part needs none of its models.

The package is installed without its dependencies; what its client imports is in the tests' own environment.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

PINS = Path(__file__).parents[2] / "requirements-mineru-client.txt"
INSTALL_S = 120


def ensure_client() -> Path:
    """The folder to import it from, made once and kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "docmill-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"mineru-client-{sha256(PINS.read_bytes()).hexdigest()[:12]}"
    with (cache / ".mineru-client.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--upgrade"]
            subprocess.run(
                [sys.executable, "-m", "pip", "install", *flags, "--target", str(folder), "-r", str(PINS)],
                check=True,
                capture_output=True,
                timeout=INSTALL_S,
            )
            (folder / ".complete").touch()
    return folder
