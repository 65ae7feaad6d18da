"""`docmill docs` and `docmill assets`: what the service has stored."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click

from docmill.cli import api as service
from docmill.cli.api import Api, json_option, url_option
from docmill.cli.failure import Trouble
from docmill.cli.output import plural, standard_output
from docmill.cli.table import short_time, write_fields, write_table

F = TypeVar("F", bound=Callable[..., Any])

DOCUMENTS = "/api/v1/documents"
ASSETS = "/api/v1/assets"
EXITS = "Exit codes: 0 done, 2 wrong usage or no service there, 4 the service refused."

version_option = click.option("--version", help="A version; default: the latest.")
limit_option = click.option("--limit", type=click.IntRange(1, 100), default=50, show_default=True, help="At most.")
cursor_option = click.option("--cursor", help="Go on after a page: its next_cursor.")
out_option = click.option(
    "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write; default: standard output."
)


def id_argument(name: str) -> Callable[[F], F]:
    return click.argument(name, type=click.UUID, metavar="ID")


@click.group()
def docs() -> None:
    """List, show, fetch and delete stored documents."""


@docs.command("list", epilog=EXITS)
@click.option("--collection", type=click.UUID, metavar="ID", help="Only documents of this collection.")
@limit_option
@cursor_option
@url_option
@json_option
def list_documents(collection: UUID | None, limit: int, cursor: str | None, url: str, as_json: bool) -> None:
    """List documents, newest first."""
    asked = {"collection_id": str(collection) if collection else None, "limit": limit, "cursor": cursor}
    page = service.run(url, lambda api: api.get(DOCUMENTS, **asked))
    with standard_output() as out:
        if as_json:
            out.json(page)
            return
        write_table(
            out, ("DOCUMENT", "VERSION", "ASSETS", "CREATED", "TITLE"), [_row(one) for one in page["documents"]]
        )
        if page["next_cursor"]:
            out.line(f"There are more: --cursor {page['next_cursor']}")


@docs.command("show", epilog=EXITS)
@id_argument("document_id")
@version_option
@url_option
@json_option
def show_document(document_id: UUID, version: str | None, url: str, as_json: bool) -> None:
    """Show a document. With --json it is printed whole, as its contract defines it."""
    found = service.run(url, lambda api: api.get(f"{DOCUMENTS}/{document_id}", version=version))
    with standard_output() as out:
        if as_json:
            out.json(found)
            return
        blob = {name: found["blob"].get(name) for name in ("uri", "sha256", "size")}
        rest = {"created_at": short_time(found["created_at"]), "source": found["source"], **blob}
        tags = ", ".join(found["meta"].get("tags") or ())
        meta = {name: found["meta"].get(name) for name in ("title", "language")}
        assets = plural(len(found["assets"]), "asset")
        write_fields(out, {**found["ref"], **meta, "tags": tags, **rest, "assets": assets})


@docs.command("versions", epilog=EXITS)
@id_argument("document_id")
@url_option
@json_option
def list_versions(document_id: UUID, url: str, as_json: bool) -> None:
    """List the versions of a document, newest first."""
    page = service.run(url, lambda api: api.get(f"{DOCUMENTS}/{document_id}/versions"))
    with standard_output() as out:
        if as_json:
            out.json(page)
            return
        write_table(out, ("DOCUMENT", "VERSION", "ASSETS", "CREATED", "TITLE"), [_row(one) for one in page["versions"]])


@docs.command("get", epilog=EXITS)
@id_argument("document_id")
@version_option
@click.option("--markdown", is_flag=True, help="What was read from it, instead of the original.")
@out_option
@url_option
def get_document(document_id: UUID, version: str | None, markdown: bool, out: Path | None, url: str) -> None:
    """Fetch the original of a document, or its Markdown."""
    if markdown:
        fetch_markdown(url, str(document_id), out, version=version)
    else:
        _fetch(url, f"{DOCUMENTS}/{document_id}/blob", out, version=version)


def fetch_markdown(url: str, document_id: str, out: Path | None, version: str | None = None) -> None:
    found = service.run(url, lambda api: api.get(f"{DOCUMENTS}/{document_id}", version=version))
    texts = [one["ref"]["asset_id"] for one in found["assets"] if one["media_type"] == "text/markdown"]
    if not texts:
        raise Trouble(f"The document {document_id} has no Markdown.")
    _fetch(url, f"{ASSETS}/{texts[0]}/blob", out, is_text=True)


@docs.command("page", epilog=EXITS)
@id_argument("document_id")
@click.argument("page", type=click.IntRange(min=1), metavar="N")
@version_option
@click.option("--width", type=click.IntRange(16, 2400), default=1200, show_default=True, help="In pixels.")
@out_option
@url_option
def get_page(document_id: UUID, page: int, version: str | None, width: int, out: Path | None, url: str) -> None:
    """Fetch page N, counted from 1, as a PNG image: of PDF files and images."""
    _fetch(url, f"{DOCUMENTS}/{document_id}/pages/{page}.png", out, version=version, width=width)


@docs.command("delete", epilog=EXITS)
@id_argument("document_id")
@click.option("--version", help="Only this version; default: all.")
@click.option("--hard", is_flag=True, help="Remove it for good, with its stored bytes.")
@url_option
def delete_document(document_id: UUID, version: str | None, hard: bool, url: str) -> None:
    """Hide a document; with --hard remove it for good."""
    asked = {"version": version, "hard": "true" if hard else None}
    service.run(url, lambda api: api.call("DELETE", f"{DOCUMENTS}/{document_id}", params=asked))


@click.group()
def assets() -> None:
    """List, show and fetch the images and tables of a document."""


@assets.command("list", epilog=EXITS)
@id_argument("document_id")
@limit_option
@cursor_option
@url_option
@json_option
def list_assets(document_id: UUID, limit: int, cursor: str | None, url: str, as_json: bool) -> None:
    """List the assets of a document's latest version, in order."""
    page = service.run(url, lambda api: api.get(f"{DOCUMENTS}/{document_id}/assets", limit=limit, cursor=cursor))
    with standard_output() as out:
        if as_json:
            out.json(page)
            return
        rows = [
            (one["ref"]["asset_id"], _page_number(one), one["media_type"], one["blob"].get("size"))
            for one in page["assets"]
        ]
        write_table(out, ("ASSET", "PAGE", "TYPE", "BYTES"), rows)
        if page["next_cursor"]:
            out.line(f"There are more: --cursor {page['next_cursor']}")


