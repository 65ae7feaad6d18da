"""A document loader for LangChain (`pip install 'docmill[langchain]'`).

>>> DocmillLoader(["report.pdf", "a/folder"]).load()  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document

from docmill.client import Client
from docmill.loaders.reading import Failure, OnError, Source, borrow, items_of, read


class DocmillLoader(BaseLoader):
    """Each file becomes one document of Markdown. Without *client*: the service of DOCMILL_URL and DOCMILL_API_KEY."""

    def __init__(
        self,
        sources: Source | Sequence[Source],
        *,
        client: Client | None = None,
        on_error: OnError = "collect",
        **wishes: Any,
    ) -> None:
        """*wishes* are those of `Client.submit`: engine, options, rule, ... A *client* that is given stays open."""
        self.sources = sources
        self.client = client
        self.on_error = on_error
        self.wishes = wishes
        self.failures: list[Failure] = []
        """Files that the last load left out."""

    def lazy_load(self) -> Iterator[Document]:
        self.failures = []
        with borrow(self.client) as client:
            for found in read(items_of(self.sources), client, self.failures, on_error=self.on_error, **self.wishes):
                yield Document(found.markdown, metadata=found.facts)
