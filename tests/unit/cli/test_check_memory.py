"""`docmill check` needs little memory, however much it reads."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MB = 1 << 20


def peak_of(*args: object) -> int:
    """Peak resident bytes of `docmill ARGS…`, which must end with 0."""
    measure = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run([sys.executable, '-m', 'docmill', *sys.argv[1:]], stdout=subprocess.DEVNULL)\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", measure, *map(str, args)], capture_output=True, check=True, timeout=60)
    status, peak = map(int, done.stdout.split())
    assert 0 == status, done.stderr
    return peak


def with_assets(document: dict[str, Any], count: int) -> bytes:
    asset = {
        "ref": document["ref"] | {"asset_id": "54cc8d65-a74a-4ef0-bca9-0fdb45eb3a0f"},
        "media_type": "image/png",
        "blob": document["blob"],
        "caption_method": "none",
        "created_at": document["created_at"],
        "checksum": document["checksum"],
        "ocr_text": "Größe " * 100,
    }
    return json.dumps(document | {"assets": [asset] * count}).encode() + b"\n"


def lines_of(path: Path, line: bytes, size: int) -> Path:
    with path.open("wb") as file:
        for _ in range(size // len(line)):
            file.write(line)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_file_twice_as_long_needs_no_more_memory(
    tmp_path: Path, document: dict[str, Any], flags: tuple[str, ...]
) -> None:
    line = with_assets(document, 20)
    short = lines_of(tmp_path / "30.jsonl", line, 30 * MB)
    long = lines_of(tmp_path / "60.jsonl", line, 60 * MB)

    once = peak_of("check", "document", short, "--jsonl", *flags)
    twice = peak_of("check", "document", long, "--jsonl", *flags)

    assert 200 * MB > twice
    assert 5 * MB > twice - once


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--strict",), ("--json",), ("--json", "--strict"), ("--json", "--jsonl")])
def test_a_large_inline_blob_takes_two_copies_of_its_file(tmp_path: Path, flags: tuple[str, ...]) -> None:
    data = bytes(range(256)) * (20 * MB // 256)
    blob = {
        "type": "inline",
        "media_type": "application/pdf",
        "base64": base64.b64encode(data).decode(),
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
    }
    path = tmp_path / "blob.json"
    path.write_text(json.dumps(blob), "utf-8")
    small = tmp_path / "small.json"
    small.write_text(json.dumps(blob | {"base64": "", "size": 0, "sha256": hashlib.sha256().hexdigest()}), "utf-8")

    base, peak = peak_of("check", "blob", small, *flags), peak_of("check", "blob", path, *flags)

    assert 2.2 > (peak - base) / path.stat().st_size