@assets.command("show", epilog=EXITS)
@id_argument("asset_id")
@url_option
@json_option
def show_asset(asset_id: UUID, url: str, as_json: bool) -> None:
    """Show an asset."""
    found = service.run(url, lambda api: api.get(f"{ASSETS}/{asset_id}"))
    with standard_output() as out:
        if as_json:
            out.json(found)
            return
        plain = {name: value for name, value in found.items() if not isinstance(value, dict)}
        write_fields(out, {**found["ref"], **plain, "uri": found["blob"].get("uri")})


@assets.command("get", epilog=EXITS)
@id_argument("asset_id")
@out_option
@url_option
def get_asset(asset_id: UUID, out: Path | None, url: str) -> None:
    """Fetch the bytes of an asset."""
    _fetch(url, f"{ASSETS}/{asset_id}/blob", out)


def _fetch(url: str, path: str, file: Path | None, *, is_text: bool = False, **params: Any) -> None:
    async def to_stdout(api: Api) -> None:
        await api.download(path, out.write, **params)

    async def to_file(api: Api) -> None:
        # Under another name until it is whole: who finds the file finds all of it.
        part = target.with_name(f"{target.name}.part")
        try:
            with part.open("wb") as stream:
                await api.download(path, stream.write, **params)
            part.replace(target)
        except OSError as error:
            raise Trouble(f"{target} cannot be written: {error.strerror or error}.") from error
        finally:
            part.unlink(missing_ok=True)

    if file is not None:
        target = file
        service.run(url, to_file)
        return
    if sys.stdout.isatty() and not is_text:
        raise click.UsageError("The bytes may be anything, and this is a terminal. Name a file with -o.")
    with standard_output() as out:
        service.run(url, to_stdout)


def _row(document: dict[str, Any]) -> tuple[Any, ...]:
    ref, meta = document["ref"], document["meta"]
    created = short_time(document["created_at"])
    return ref["document_id"], ref.get("version"), len(document["assets"]), created, meta.get("title")


def _page_number(asset: dict[str, Any]) -> int | None:
    index = asset.get("page_index")
    return None if index is None else index + 1
