"""A document loader for LangChain (`pip install 'docmill[langchain]'`).

>>> DocmillLoader(["report.pdf", "notes.docx"]).load()  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document

from docmill.client import Client
from docmill.loaders.reading import Source, read


class DocmillLoader(BaseLoader):
    """Each file becomes one document of Markdown. Without *client*: the service of DOCMILL_URL and DOCMILL_API_KEY."""

    def __init__(self, sources: Source | Sequence[Source], *, client: Client | None = None, **wishes: Any) -> None:
        """*wishes* are those of `Client.submit`: engine, options, rule, ..."""
        self.sources = [sources] if isinstance(sources, Source) else list(sources)
        self.client = client
        self.wishes = wishes

    def lazy_load(self) -> Iterator[Document]:
        with self.client or Client() as client:
            for found in read(self.sources, client, **self.wishes):
                yield Document(found.markdown, metadata=found.facts)
