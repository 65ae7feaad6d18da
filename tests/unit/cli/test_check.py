"""`docmill check`"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docmill import contracts
from docmill.cli.check import Unreadable, dumped, lines, whole
from support.waiting import read_line

DOCMILL = str(Path(sys.executable).parent / "docmill")
BOM = b"\xef\xbb\xbf"


def encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@pytest.fixture
def good(tmp_path: Path, document: dict[str, Any]) -> Path:
    path = tmp_path / "good.json"
    path.write_bytes(encoded(document))
    return path


@pytest.fixture
def bad(tmp_path: Path, document: dict[str, Any]) -> Path:
    document["meta"]["language"] = "--de"
    document["meta"]["tenant_id"] = "other"
    document["checksum"] = "abcd"
    path = tmp_path / "bad.json"
    path.write_bytes(encoded(document))
    return path


def test_a_valid_file_is_ok(docmill: Any, good: Path) -> None:
    result = docmill("check", "document", good)

    assert (0, f"{good}: ok\n", "") == (result.exit_code, result.stdout, result.stderr)


def test_violations_show_pointer_code_and_message_one_per_line(docmill: Any, bad: Path) -> None:
    result = docmill("check", "document", bad)

    assert 3 == result.exit_code
    shown = [line.removeprefix(f"{bad}: ").split(": ", 2) for line in result.stdout.splitlines()]
    assert {("/meta/language", "language_invalid"), ("/checksum", "checksum_invalid")} <= {
        (pointer, code) for pointer, code, _ in shown
    }
    assert "meta_tenant_mismatch" in {code for _, code, _ in shown}
    assert all(message for _, _, message in shown)
    assert "docmill explain CODE" in result.stderr


def test_json_gives_one_object_with_the_normalised_value(docmill: Any, good: Path) -> None:
    result = docmill("check", "document", good, "--json")
    (line,) = result.stdout.splitlines()
    answer = json.loads(line)

    assert ["path", "line", "valid", "errors", "value"] == list(answer)
    assert (str(good), None, True, []) == tuple(answer[key] for key in ("path", "line", "valid", "errors"))
    assert ["a", "b"] == answer["value"]["meta"]["tags"]
    assert "Broschüre 手册" == answer["value"]["meta"]["title"]
    assert "" == result.stderr


def test_json_of_a_violation_has_code_loc_and_message_and_no_value(docmill: Any, bad: Path) -> None:
    answer = json.loads(docmill("check", "document", bad, "--json").stdout)

    assert (False, None) == (answer["valid"], answer["value"])
    assert {("code", "loc", "message")} == {tuple(error) for error in answer["errors"]}
    assert ["meta", "language"] in [error["loc"] for error in answer["errors"]]


def test_what_check_prints_is_valid_again(docmill: Any, good: Path) -> None:
    value = json.loads(docmill("check", "document", good, "--json").stdout)["value"]

    again = json.loads(docmill("check", "document", "-", "--json", stdin=encoded(value)).stdout)

    assert value == again["value"]


def test_several_files_are_all_checked_and_summed_up(docmill: Any, good: Path, bad: Path) -> None:
    result = docmill("check", "document", bad, good)

    assert 3 == result.exit_code
    assert result.stdout.endswith(f"{good}: ok\n")
    assert "2 values checked: 1 valid, 1 not." in result.stderr


@pytest.mark.parametrize(
    ("problem", "says"),
    [("missing.json", "cannot be read: No such file or directory."), ("folder", "is a folder. Name the files in it")],
)
def test_an_unreadable_path_is_named_the_rest_is_checked_and_the_exit_code_is_2(
    docmill: Any, tmp_path: Path, good: Path, bad: Path, problem: str, says: str
) -> None:
    (tmp_path / "folder").mkdir()

    result = docmill("check", "document", tmp_path / problem, bad, good)

    assert 2 == result.exit_code
    assert f"{tmp_path / problem}: {says}" in result.stderr
    assert f"{good}: ok\n" in result.stdout


@pytest.mark.parametrize(
    "args", [(), ("document",), ("documnet", "x.json"), ("document", "-", "-"), ("document", "x", "--wrong")]
)
def test_wrong_usage_is_2(docmill: Any, args: tuple[str, ...]) -> None:
    assert 2 == docmill("check", *args).exit_code


def test_standard_input_is_a_dash(docmill: Any, document: dict[str, Any]) -> None:
    result = docmill("check", "document", "-", stdin=encoded(document))

    assert (0, "-: ok\n") == (result.exit_code, result.stdout)


@pytest.mark.parametrize("text", [b"", b"{", b"[1,", b"\xff\xfe{\x00}\x00", b'{"a": "\xff"}', b"{} {}", b"nonsense"])
def test_what_is_not_json_is_a_violation(docmill: Any, text: bytes) -> None:
    result = docmill("check", "document", "-", "--json", stdin=text)

    assert 3 == result.exit_code
    assert ["json_invalid"] == [error["code"] for error in json.loads(result.stdout)["errors"]]


@pytest.mark.parametrize("text", [b"null", b"7", b'"text"', b"[]", b"true"])
def test_json_of_another_shape_is_a_violation(docmill: Any, text: bytes) -> None:
    result = docmill("check", "document", "-", "--json", stdin=text)

    assert 3 == result.exit_code
    assert json.loads(result.stdout)["errors"]


def test_a_violation_at_the_root_says_so(docmill: Any) -> None:
    result = docmill("check", "document", "-", stdin=b"{")

    assert result.stdout.startswith("-: (root): json_invalid: ")


def test_jsonl_numbers_lines_and_skips_blank_ones(docmill: Any, document: dict[str, Any]) -> None:
    line = encoded(document)
    text = b"\n".join([BOM + line, b"", b"  \t\r", line + b"\r", b"{", line])

    result = docmill("check", "document", "-", "--jsonl", "--json", stdin=text)
    answers = [json.loads(line) for line in result.stdout.splitlines()]

    assert 3 == result.exit_code
    assert [(1, True), (4, True), (5, False), (6, True)] == [(a["line"], a["valid"]) for a in answers]


def test_jsonl_for_people_names_the_line(docmill: Any, document: dict[str, Any]) -> None:
    result = docmill("check", "document", "-", "--jsonl", stdin=encoded(document) + b"\n{\n")

    assert "-:1: ok" == result.stdout.splitlines()[0]
    assert result.stdout.splitlines()[1].startswith("-:2: (root): json_invalid: ")
    assert "2 values checked: 1 valid, 1 not." in result.stderr


def test_an_empty_jsonl_file_holds_no_value(docmill: Any) -> None:
    result = docmill("check", "document", "-", "--jsonl", stdin=b"\n\n")

    assert (0, "") == (result.exit_code, result.stdout)
    assert "0 values checked" in result.stderr


def test_a_byte_order_mark_is_tolerated(docmill: Any, document: dict[str, Any]) -> None:
    assert 0 == docmill("check", "document", "-", stdin=BOM + encoded(document)).exit_code


def test_strict_names_both_digests(docmill: Any) -> None:
    claimed, real = "0" * 64, hashlib.sha256(b"Hello").hexdigest()
    blob = {"type": "inline", "media_type": "text/plain", "base64": "SGVsbG8=", "sha256": claimed, "size": 5}

    lenient = docmill("check", "blob", "-", stdin=encoded(blob))
    strict = docmill("check", "blob", "-", "--strict", stdin=encoded(blob))

    assert (0, 3) == (lenient.exit_code, strict.exit_code)
    assert "inline_checksum_mismatch" in strict.stdout
    assert claimed in strict.stdout
    assert real in strict.stdout


def test_the_media_guard_takes_several_prefixes(docmill: Any, document: dict[str, Any]) -> None:
    asset = {
        "ref": document["ref"] | {"asset_id": "54cc8d65-a74a-4ef0-bca9-0fdb45eb3a0f"},
        "media_type": "image/png",
        "blob": document["blob"],
        "caption_method": "none",
        "created_at": document["created_at"],
        "checksum": document["checksum"],
    }
    text = encoded(asset)

    refused = docmill("check", "asset", "-", "--media-guard", "text/", stdin=text)
    allowed = docmill("check", "asset", "-", "--media-guard", "text/", "--media-guard", "image/", stdin=text)

    assert (3, 0) == (refused.exit_code, allowed.exit_code)
    assert "media_type_guard" in refused.stdout


def test_control_characters_of_a_document_do_not_reach_the_terminal(docmill: Any, document: dict[str, Any]) -> None:
    document["\x1b[31mfield\u202e"] = 1
    document["meta"]["language"] = "\x1b]0;title\x07"

    result = docmill("check", "document", "-", stdin=encoded(document))

    assert 3 == result.exit_code
    assert "\\x1b[31mfield\\u202e" in result.stdout
    assert not set("\x1b\x07\u202e") & set(result.stdout)


def test_a_file_name_that_is_not_utf8_is_shown_and_read(tmp_path: Path, document: dict[str, Any]) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.json"
    Path(os.fsdecode(path)).write_bytes(encoded(document))

    for flags in ([], ["--json"]):
        done = subprocess.run(
            [DOCMILL, "check", "document", path, *flags], capture_output=True, check=False, timeout=60
        )

        assert (0, b"") == (done.returncode, done.stderr)
        assert "caf\ufffd.json" in done.stdout.decode()


def test_values_over_the_limit_are_refused_not_read_on() -> None:
    with pytest.raises(Unreadable, match="larger than 4 bytes"):
        whole(io.BytesIO(b"12345"), limit=4)
    with pytest.raises(Unreadable, match="line 2 is longer than 4 bytes"):
        list(lines(io.BytesIO(b"123\n12345\n1\n"), limit=4))
    assert b"1234" == whole(io.BytesIO(b"1234"), limit=4)


def test_a_reader_that_leaves_early_causes_no_noise(tmp_path: Path, document: dict[str, Any]) -> None:
    path = tmp_path / "many.jsonl"
    path.write_bytes((encoded(document) + b"\n") * 2_000)

    for flags in ("", "--json"):
        command = f"'{DOCMILL}' check document --jsonl {flags} '{path}' | head -n 1"
        done = subprocess.run(
            ["bash", "-c", command + "; echo ${PIPESTATUS[0]}"], capture_output=True, check=True, timeout=60
        )

        assert b"" == done.stderr
        assert b"141" == done.stdout.splitlines()[-1]


def test_a_full_disk_is_said_plainly(good: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [DOCMILL, "check", "document", good], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )

    assert (1, b"Error: The output cannot be written: No space left on device.\n") == (done.returncode, done.stderr)


def test_a_stream_is_answered_line_by_line(document: dict[str, Any]) -> None:
    command = [DOCMILL, "check", "document", "-", "--jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(encoded(document) + b"\n")
        running.stdin.flush()

        assert b"-:1: ok\n" == read_line(running)


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_appear_on_a_terminal_only_and_can_be_turned_off(
    good: Path, env: dict[str, str], coloured: bool
) -> None:
    base = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    ours, theirs = pty.openpty()
    subprocess.run([DOCMILL, "check", "document", good], stdout=theirs, env=base | env, check=True, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 10_000)
    os.close(ours)
    piped = subprocess.run(
        [DOCMILL, "check", "document", good], stdout=subprocess.PIPE, env=base, check=True, timeout=60
    )

    assert coloured == (b"\x1b[" in shown)
    assert b"\x1b[" not in piped.stdout


def test_long_payloads_are_dumped_in_pieces_at_their_places(document: dict[str, Any]) -> None:
    def inline(size: int) -> dict[str, Any]:
        data = bytes([size % 251]) * size
        digest = hashlib.sha256(data).hexdigest()
        encoded_data = base64.b64encode(data).decode()
        return {"type": "inline", "media_type": "image/png", "base64": encoded_data, "sha256": digest, "size": size}

    def asset(blob: dict[str, Any]) -> dict[str, Any]:
        return {
            "ref": document["ref"] | {"asset_id": "54cc8d65-a74a-4ef0-bca9-0fdb45eb3a0f"},
            "media_type": "image/png",
            "blob": blob,
            "caption_method": "none",
            "created_at": document["created_at"],
            "checksum": document["checksum"],
        }

    document["ref"].pop("version", None)
    document |= {"blob": inline(3 << 20), "assets": [asset(inline(size)) for size in (2 << 20, 5, 1 << 21, 1 << 20)]}
    value = contracts.check("document", document).value

    pieces = list(dumped(value))

    assert value.model_dump_json().encode() == b"".join(pieces)
    assert (1 << 20) + 1 > max(map(len, pieces))
    assert value.assets[0].model_dump_json().encode() == b"".join(dumped(value.assets[0]))
    assert b"null" == b"".join(dumped(None))
