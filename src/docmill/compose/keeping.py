"""Where things are kept: rows, objects, twins, and the secret that signs links to them."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from docmill.adapters.libraries import Shelves
from docmill.adapters.libraries.disk import DiskLibrary
from docmill.adapters.libraries.objects import ObjectLibrary
from docmill.adapters.links.signed import SignedLinks
from docmill.adapters.sql.database import Database
from docmill.adapters.sql.sqlite import SqliteDatabase
from docmill.adapters.stores.folders import make_private, sync_folder
from docmill.adapters.stores.local import LocalStore
from docmill.core.errors import Invalid
from docmill.ports import Library, Links, Store
from docmill.settings import Settings

if TYPE_CHECKING:
    from docmill.adapters.libraries.tokens import MsalTokens


def open_database(settings: Settings, *, connections: int = 10) -> Database:
    if settings.database_url:
        from docmill.adapters.sql.postgres import PostgresDatabase

        return PostgresDatabase(settings.database_url, size=connections)
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    tighten_data(settings)
    return SqliteDatabase(settings.data / "docmill.db")


def open_store(settings: Settings) -> Store:
    url = settings.objects_url
    if url is None:
        return LocalStore(settings.data / "objects")
    if url.startswith("file://"):
        return LocalStore(Path(unquote(urlsplit(url).path)))
    from docmill.adapters.stores.s3 import CloudStore

    return CloudStore(url)


def links(settings: Settings, store: Store, app_url: str) -> Links:
    """A bucket signs its own links, unless workers cannot reach it; files are given out by this service."""
    if isinstance(store, LocalStore) or settings.object_links == "service":
        return SignedLinks(link_secret(settings), app_url)
    from docmill.adapters.links.presigned import PresignedLinks
    from docmill.adapters.stores.s3 import CloudStore

    assert isinstance(store, CloudStore)  # noqa: S101 - there are two kinds
    return PresignedLinks(store.sign)


def batch_links(settings: Settings) -> Links:
    """Under a secret of their own, so that no link is good for anything else."""
    return SignedLinks(hmac.digest(link_secret(settings), b"docmill batches", "sha256"), "", path="")


def link_secret(settings: Settings) -> bytes:
    """The secret of signed links and sessions: given, or made once and kept with the data.

    Processes that share no folder need the same one: the database's password is a secret that they all know.
    """
    if settings.secret:
        return settings.secret.get_secret_value().encode()
    if settings.is_distributed:
        return hmac.digest((settings.database_url or "").encode(), b"docmill links", "sha256")
    path = settings.data / "secret"
    # An empty one is what a power cut may leave, and would be no secret.
    if not path.exists() or not path.stat().st_size:
        _make_secret(path)
    return path.read_bytes()


def sealing_secrets(settings: Settings) -> list[bytes]:
    """What encrypts secrets in the database: the deployment's secret first, then those it may have had before.

    Without DOCMILL_SECRET it is the password of PostgreSQL, which all processes share and no dump contains, or for
    SQLite the file beside it.
    """
    found = []
    if settings.secret:
        found.append(settings.secret.get_secret_value().encode())
    if password := urlsplit(settings.database_url or "").password:
        salt = b"docmill data at rest"
        found.append(hashlib.scrypt(unquote(password).encode(), salt=salt, n=2**14, r=8, p=1, dklen=32))
    path = settings.data / "secret"
    if not found and (not path.exists() or not path.stat().st_size):
        _make_secret(path)
    if path.exists():
        found.append(path.read_bytes())
    return found


def tighten_data(settings: Settings) -> None:
    """Nobody but the service's own user reads the data folder; folders of older versions are tightened, too."""
    folder = settings.data
    make_private(folder)
    for path in (folder / "secret", folder / "onedrive.tokens", *folder.glob("docmill.db*")):
        make_private(path)


def _make_secret(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.touch(mode=0o600)
    with fresh.open("w") as file:
        file.write(token_urlsafe(48))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def libraries(settings: Settings, store: Store) -> Library:
    shelves: dict[str, Library] = {"": DiskLibrary((settings.library_root,)), "objects": ObjectLibrary(store)}
    if settings.onedrive:
        from docmill.adapters.libraries.graph import Graph
        from docmill.adapters.libraries.onedrive import OneDriveLibrary

        chosen = settings.onedrive
        graph = Graph(onedrive_tokens(settings), drive=chosen.drive, base=chosen.graph)
        shelves["onedrive"] = OneDriveLibrary(graph, chosen.root)
    return Shelves(shelves)


def onedrive_tokens(settings: Settings) -> MsalTokens:
    from docmill.adapters.libraries.tokens import App, MsalTokens

    chosen = settings.onedrive
    if chosen is None:
        raise Invalid("setting_invalid", name="onedrive", why="it is not set.")
    secret = chosen.client_secret.get_secret_value() if chosen.client_secret else ""
    keys = [one.hex() for one in sealing_secrets(settings)]
    if chosen.token_key:
        keys.insert(0, chosen.token_key.get_secret_value())
    app = App(chosen.client_id, chosen.tenant, secret, chosen.login)
    return MsalTokens(app, settings.data / "onedrive.tokens", key=keys[0], older=keys[1:])
