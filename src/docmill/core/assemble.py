"""Build the canonical document of a task: strict, complete, and the same each time it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from uuid import NAMESPACE_URL, UUID, uuid5

from docmill.contracts import (
    Asset,
    AssetRef,
    DocumentMeta,
    DocumentRef,
    FileBlob,
    NormalizedDocument,
    strict_mode,
)
from docmill.core.captions import Caption, Described, describe
from docmill.core.parsed import Figure, Parsed
from docmill.core.task import Task

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_TITLE = 256
MARKDOWN = "text/markdown"
NO_CAPTIONS: Mapping[str, Caption] = MappingProxyType({})


def document_id_of(tenant: str, task_id: int) -> UUID:
    """A task's document keeps its id over retries; each run is a version of its own."""
    return uuid5(NAMESPACE_URL, f"docmill:{tenant}:{task_id}")


def build_document(
    task: Task,
    parsed: Parsed,
    *,
    source: FileBlob,
    markdown: FileBlob,
    figure_uri: Callable[[str], str],
    captions: Mapping[str, Caption] = NO_CAPTIONS,
    least_confidence: float = 0.0,
) -> NormalizedDocument:
    """Everything is derived from the task and its artifacts, so that building twice gives equal documents."""
    document_id = document_id_of(task.tenant, task.id)
    created_at = EPOCH + timedelta(milliseconds=task.created_ms + task.run - 1)
    workflow_id = task.wishes.workflow_id
    whole = Asset(
        ref=_asset_ref(task, document_id, "document.md"),
        media_type=MARKDOWN,
        blob=markdown,
        caption_method="none",
        created_at=created_at,
        checksum=markdown.sha256,
    )
    figures = [
        _figure(
            task,
            document_id,
            figure,
            created_at,
            figure_uri(figure.name),
            describe(figure, captions.get(figure.name), least=least_confidence),
        )
        for figure in parsed.figures
    ]
    with strict_mode():
        return NormalizedDocument(
            ref=DocumentRef(
                tenant_id=task.tenant, workflow_id=workflow_id, document_id=document_id, version=str(task.run)
            ),
            meta=DocumentMeta(
                tenant_id=task.tenant,
                workflow_id=workflow_id,
                title=(parsed.title or task.filename)[:MAX_TITLE],
                language=parsed.language,
                external_ref={"task_id": str(task.id), "project_id": str(task.project_id)},
            ),
            blob=source,
            checksum=source.sha256,
            created_at=created_at,
            source="upload",
            assets=[whole, *figures],
        )


def _figure(task: Task, document_id: UUID, figure: Figure, created_at: datetime, uri: str, said: Described) -> Asset:
    return Asset(
        ref=_asset_ref(task, document_id, figure.name),
        media_type=figure.media_type,
        blob=FileBlob(type="file", uri=uri, sha256=figure.sha256, size=figure.size),
        page_index=figure.page_index,
        bbox=list(figure.bbox) if figure.bbox else None,
        context_before=figure.context_before or None,
        context_after=figure.context_after or None,
        ocr_text=figure.ocr_text or None,
        text_description=said.text,
        caption_method=said.method,
        caption_model=said.model,
        caption_confidence=said.confidence,
        created_at=created_at,
        checksum=figure.sha256,
    )


def _asset_ref(task: Task, document_id: UUID, name: str) -> AssetRef:
    return AssetRef(
        tenant_id=task.tenant,
        workflow_id=task.wishes.workflow_id,
        asset_id=uuid5(document_id, f"{task.run}/{name}"),
        document_id=document_id,
    )
