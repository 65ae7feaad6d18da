"""Node of Debian and the npm packages of `tests/support/typescript`, installed once and kept in the user's cache.

`make test` runs this file first, so that no test's clock runs meanwhile.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from support.servers.debian import ProgramMissing, ensure

PROJECT = Path(__file__).parents[1] / "typescript"
INSTALL_S = 300


def ensure_packages() -> Path:
    """The folder `node_modules`. Its name holds the hash of the lock file: other versions get another folder."""
    ensure("nodejs")
    npm = ensure("npm")
    lock = (PROJECT / "package-lock.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "docmill-tests"
    folder = cache / f"npm-{sha256(lock).hexdigest()[:12]}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as made:
            project = Path(made, "project")
            _install(npm, project)
            try:
                project.rename(folder)
            except OSError:
                # Another process was faster: its folder is the same.
                if not folder.exists():
                    raise
    return folder / "node_modules"


def _install(npm: Path, folder: Path) -> None:
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PROJECT / name, folder)
    done = subprocess.run(
        [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
    )
    if done.returncode:
        raise ProgramMissing(f"npm ci failed:\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    try:
        ensure_packages()
    except ProgramMissing as missing:
        sys.exit(str(missing))
