"""Programs of Debian that tests need. `make test` runs this file first, so that no test's clock runs meanwhile."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "curl": ("curl",),
    "nodejs": ("node", "nodejs"),
    "npm": ("npm",),
}
"""Package -> the names under which its program may be there already."""
FONT = "fonts-wqy-microhei"
"""Chinese letters, in a small package: without any, screenshots show boxes."""
FONTS = Path("/usr/share/fonts")
CHINESE = ("*wqy*", "*CJK*", "*Droid*Fallback*")


class ProgramMissing(Exception):
    """A program that tests need is not there, and cannot be installed."""


def ensure(package: str) -> Path:
    """The program's path; as root it is installed if it is missing."""
    if not find(package):
        install(package)
    if found := find(package):
        return found
    raise ProgramMissing(f"Debian's package {package} brought none of {', '.join(PROGRAMS[package])}")


def find(package: str) -> Path | None:
    return next((Path(path) for name in PROGRAMS[package] if (path := shutil.which(name))), None)


def ensure_chinese_font() -> None:
    if FONTS.parent.is_dir() and not any(next(FONTS.rglob(name), None) for name in CHINESE):
        install(FONT)


def install(package: str) -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ProgramMissing(
            f"{package} is missing and only root on Debian can install it here: sudo apt-get install {package}"
        )
    apt_get("update")
    apt_get("install", "-y", "--no-install-recommends", package)


def apt_get(*arguments: str) -> None:
    done = subprocess.run(
        ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
    )
    if done.returncode:
        raise ProgramMissing(f"apt-get {' '.join(arguments)} failed:\n{done.stdout[-2000:]}")


if __name__ == "__main__":
    try:
        for name in PROGRAMS:
            ensure(name)
        ensure_chinese_font()
    except ProgramMissing as missing:
        sys.exit(str(missing))
