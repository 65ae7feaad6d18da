"""Keys keep users apart and never leave their prefix."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from docmill.core.errors import BadRequest, Forbidden
from docmill.core.keys import (
    MAX_KEY,
    artifact_key,
    check_key,
    extension,
    own_raw_key,
    owner_of_raw_key,
    raw_key,
    task_of_artifact,
    user_segment,
)

UUID_1 = UUID("11111111-2222-4333-8444-555555555555")
ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=300)
HOSTILE = st.sampled_from(
    ["..", ".", "../..", "．．／", "a/b", "%2e%2e", "a%2Fb", "a~b", "auth0|1", "\ud800", "ﬁ", "a" * 400]
)
USERS = ANY_TEXT | HOSTILE


def test_a_raw_key_is_the_one_of_the_seed() -> None:
    assert f"users/anna/raw/123/{UUID_1}.pdf" == raw_key("anna", 123, UUID_1, ".PDF")


def test_an_artifact_key_carries_the_attempt() -> None:
    assert "users/anna/etl_artifacts/7/42/3/parsed/page.md" == artifact_key("anna", 7, 42, 3, "parsed/page.md")


@pytest.mark.parametrize(
    ("segment", "user"),
    [
        ("anna", "anna"),
        ("A-b_c.1", "A-b_c.1"),
        ("auth0%7C123", "auth0|123"),
        ("a%40b.de", "a@b.de"),
        ("%2E%2E", ".."),
        ("%2E", "."),
        ("a%7Eb", "a~b"),
        ("%25", "%"),
        ("%E5%BC%A0", "张"),
    ],
)
def test_plain_users_stand_as_they_are_and_others_are_encoded(segment: str, user: str) -> None:
    assert segment == user_segment(user)


@given(USERS)
@example("\ud800" * 300)
def test_every_user_is_one_safe_segment(user: str) -> None:
    segment = user_segment(user)

    assert check_key(segment) == segment
    assert "/" not in segment
    assert len(segment) <= 128


@given(USERS, USERS)
@example("a" * 400, user_segment("a" * 400))
@example("a/b", "a%2Fb")
@example("ﬁ", "fi")
def test_distinct_users_have_distinct_segments(one: str, other: str) -> None:
    assert (one == other) == (user_segment(one) == user_segment(other))


@given(USERS, st.integers(0, 2**63 - 1), st.uuids(), st.text(max_size=20))
def test_a_raw_key_can_be_read_back_by_its_owner_only(user: str, project: int, uuid: UUID, ext: str) -> None:
    key = raw_key(user, project, uuid, ext)

    raw = own_raw_key(key, user)

    assert len(key) <= MAX_KEY
    assert (project, f"{uuid}{extension(ext)}") == (raw.project_id, raw.filename)
    with pytest.raises(Forbidden):
        own_raw_key(key, user + "x")


@pytest.mark.parametrize(
    ("kept", "ext"),
    [
        (".pdf", ".pdf"),
        (".docx", ".DOCX"),
        (".7z", ".7z"),
        ("", ""),
        ("", "pdf"),
        ("", ".pdf\n"),
        ("", "./x"),
        ("", "." + "a" * 17),
        ("", ".tar.gz"),
        ("", ".ü"),
        ("", ".İ"),
    ],
)
def test_only_a_plain_extension_is_kept(kept: str, ext: str) -> None:
    assert kept == extension(ext)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "./a",
        "a/..",
        "../a",
        "a/../b",
        "a\\b",
        "a\nb",
        "a\x00",
        "a\x85b",
        "a\u2028b",
        "．．／a",
        "ﬁ",
        "\ud800",
        "a" * 501,
    ],
)
def test_a_key_that_could_go_astray_is_refused(key: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_key(key)

    assert "key_invalid" == caught.value.code


@pytest.mark.parametrize("key", ["a", "users/a/raw/1/b.pdf", "a b/ü/报告.pdf", "...", "a" * 500])
def test_an_ordinary_key_passes_unchanged(key: str) -> None:
    assert key == check_key(key)


@pytest.mark.parametrize(
    ("user", "project", "filename", "key"),
    [
        ("anna", 123, "x.pdf", "users/anna/raw/123/x.pdf"),
        ("anna", None, "x.pdf", "users/anna/raw/x.pdf"),
        ("anna", None, "x.pdf", "users/anna/raw/inbox/x.pdf"),
        ("anna", None, "x.pdf", "users/anna/raw/007/x.pdf"),
        ("anna", None, "x.pdf", "users/anna/raw/9223372036854775808/x.pdf"),
        ("anna", None, "123", "users/anna/raw/123"),
        ("anna", 5, "x.pdf", "users/anna/raw/5/deep/er/x.pdf"),
    ],
)
def test_a_raw_key_tells_its_owner_project_and_name(user: str, project: int | None, filename: str, key: str) -> None:
    raw = owner_of_raw_key(key)

    assert raw is not None
    assert (user, project, filename) == (raw.user, raw.project_id, raw.filename)


@pytest.mark.parametrize(
    "key", ["users/anna/raw", "users/anna/etl_artifacts/1/x", "other/anna/raw/x", "x", "Users/a/raw/x"]
)
def test_other_keys_are_no_uploads(key: str) -> None:
    assert owner_of_raw_key(key) is None


@pytest.mark.parametrize(
    "key", ["users/bob/raw/1/x", "users/ann/raw/1/x", "users/a%6Ena/raw/1/x", "users/anna/etl_artifacts/1/x"]
)
def test_a_key_outside_my_uploads_is_forbidden(key: str) -> None:
    with pytest.raises(Forbidden) as caught:
        own_raw_key(key, "anna")

    assert "key_not_yours" == caught.value.code


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", ""])
def test_an_artifact_name_cannot_leave_its_attempt(name: str) -> None:
    with pytest.raises(BadRequest):
        artifact_key("anna", 1, 2, 3, name)


def test_an_artifact_tells_its_task_and_nothing_else_does() -> None:
    assert 42 == task_of_artifact(artifact_key("auth0|a/b", 7, 42, "0123456789ab", "assets/a.png"))
    for other in (
        "",
        "p.json",
        raw_key("anna", 7, UUID_1, ".pdf"),
        "users/a/etl_artifacts/7/x/1/p",
        "users/a/b/7/1/2/p",
    ):
        assert task_of_artifact(other) is None


def test_an_impossible_project_or_user_is_refused() -> None:
    with pytest.raises(BadRequest):
        raw_key("anna", -1, UUID_1, "")
    with pytest.raises(BadRequest):
        user_segment("")
