"""A twin that came as an archive becomes a folder: whole or not at all, and never over a person's edit."""

from __future__ import annotations

import json
import shutil
import zipfile
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from docmill.client.errors import TwinDrift, Unexpected

MANIFEST = ".docmill.json"


def unpack(archive: Path, target: Path, *, force: bool) -> Path:
    """Put the twin into *target*, beside where the original is or would be; the path of its Markdown."""
    fresh = target / f".docmill-{uuid4().hex}"
    try:
        folder, document = _extract(archive, fresh)
        place = target / folder
        if not force and (edited := _edited(place)):
            raise TwinDrift(edited)
        _keep_additions(place, fresh / folder)
        _swap(fresh / folder, place, fresh / "old")
        return place / document
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _extract(archive: Path, fresh: Path) -> tuple[str, str]:
    """Folder and name of the Markdown. An archive that would write elsewhere is none of docmill's."""
    fresh.mkdir(parents=True)
    try:
        with zipfile.ZipFile(archive) as packed:
            names = packed.namelist()
            if not names or not all(_is_inside(name) for name in names):
                raise Unexpected("the archive of the twin names files outside of it")
            for name in names:
                path = fresh / name
                path.parent.mkdir(exist_ok=True)
                with packed.open(name) as source, path.open("xb") as copy:
                    shutil.copyfileobj(source, copy)
        folder = names[0].split("/")[0]
        document = json.loads((fresh / folder / MANIFEST).read_bytes())["document"]
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, FileNotFoundError) as error:
        raise Unexpected(f"the archive of the twin cannot be read: {error}") from error
    return folder, str(document).split("/")[-1]


def _is_inside(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 2 and all(part not in ("", ".", "..") and "\\" not in part for part in parts)


def _edited(place: Path) -> list[str]:
    """Files of the twin there that are not as docmill wrote them."""
    try:
        files = json.loads((place / MANIFEST).read_bytes())["files"]
        known = {str(path).split("/")[-1]: str(digest) for path, digest in files.items()}
    except (OSError, ValueError, KeyError, AttributeError):
        return [place.name] if place.exists() and any(place.iterdir()) else []
    return [name for name, digest in known.items() if (place / name).is_file() and digest != _digest_of(place / name)]


def _digest_of(path: Path) -> str:
    with path.open("rb") as stream:
        digest = sha256()
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _keep_additions(place: Path, fresh: Path) -> None:
    """What people laid into the folder stays in it."""
    try:
        ours = {str(path).split("/")[-1] for path in json.loads((place / MANIFEST).read_bytes())["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return
    for path in place.iterdir():
        if path.name not in ours and path.name != MANIFEST and not (fresh / path.name).exists():
            if path.is_dir():
                shutil.copytree(path, fresh / path.name, symlinks=True)
            else:
                shutil.copy2(path, fresh / path.name, follow_symlinks=False)


def _swap(fresh: Path, place: Path, old: Path) -> None:
    if place.exists():
        place.rename(old)
    try:
        fresh.rename(place)
    except OSError:
        if old.exists():
            old.rename(place)
        raise
