"""Every contract code that JSON can reach is reached through the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unit.contracts.reaching import REACHING

SEED_CODES = [
    "tenant_empty",
    "tenant_too_long",
    "workflow_empty",
    "workflow_invalid_char",
    "workflow_too_long",
    "uuid_empty",
    "uuid_invalid",
    "uuid_type",
    "version_too_long",
    "version_invalid",
    "title_too_long",
    "language_invalid",
    "tags_type",
    "tag_invalid",
    "tag_too_long",
    "crawl_timestamp_naive",
    "external_ref_too_many",
    "external_ref_key_empty",
    "external_ref_key_too_long",
    "external_ref_value_empty",
    "external_ref_value_too_long",
    "uri_empty",
    "sha256_invalid",
    "size_negative",
    "inline_size_mismatch",
    "inline_checksum_mismatch",
    "media_type_empty",
    "media_type_invalid",
    "base64_invalid",
    "literal_error",
    "meta_tenant_mismatch",
    "meta_workflow_mismatch",
    "asset_tenant_mismatch",
    "asset_document_mismatch",
    "asset_collection_mismatch",
    "asset_workflow_mismatch",
    "checksum_invalid",
    "document_checksum_missing",
    "document_checksum_mismatch",
    "created_at_naive",
    "media_type_mismatch",
    "media_type_guard",
    "asset_checksum_missing",
    "asset_checksum_mismatch",
    "page_index_negative",
    "bbox_invalid",
    "caption_model_required",
    "caption_confidence_required",
    "caption_confidence_range",
]


def arguments(code: str) -> tuple[list[str], bytes]:
    kind, text, options = REACHING[code]
    flags = ["--strict"] if options.get("strict") else []
    for prefix in options.get("media_guard", ()):
        flags += ["--media-guard", prefix]
    return ["check", kind, "-", "--json", *flags], text if isinstance(text, bytes) else text.encode()


@pytest.mark.parametrize("code", sorted({*SEED_CODES, *REACHING}))
def test_the_code_is_reported(docmill: Any, code: str) -> None:
    args, text = arguments(code)

    result = docmill(*args, stdin=text)

    assert 3 == result.exit_code
    assert code in [error["code"] for error in json.loads(result.stdout)["errors"]]


def test_the_installed_command_reports_it_too() -> None:
    args, text = arguments("asset_checksum_mismatch")
    command = [Path(sys.executable).parent / "docmill", *args]

    done = subprocess.run(command, input=text, capture_output=True, check=False)

    assert (3, b"") == (done.returncode, done.stderr)
    assert "asset_checksum_mismatch" in [error["code"] for error in json.loads(done.stdout)["errors"]]
