"""Object keys: where a user's files and a task's artifacts lie in the object store.

    users/<user>/raw/<project>/<uuid><ext>
    users/<user>/etl_artifacts/<project>/<task>/<attempt>/<name>

User ids are whatever the credential says (`auth0|123`, an e-mail address). As a segment they are percent-encoded, so
that distinct users have distinct prefixes and nobody's id reaches into somebody else's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from unicodedata import category, is_normalized
from urllib.parse import quote
from uuid import UUID

from docmill.core.access import LOCAL, Owner
from docmill.core.errors import BadRequest, Forbidden

MAX_KEY: Final = 500
MAX_USER_SEGMENT: Final = 128
MAX_PROJECT: Final = 2**63 - 1

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_EXTENSION = re.compile(r"[.][a-z0-9]{1,16}")
_ARTIFACT = re.compile(r"users/[^/]+/etl_artifacts/[0-9]{1,19}/([0-9]{1,18})/[^/]+/.")
_PROJECT = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class RawKey:
    """What the key of an uploaded file says."""

    user: str
    """The user as a segment; compare it with `belongs_to`, never by decoding."""
    project_id: int | None
    filename: str

    def belongs_to(self, user: str) -> bool:
        return self.user == user_segment(user)


def user_segment(user: str) -> str:
    """The id as one segment of a key: itself if it is plain, else percent-encoded; a long one ends in its hash."""
    if not user:
        raise BadRequest("key_invalid", why="the user id is empty")
    segment = _encode(user)
    if len(segment) <= MAX_USER_SEGMENT:
        return segment
    # '~' is always encoded, so that no other id can be spelled like a shortened one.
    digest = sha256(user.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{segment[: MAX_USER_SEGMENT - 1 - len(digest)]}~{digest}"


def tenant_prefix(tenant: str) -> str:
    """Where a tenant's objects lie. It stands before the keys on the wire, which name users only."""
    return f"tenants/{user_segment(tenant)}/"


def twin_owner_folder(who: Owner, *, is_single_user: bool) -> tuple[str, ...]:
    """Where in the library a user's twins lie. Only a local user who shares it with nobody has all of it."""
    if is_single_user and who == LOCAL.owner:
        return ()
    return user_segment(who.tenant), user_segment(who.user)


def user_prefix(user: str) -> str:
    return f"users/{user_segment(user)}/"


def raw_prefix(user: str) -> str:
    return f"{user_prefix(user)}raw/"


def raw_key(user: str, project_id: int, uuid: UUID | str, ext: str) -> str:
    """The key of an uploaded file. Of its name only a harmless extension is kept."""
    return check_key(f"{raw_prefix(user)}{_project(project_id)}/{uuid}{extension(ext)}")


def artifact_key(user: str, project_id: int, task_id: int, attempt: str, name: str) -> str:
    """The key of something that one attempt made. Attempts never share a key."""
    return check_key(f"{user_prefix(user)}etl_artifacts/{_project(project_id)}/{task_id:d}/{attempt}/{check_key(name)}")


def task_of_artifact(key: str) -> int | None:
    """The task whose attempt made this artifact, or None if it is not the key of one."""
    found = _ARTIFACT.match(key)
    return int(found[1]) if found else None


def extension(ext: str) -> str:
    """A lower-case extension with its dot, or nothing if it is not a plain one."""
    lowered = ext.lower()
    return lowered if _EXTENSION.fullmatch(lowered) else ""


def check_key(key: str) -> str:
    """The key itself, if it is safe to use everywhere; else BadRequest `key_invalid`."""
    if why := _flaw(key):
        raise BadRequest("key_invalid", why=why)
    return key


def owner_of_raw_key(key: str) -> RawKey | None:
    """Whose upload the key names, or None if it is not the key of an upload."""
    users, _, rest = check_key(key).partition("/")
    user, _, rest = rest.partition("/")
    raw, _, rest = rest.partition("/")
    if (users, raw) != ("users", "raw") or not rest:
        return None
    *folders, filename = rest.split("/")
    return RawKey(user, _project_of(folders), filename)


def own_raw_key(key: str, user: str) -> RawKey:
    """The same, for a key that must be the user's own; else Forbidden `key_not_yours`."""
    raw = owner_of_raw_key(key)
    if raw is None or not raw.belongs_to(user):
        raise Forbidden("key_not_yours", user=user_segment(user))
    return raw


def _encode(text: str) -> str:
    if _PLAIN.fullmatch(text) and text not in {".", ".."}:
        return text
    encoded = quote(text, safe="", errors="surrogatepass").replace("~", "%7E")
    return encoded.replace(".", "%2E") if text in {".", ".."} else encoded


def _flaw(key: str) -> str | None:
    if not key:
        return "it is empty"
    if len(key) > MAX_KEY:
        return f"it has more than {MAX_KEY} characters"
    is_plain = key.isascii() and key.isprintable()
    if not is_plain and not is_normalized("NFKC", key):
        return "it is not in Unicode normal form NFKC"
    if not is_plain and any(category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in key):
        return "it has control characters"
    if "\\" in key:
        return "it has a backslash"
    if not {"", ".", ".."}.isdisjoint(key.split("/")):
        return "it has an empty segment, '.' or '..'"
    return None


def _project(project_id: int) -> int:
    if not 0 <= project_id <= MAX_PROJECT:
        raise BadRequest("project_invalid")
    return project_id


def _project_of(folders: list[str]) -> int | None:
    if not folders or not _PROJECT.fullmatch(folders[0]):
        return None
    project_id = int(folders[0])
    return project_id if project_id <= MAX_PROJECT else None
