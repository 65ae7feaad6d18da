"""A converter for Haystack (`pip install 'docmill[haystack]'`).

>>> DocmillConverter().run(sources=["report.pdf", "notes.docx"])["documents"]  # doctest: +SKIP
"""

from typing import Any

from haystack import Document, component

from docmill.client import Client
from docmill.loaders.reading import Source, read


@component
class DocmillConverter:
    """Each file becomes one document of Markdown. The service is that of *url*, or of DOCMILL_URL; the key is always
    read from DOCMILL_API_KEY, so that a saved pipeline holds no secret."""

    def __init__(self, url: str | None = None, wishes: dict[str, Any] | None = None) -> None:
        """*wishes* are those of `Client.submit`: engine, options, rule, ..."""
        self.url = url
        self.wishes = wishes

    @component.output_types(documents=list[Document])
    def run(self, sources: list[Source], meta: dict[str, Any] | None = None) -> dict[str, list[Document]]:
        with Client(self.url) as client:
            found = list(read(sources, client, **(self.wishes or {})))
        return {"documents": [Document(content=one.markdown, meta=one.facts | (meta or {})) for one in found]}
