"""Debian's Chromium. `make test` runs this file first, so that no test's clock runs while root installs it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = "chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET_FLAGS = (
    "--headless",
    "--no-sandbox",  # its sandbox refuses root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class ChromiumMissing(Exception):
    """Browser tests need Chromium."""


def find_chromium() -> Path | None:
    return next((Path(path) for name in NAMES if (path := shutil.which(name))), None)


def ensure_chromium() -> Path:
    if not find_chromium():
        install_chromium()
    if found := find_chromium():
        return found
    raise ChromiumMissing(f"Debian's package {PACKAGE} brought none of {', '.join(NAMES)}")


def install_chromium() -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ChromiumMissing(
            f"Chromium is missing and only root on Debian can install it here: sudo apt-get install {PACKAGE}"
        )
    apt_get("update")
    apt_get("install", "-y", "--no-install-recommends", PACKAGE)


def apt_get(*arguments: str) -> None:
    done = subprocess.run(
        ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise ChromiumMissing(f"apt-get {' '.join(arguments)} failed:\n{done.stdout[-2000:]}")


if __name__ == "__main__":
    try:
        ensure_chromium()
    except ChromiumMissing as missing:
        sys.exit(str(missing))
