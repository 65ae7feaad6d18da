"""Which files failed the last time they were converted, for `docmill convert --only-failed`.

It is kept in the user's state folder, not beside the documents: a folder of documents gets twins and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


def state_file(env: Mapping[str, str] = os.environ) -> Path:
    base = env.get("XDG_STATE_HOME") or Path(env.get("HOME") or "~").expanduser() / ".local" / "state"
    return Path(base) / "docmill" / "convert.json"


def failed(file: Path) -> set[str]:
    """The absolute paths; nothing if the file cannot be read."""
    try:
        found: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return set()
    paths = found.get("failed") if isinstance(found, dict) else None
    return {path for path in paths if isinstance(path, str)} if isinstance(paths, list) else set()


def remember(file: Path, *, failing: Iterable[Path], fine: Iterable[Path]) -> bool:
    """Add those that failed and forget those that did not. False: the state folder cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file.with_suffix(".lock")):
            known = failed(file) - {str(path) for path in fine} | {str(path) for path in failing}
            there = sorted(path for path in known if Path(path).exists())
            fresh = file.with_suffix(".new")
            fresh.write_text(json.dumps({"failed": there}, indent=1) + "\n", "utf-8")
            fresh.replace(file)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Two runs at once must not forget each other's failures."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
