"""A reader for LlamaIndex (`pip install 'docmill[llamaindex]'`).

>>> DocmillReader().load_data(["report.pdf", "a/folder"])  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from docmill.client import Client
from docmill.loaders.reading import Failure, OnError, Source, borrow, items_of, read

PLACES = ["source", "task_id", "document_id"]
"""Where a text comes from: good to keep, of no use to a model."""


class DocmillReader(BaseReader):
    """Each file becomes one document of Markdown. Without *client*: the service of DOCMILL_URL and DOCMILL_API_KEY."""

    def __init__(self, client: Client | None = None, *, on_error: OnError = "collect", **wishes: Any) -> None:
        """*wishes* are those of `Client.submit`: engine, options, rule, ... A *client* that is given stays open."""
        self.client = client
        self.on_error = on_error
        self.wishes = wishes
        self.failures: list[Failure] = []
        """Files that the last load left out."""

    def lazy_load_data(
        self, file: Source | Sequence[Source], extra_info: dict[str, Any] | None = None
    ) -> Iterator[Document]:
        self.failures = []
        with borrow(self.client) as client:
            items = items_of(file, extra_info)
            for found in read(items, client, self.failures, on_error=self.on_error, **self.wishes):
                yield Document(
                    text=found.markdown,
                    metadata=found.facts,
                    excluded_llm_metadata_keys=PLACES,
                    excluded_embed_metadata_keys=PLACES,
                )

    def load_data(self, file: Source | Sequence[Source], extra_info: dict[str, Any] | None = None) -> list[Document]:
        return list(self.lazy_load_data(file, extra_info))
