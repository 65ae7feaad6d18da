"""Every code a contract check can report, each with its message, exactly once.

The codes are wire format: clients branch on them, so a code is never renamed. Those above the first rule come from
the reference of the contracts, those below are Pydantic's own names or judge the JSON text itself.
"""

from collections.abc import Mapping
from typing import Final

from pydantic_core import PydanticCustomError

_FIELD_CODES: Final = {
    "tenant_empty": "tenant_id must not be empty",
    "tenant_too_long": "tenant_id has {length} characters, at most {limit} are allowed",
    "workflow_empty": "workflow_id must not be empty",
    "workflow_invalid_char": "workflow_id {value} may hold only A-Z a-z 0-9 . _ - and must not be '.' or '..'",
    "workflow_too_long": "workflow_id has {length} characters, at most {limit} are allowed",
    "uuid_empty": "a UUID must not be empty",
    "uuid_invalid": "{value} is not a UUID",
    "uuid_type": "a UUID is given as a string, not as {type}",
    "version_too_long": "version has {length} characters, at most {limit} are allowed",
    "version_invalid": "version {value} may hold only A-Z a-z 0-9 . _ - and must not be '.' or '..'",
    "title_too_long": "title has {length} characters, at most {limit} are allowed",
    "language_invalid": "language {value} is not made of segments of 1 to 8 letters and digits joined by '-'",
    "tags_type": "tags are a list of strings, not {type}",
    "tag_invalid": "tag {value} may hold only A-Z a-z 0-9 . _ - and must not be '.' or '..'",
    "tag_too_long": "a tag has {length} characters, at most {limit} are allowed",
    "crawl_timestamp_naive": "crawl_timestamp {value} names no time zone",
    "external_ref_too_many": "external_ref has {length} entries, at most {limit} are allowed",
    "external_ref_key_empty": "a key of external_ref must not be empty",
    "external_ref_key_too_long": "a key of external_ref has {length} characters, at most {limit} are allowed",
    "external_ref_value_empty": "the value of external_ref {key} must not be empty",
    "external_ref_value_too_long": "the value of {key} has {length} characters, at most {limit} are allowed",
    "uri_empty": "uri must not be empty",
    "sha256_invalid": "sha256 {value} is not 64 lower-case hex digits",
    "checksum_invalid": "checksum {value} is not 64 lower-case hex digits",
    "size_negative": "size {value} must not be negative",
    "media_type_empty": "media_type must not be empty",
    "media_type_invalid": "media_type {value} is not type/subtype without parameters",
    "base64_invalid": "base64 is not valid: {reason}",
    "created_at_naive": "created_at {value} names no time zone",
    "page_index_negative": "page_index {value} must not be negative",
    "bbox_invalid": "bbox {value} is not [x0, y0, x1, y1] with values in 0 to 1, x1 > x0 and y1 > y0",
    "caption_confidence_range": "caption_confidence {value} is not in 0 to 1",
}

# Relationship codes: two fields, each fine alone, contradict each other.
_RELATION_CODES: Final = {
    "inline_size_mismatch": "size says {size} bytes, base64 decodes to {actual}",
    "inline_checksum_mismatch": "sha256 says {sha256}, the decoded bytes have {actual}",
    "media_type_mismatch": "media_type {media_type} differs from the inline blob's {blob_media_type}",
    "media_type_guard": "media_type {media_type} begins with none of {allowed}",
    "caption_model_required": "caption_method 'vlm_caption' needs caption_model",
    "caption_confidence_required": "caption_method 'vlm_caption' needs caption_confidence",
    "asset_checksum_missing": "the external blob has no sha256 to compare with checksum {checksum}",
    "asset_checksum_mismatch": "checksum {checksum} differs from the blob's sha256 {sha256}",
    "document_checksum_missing": "the external blob has no sha256 to compare with checksum {checksum}",
    "document_checksum_mismatch": "checksum {checksum} differs from the blob's sha256 {sha256}",
    "meta_tenant_mismatch": "meta says tenant {actual}, the document is of {expected}",
    "meta_workflow_mismatch": "meta says workflow {actual}, the document is of {expected}",
    "asset_tenant_mismatch": "the asset is of tenant {actual}, the document of {expected}",
    "asset_workflow_mismatch": "the asset is of workflow {actual}, the document of {expected}",
    "asset_document_mismatch": "the asset is of document {actual}, this is {expected}",
    "asset_collection_mismatch": "the asset is of collection {actual}, the document of {expected}",
}

_OWN_CODES: Final = {
    "external_ref_type": "external_ref is an object with string values, not {type}",
    "external_ref_key_duplicate": "two keys of external_ref are the same after normalising: {key}",
    "json_invalid": "the text is not JSON: {reason}",
    "json_too_deep": "the value is nested deeper than {limit} levels",
    "json_duplicate_key": "the key {key} occurs twice in one object",
    "errors_truncated": "more than {limit} things are wrong; the rest is not reported",
}

# Pydantic's own names; it words the message itself wherever it raises them.
_PYDANTIC_CODES: Final = {
    "missing": "Field required",
    "extra_forbidden": "Extra inputs are not permitted",
    "literal_error": "Input should be one of the allowed values",
    "union_tag_invalid": "Input tag {tag} found using 'type' does not match any of the expected tags: {expected_tags}",
    "union_tag_not_found": "Unable to extract tag using discriminator 'type'",
    "model_type": "Input should be a valid dictionary or instance of {class_name}",
    "invalid_key": "Keys should be strings",
    "string_type": "Input should be a valid string",
    "string_too_long": "String should have at most {max_length} characters",
    "int_type": "Input should be a valid integer",
    "less_than_equal": "Input should be less than or equal to {le}",
    "float_type": "Input should be a valid number",
    "list_type": "Input should be a valid list",
    "datetime_type": "Input should be a valid datetime",
    "datetime_parsing": "Input should be a valid datetime, {error}",
}

RELATIONS: Final = frozenset(_RELATION_CODES)
CODES: Final[Mapping[str, str]] = {**_FIELD_CODES, **_RELATION_CODES, **_OWN_CODES, **_PYDANTIC_CODES}
"""Code to message template."""

_SHOWN = 80


def shown(value: object) -> str:
    """*value* for a message: quoted, without characters that would break an encoder, and cut when long."""
    text = ascii_safe(value[: _SHOWN + 1]) if isinstance(value, str) else _plain(value)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return f"'{text}'" if isinstance(value, str) else text


def ascii_safe(text: str) -> str:
    """*text* without lone surrogates, which no encoder accepts."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_plain(item) for item in value[:5])}{', …' if len(value) > 5 else ''}]"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    return shown(value) if isinstance(value, str) else kind_of(value)


def kind_of(value: object) -> str:
    """What *value* is, in the words of JSON where it has one."""
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        dict: "an object",
        list: "an array",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)


def error(code: str, **context: object) -> PydanticCustomError:
    """The error with this code; values in *context* are worded with `shown` by the caller where they are foreign."""
    return said(code, CODES[code].format(**context), **context)


def said(code: str, message: str, **context: object) -> PydanticCustomError:
    """An error with a finished *message*: Pydantic would read braces in a value as placeholders."""
    # Codes are ours or Pydantic's, never input, so they may stand where a literal is expected.
    return PydanticCustomError(code, "{message}", {**context, "message": message})  # type: ignore[arg-type,unused-ignore]
