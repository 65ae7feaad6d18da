"""The canonical result of an ingestion: one document with everything that was taken out of it."""

from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError
from pydantic_core import core_schema as core

from .asset import Asset
from .base import UNKNOWN, Contract, Fault, Finding, Loc, fault, judged, known, plain_schema
from .blob import BlobLocator, checksum_faults
from .codes import shown
from .fields import (
    Checksum,
    CrawlTimestamp,
    CreatedAt,
    ExternalRef,
    Language,
    OptionalUri,
    OptionalUuid,
    Source,
    Tags,
    TenantId,
    Title,
    Uuid,
    Version,
    WorkflowId,
)
from .mode import Mode


class DocumentRef(Contract):
    """Names a document inside a tenant."""

    tenant_id: TenantId
    workflow_id: WorkflowId
    document_id: Uuid
    collection_id: OptionalUuid = None
    version: Version = None


class DocumentMeta(Contract):
    """Describes a document: title, language, tags, where it came from."""

    tenant_id: TenantId
    workflow_id: WorkflowId
    title: Title = None
    language: Language = None
    tags: Tags = Field(default_factory=list)
    origin_uri: OptionalUri = None
    crawl_timestamp: CrawlTimestamp = None
    external_ref: ExternalRef = Field(default_factory=dict, description="Ids of the document in other systems")


class EachAsset:
    """A list whose null counts as absent, like every optional field."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core.no_info_before_validator_function(_listed, handler(source))

    @property
    def core(self) -> CoreSchema:
        # The first broken asset is enough: the explanation looks at all of them.
        return core.list_schema(plain_schema(Asset), fail_fast=True)

    def judge(self, raw: object, loc: Loc, finding: Finding) -> Any:
        try:
            items = _listed(raw)
        except PydanticKnownError as wrong:
            finding.add_error(loc, wrong)
            return UNKNOWN
        return [judged(Asset, item, (*loc, index), finding) for index, item in enumerate(items)]


def _listed(raw: object) -> list[Any] | tuple[Any, ...]:
    if raw is None:
        return []
    if isinstance(raw, list | tuple):
        return raw
    raise PydanticKnownError("list_type")


class NormalizedDocument(Contract):
    """A document, its blob and its assets, consistent with one another."""

    ref: DocumentRef
    meta: DocumentMeta
    blob: BlobLocator
    checksum: Checksum
    created_at: CreatedAt
    source: Source = None
    assets: Annotated[list[Asset], EachAsset()] = Field(default_factory=list)

    @classmethod
    def relations(cls, view: Any, mode: Mode) -> Iterable[Fault]:
        for name in ("tenant", "workflow"):
            expected, actual = getattr(view.ref, f"{name}_id"), getattr(view.meta, f"{name}_id")
            if known(expected, actual) and expected != actual:
                context = {"actual": shown(actual), "expected": shown(expected)}
                yield fault(f"meta_{name}_mismatch", "meta", f"{name}_id", **context)
        if mode.strict:
            yield from checksum_faults("document", view)
        for index, asset in enumerate(view.assets):
            if known(asset.ref):
                yield from _asset_faults(view.ref, asset.ref, index)

    def settled(self) -> Self:
        """Assets without a collection take the document's."""
        collection = self.ref.collection_id
        if collection is None or all(asset.ref.collection_id is not None for asset in self.assets):
            return self
        # The value is still being built, so nobody has seen it; an asset may have been handed in and is copied.
        self.__dict__["assets"] = [_within(asset, collection) for asset in self.assets]
        return self


def _within(asset: Asset, collection: object) -> Asset:
    if asset.ref.collection_id is not None:
        return asset
    return asset.model_copy(update={"ref": asset.ref.model_copy(update={"collection_id": collection})})


def _asset_faults(document: Any, asset: Any, index: int) -> Iterable[Fault]:
    for name in ("tenant_id", "workflow_id", "document_id", "collection_id"):
        expected, actual = getattr(document, name), getattr(asset, name)
        if expected == actual or not known(expected, actual) or (name == "collection_id" and actual is None):
            continue
        context = {"actual": shown(str(actual)), "expected": shown(str(expected))}
        yield fault(f"asset_{name.removesuffix('_id')}_mismatch", "assets", index, "ref", name, **context)
