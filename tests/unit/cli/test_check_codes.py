"""Every contract code that JSON can reach is reached through the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unit.contracts.reaching import REACHING, REFERENCE


def arguments(code: str) -> tuple[list[str], bytes]:
    kind, text, options = REACHING[code]
    flags = ["--strict"] if options.get("strict") else []
    for prefix in options.get("media_guard", ()):
        flags += ["--media-guard", prefix]
    return ["check", kind, "-", "--json", *flags], text if isinstance(text, bytes) else text.encode()


@pytest.mark.parametrize("code", sorted({*REFERENCE, *REACHING}))
def test_the_code_is_reported(docmill: Any, code: str) -> None:
    args, text = arguments(code)

    result = docmill(*args, stdin=text)

    assert 3 == result.exit_code
    assert code in [error["code"] for error in json.loads(result.stdout)["errors"]]


def test_the_installed_command_reports_it_too() -> None:
    args, text = arguments("asset_checksum_mismatch")
    command = [Path(sys.executable).parent / "docmill", *args]

    done = subprocess.run(command, input=text, capture_output=True, check=False, timeout=60)

    assert (3, b"") == (done.returncode, done.stderr)
    assert "asset_checksum_mismatch" in [error["code"] for error in json.loads(done.stdout)["errors"]]
