"""Where the bytes of a document or an asset are: in storage, elsewhere, or in the value itself."""

from collections.abc import Hashable, Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError
from pydantic_core import core_schema as core

from .base import UNKNOWN, Contract, Fault, Finding, Loc, fault, judged, known, plain_schema
from .codes import shown
from .fields import Base64, Kind, MediaType, OptionalSha256, Sha256, Size, Uri
from .mode import Mode
from .payload import decoded_digest, decoded_size


class FileBlob(Contract):
    """A payload in storage."""

    type: Literal["file"]
    uri: Uri = Field(description="Where the payload is stored")
    sha256: Sha256
    size: Size = Field(description="Bytes of the payload")


class InlineBlob(Contract):
    """A payload carried as base64, to be stored later."""

    type: Literal["inline"]
    media_type: MediaType
    base64: Base64 = Field(description="The payload in the standard alphabet, padded", repr=False)
    sha256: Sha256
    size: Size = Field(description="Bytes of the decoded payload")

    @classmethod
    def relations(cls, view: Any, mode: Mode) -> Iterable[Fault]:
        if not known(view.base64):
            return
        strict = mode.strict and known(view.sha256)
        size, digest = decoded_digest(view.base64) if strict else (decoded_size(view.base64), "")
        if known(view.size) and view.size != size:
            yield fault("inline_size_mismatch", "size", size=view.size, actual=size)
        if strict and view.sha256 != digest:
            yield fault("inline_checksum_mismatch", "sha256", sha256=view.sha256, actual=digest)


class ExternalBlob(Contract):
    """A payload that another system keeps."""

    type: Literal["external"]
    kind: Kind = Field(description="The protocol that reaches it")
    uri: Uri
    sha256: OptionalSha256 = None


Blob = FileBlob | InlineBlob | ExternalBlob
BLOBS: dict[str, type[FileBlob] | type[InlineBlob] | type[ExternalBlob]] = {
    "file": FileBlob,
    "inline": InlineBlob,
    "external": ExternalBlob,
}


class ByType:
    """Chooses the variant by `type`, so that errors are placed where the data has them, without the variant's name."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core.no_info_wrap_validator_function(
            lambda raw, _inner: _variant(raw).model_validate(raw), handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        variants = handler(schema)["anyOf"]
        mapping = {tag: variant["$ref"] for tag, variant in zip(BLOBS, variants, strict=True)}
        return {"oneOf": variants, "discriminator": {"propertyName": "type", "mapping": mapping}}

    @property
    def core(self) -> CoreSchema:
        variants: dict[Hashable, CoreSchema] = {tag: plain_schema(variant) for tag, variant in BLOBS.items()}
        return core.tagged_union_schema(variants, discriminator="type")

    def judge(self, raw: object, loc: Loc, finding: Finding) -> Any:
        try:
            variant = _variant(raw)
        except PydanticKnownError as wrong:
            finding.add_error(loc, wrong)
            return UNKNOWN
        return judged(variant, raw, loc, finding)


def _variant(raw: object) -> type[FileBlob] | type[InlineBlob] | type[ExternalBlob]:
    if isinstance(raw, FileBlob | InlineBlob | ExternalBlob):
        return type(raw)
    if not isinstance(raw, dict):
        raise PydanticKnownError("model_type", {"class_name": "BlobLocator"})
    if "type" not in raw:
        raise PydanticKnownError("union_tag_not_found", {"discriminator": "'type'"})
    tag = raw["type"]
    if not isinstance(tag, str) or tag not in BLOBS:
        expected = ", ".join(map(repr, BLOBS))
        context = {"discriminator": "'type'", "tag": shown(tag).strip("'"), "expected_tags": expected}
        raise PydanticKnownError("union_tag_invalid", context)
    return BLOBS[tag]


BlobLocator = Annotated[Blob, ByType()]


def checksum_faults(owner: str, view: Any) -> Iterable[Fault]:
    """In strict mode the owner's checksum is the digest of its blob."""
    sha256 = view.blob.sha256
    if not known(view.checksum, sha256):
        return
    if sha256 is None:
        yield fault(f"{owner}_checksum_missing", "blob", "sha256", checksum=view.checksum)
    elif sha256 != view.checksum:
        yield fault(f"{owner}_checksum_mismatch", "checksum", checksum=view.checksum, sha256=sha256)
