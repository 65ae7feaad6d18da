"""A converter for Haystack (`pip install 'docmill[haystack]'`).

>>> DocmillConverter().run(sources=["report.pdf", "a/folder"])["documents"]  # doctest: +SKIP
"""

import mimetypes
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from haystack import Document, component
from haystack.dataclasses import ByteStream

from docmill.client import Client
from docmill.loaders.reading import Failure, Item, OnError, items_of, read


@component
class DocmillConverter:
    """Each file, and each `ByteStream`, becomes one document of Markdown. The service is that of *url*, or of
    DOCMILL_URL; the key is always read from DOCMILL_API_KEY, so that a saved pipeline holds no secret."""

    def __init__(
        self, url: str | None = None, wishes: dict[str, Any] | None = None, on_error: OnError = "collect"
    ) -> None:
        """*wishes* are those of `Client.submit`: engine, options, rule, ..."""
        self.url = url
        self.wishes = wishes
        self.on_error = on_error

    @component.output_types(documents=list[Document], failures=list[dict[str, str]])
    def run(
        self,
        sources: list[str | Path | ByteStream],
        meta: dict[str, Any] | list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """*meta* is for all sources, or a list with one for each. `failures` has source, code and message of each
        file that was left out."""
        failures: list[Failure] = []
        with Client(self.url) as client:
            items = _items(sources, meta)
            found = list(read(items, client, failures, on_error=self.on_error, **(self.wishes or {})))
        documents = [Document(content=one.markdown, meta=one.facts) for one in found]
        return {"documents": documents, "failures": [asdict(one) for one in failures]}


def _items(
    sources: list[str | Path | ByteStream], meta: dict[str, Any] | list[dict[str, Any]] | None
) -> Iterator[Item]:
    each = meta if isinstance(meta, list) else [meta or {}] * len(sources)
    if len(each) != len(sources):
        raise ValueError(f"meta has {len(each)} entries for {len(sources)} sources")
    for source, own in zip(sources, each, strict=True):
        if isinstance(source, ByteStream):
            yield _of_stream(source, own)
        else:
            yield from items_of(source, own)


def _of_stream(stream: ByteStream, meta: Mapping[str, Any]) -> Item:
    """Haystack's own components put the path of a file into the meta of its stream."""
    known = {**stream.meta, **meta}
    place = str(known.get("file_path") or known.get("file_name") or known.get("url") or "")
    name = Path(place).name or f"document{mimetypes.guess_extension(stream.mime_type or '') or ''}"
    return Item(place or name, name, stream.data, known)
