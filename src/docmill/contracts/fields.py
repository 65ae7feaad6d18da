"""The types of single fields.

Each carries its whole rule in Python: it normalises, and names what is wrong by code. Frequent fields also have a
Pydantic schema for values that are already normal; only what that refuses is given to the rule.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError, SchemaValidator
from pydantic_core import core_schema as core

from .codes import error, kind_of, shown
from .payload import Broken, decoded_size
from .text import clean, cut

MAX_INT = 2**63 - 1
MAX_URI = 4096
MAX_FAULTS = 10_000
"""No judgement reports more. It bounds the time and memory that a hostile value can take."""

RAW_FACTOR = 4
"""How much longer than its limit a text may be before normalising, which costs more than linear time."""

NAME = r"^(?:\.{0,2}[A-Za-z0-9_-]|\.{3})[A-Za-z0-9._-]*$"
SHA256 = r"^[0-9a-f]{64}$"
MEDIA_TYPE = r"^[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*$"
LANGUAGE = r"^(?=.*[A-Za-z])[A-Za-z0-9]{1,8}(?:-[A-Za-z0-9]{1,8})*$"
MAX_MEDIA_TYPE = 255
MAX_LANGUAGE = 255

_UTC_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|\+00:00)$"
_LINE = r"^[!-~]([ -~]*[!-~])?$"
"""Printable ASCII without blanks at the ends: text that cleaning leaves as it is."""

_name = re.compile(NAME.strip("^$"))
_sha256 = re.compile(SHA256.strip("^$"))
_media_type = re.compile(MEDIA_TYPE.strip("^$"))
_language = re.compile(LANGUAGE.strip("^$"))
_date_first = re.compile(r"\d{4}-\d\d-\d\d(?!\d)", re.ASCII)
_fraction = re.compile(r"(\.\d{6})(\d)\d*", re.ASCII)
_uuid = SchemaValidator(core.uuid_schema())
_datetime = SchemaValidator(core.datetime_schema())


@dataclass(frozen=True, slots=True)
class Rule:
    """What a field accepts: `explain` gives the normal form of every input, or says what is wrong."""

    explain: Callable[[object], Any]
    schema: JsonSchemaValue = field(default_factory=dict)
    normal: CoreSchema | None = None
    """Accepts only values that `explain` would return unchanged."""

    @property
    def core(self) -> CoreSchema:
        explaining = core.no_info_plain_validator_function(self.explain)
        return core.union_schema([self.normal, explaining], mode="left_to_right") if self.normal else explaining

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return self.core

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return dict(self.schema)

    def __hash__(self) -> int:
        return id(self)


def optional(rule: Rule, default: Callable[[], object] | None = None) -> Rule:
    """The same rule for a field that may be null, which counts as absent."""

    def explain(raw: object) -> object:
        if raw is None:
            return default() if default else None
        return rule.explain(raw)

    normal = core.nullable_schema(rule.normal) if rule.normal and not default else None
    return Rule(explain, {"anyOf": [rule.schema, {"type": "null"}]}, normal)


def string(raw: object) -> str:
    if not isinstance(raw, str):
        raise PydanticKnownError("string_type")
    return raw


def _fitting(raw: object, limit: int, code: str, **context: object) -> str:
    """*raw* cleaned, unless it is longer than *limit* then, or so long before that cleaning would be dear."""
    text = string(raw)
    value = clean(text) if len(text) <= RAW_FACTOR * limit else text
    if len(value) > limit:
        raise error(code, length=len(value), limit=limit, **context)
    return value


def _tenant(raw: object) -> str:
    if value := _fitting(raw, 128, "tenant_too_long"):
        return value
    raise error("tenant_empty")


def _workflow(raw: object) -> str:
    value = _fitting(raw, 128, "workflow_too_long")
    if not value:
        raise error("workflow_empty")
    if not _name.fullmatch(value):
        raise error("workflow_invalid_char", value=shown(value))
    return value


def _version(raw: object) -> str | None:
    value = _fitting(raw, 64, "version_too_long")
    if value and not _name.fullmatch(value):
        raise error("version_invalid", value=shown(value))
    return value or None


def _title(raw: object) -> str | None:
    return _fitting(raw, 256, "title_too_long") or None


def _language_tag(raw: object) -> str | None:
    text = string(raw)
    value = clean(text) if len(text) <= MAX_LANGUAGE else text
    if value and (len(value) > MAX_LANGUAGE or not _language.fullmatch(value)):
        raise error("language_invalid", value=shown(value))
    return value or None


def _uuid_of(raw: object) -> UUID:
    if isinstance(raw, UUID):
        return raw
    if not isinstance(raw, str):
        raise error("uuid_type", type=kind_of(raw))
    text = raw.strip()
    if not text:
        raise error("uuid_empty")
    try:
        return _uuid.validate_python(text)  # type: ignore[no-any-return]
    except ValidationError:
        raise error("uuid_invalid", value=shown(text)) from None


def _optional_uri(raw: object) -> str | None:
    text = string(raw)
    value = clean(text) if len(text) <= MAX_URI else text
    if len(value) > MAX_URI:
        raise PydanticKnownError("string_too_long", {"max_length": MAX_URI})
    return value or None


def _uri(raw: object) -> str:
    if value := _optional_uri(raw):
        return value
    raise error("uri_empty")


def is_name(text: str) -> bool:
    return _name.fullmatch(text) is not None


def is_language(text: str) -> bool:
    return _language.fullmatch(text) is not None


def is_media_type(text: str) -> bool:
    return _media_type.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    return _sha256.fullmatch(text) is not None


def digest(code: str) -> Rule:
    def explain(raw: object) -> str:
        value = string(raw)
        if not is_digest(value):
            raise error(code, value=shown(value))
        return value

    schema = {"type": "string", "pattern": SHA256, "description": "SHA-256 as 64 lower-case hex digits"}
    return Rule(explain, schema, core.str_schema(strict=True, pattern=SHA256))


def whole_number(negative: str) -> Rule:
    """An integer of 0 or more that JSON readers and SQL columns can hold."""

    def explain(raw: object) -> int:
        if isinstance(raw, float) and raw.is_integer():  # JSON knows one kind of number: 14.0 is 14
            raw = int(raw)
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise PydanticKnownError("int_type")
        if raw < 0:
            raise error(negative, value=shown(raw))
        if raw > MAX_INT:
            raise PydanticKnownError("less_than_equal", {"le": MAX_INT})
        return int(raw)

    normal = core.int_schema(strict=True, ge=0, le=MAX_INT)
    return Rule(explain, {"type": "integer", "minimum": 0, "maximum": MAX_INT}, normal)


def timestamp(naive: str) -> Rule:
    """A moment with a time zone, kept in UTC."""

    def explain(raw: object) -> datetime:
        value = raw if isinstance(raw, datetime) else _parsed(raw)
        if value.utcoffset() is None:
            raise error(naive, value=shown(value.isoformat()))
        try:
            return value.astimezone(UTC)
        except (OverflowError, ValueError) as fault:
            raise PydanticKnownError("datetime_parsing", {"error": str(fault)}) from None

    text = core.str_schema(strict=True, pattern=_UTC_MOMENT)
    moment = core.chain_schema([text, core.datetime_schema()])
    normal = core.no_info_after_validator_function(lambda value: value.replace(tzinfo=UTC), moment)
    return Rule(explain, {"type": "string", "format": "date-time"}, normal)


def _parsed(raw: object) -> datetime:
    if not isinstance(raw, str):
        raise PydanticKnownError("datetime_type")
    text = raw.strip()
    if not _date_first.match(text):
        raise PydanticKnownError("datetime_parsing", {"error": "a date as YYYY-MM-DD must come first"})
    # Pydantic would cut what is finer than a microsecond; it is rounded.
    fine = _fraction.search(text)
    try:
        value: datetime = _datetime.validate_python(_fraction.sub(r"\1", text, count=1))
        return value + timedelta(microseconds=1) if fine and fine[2] >= "5" else value
    except OverflowError as fault:
        raise PydanticKnownError("datetime_parsing", {"error": str(fault)}) from None
    except ValidationError as fault:
        reason = str(fault.errors(include_url=False, include_input=False)[0].get("ctx", {}).get("error", "not a date"))
        raise PydanticKnownError("datetime_parsing", {"error": reason}) from None


def _media(raw: object) -> str:
    text = string(raw)
    value = clean(text).lower() if len(text) <= MAX_MEDIA_TYPE else text
    if not value:
        raise error("media_type_empty")
    if len(value) > MAX_MEDIA_TYPE or not _media_type.fullmatch(value):
        raise error("media_type_invalid", value=shown(value))
    return value


def _base64(raw: object) -> str:
    value = string(raw).strip()
    try:
        decoded_size(value)
    except Broken as fault:
        raise error("base64_invalid", reason=str(fault)) from None
    return value


def _tags(raw: object) -> list[str]:
    if not isinstance(raw, list | tuple):
        raise error("tags_type", type=kind_of(raw))
    return sorted(set(gathered("tags", (((i,), item, _tag) for i, item in enumerate(raw)))) - {""})


def _tag(raw: object) -> str:
    if not isinstance(raw, str):
        raise error("tags_type", type=kind_of(raw))
    value = _fitting(raw, 64, "tag_too_long")
    if value and not _name.fullmatch(value):
        raise error("tag_invalid", value=shown(value))
    return value


def _external_ref(raw: object) -> dict[str, str]:
    if not isinstance(raw, dict):
        raise error("external_ref_type", type=kind_of(raw))
    if len(raw) > 16:
        raise error("external_ref_too_many", length=len(raw), limit=16)
    pairs = (((_step(pair[0]),), pair, _external_pair) for pair in raw.items())
    result: dict[str, str] = {}
    for key, value in gathered("external_ref", pairs):
        if key in result:
            raise error("external_ref_key_duplicate", key=shown(key))
        result[key] = value
    return result


def _step(key: object) -> str:
    return key if isinstance(key, str) else kind_of(key)


def _external_pair(pair: tuple[object, object]) -> tuple[str, str]:
    if not isinstance(pair[0], str) or not isinstance(pair[1], str):
        raise error("external_ref_type", type=f"{kind_of(pair[0])} with {kind_of(pair[1])}")
    key = _fitting(pair[0], 128, "external_ref_key_too_long")
    if not key:
        raise error("external_ref_key_empty")
    value = _fitting(pair[1], 512, "external_ref_value_too_long", key=shown(key))
    if not value:
        raise error("external_ref_value_empty", key=shown(key))
    return key, value


Step = tuple[tuple[str | int, ...], Any, Callable[[Any], Any]]


def gathered(title: str, steps: Iterable[Step]) -> list[Any]:
    """What every step makes of its input, or all their errors at once, each at its place."""
    values: list[Any] = []
    faults: list[InitErrorDetails] = []
    for place, raw, judge in steps:
        try:
            values.append(judge(raw))
        except (PydanticCustomError, PydanticKnownError) as fault:
            kind = fault if isinstance(fault, PydanticCustomError) else fault.type
            faults.append(InitErrorDetails(type=kind, loc=place, input=None))
            if len(faults) > MAX_FAULTS:
                break
    if faults:
        raise ValidationError.from_exception_data(title, faults)
    return values


def _number(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    try:
        return float(raw)
    except OverflowError:
        return math.inf


def _bbox(raw: object) -> list[float]:
    corners = [_number(item) for item in raw] if isinstance(raw, list | tuple) and len(raw) == 4 else []
    within = [value for value in corners if value is not None and 0 <= value <= 1]
    if len(within) != 4 or not (within[2] > within[0] and within[3] > within[1]):
        raise error("bbox_invalid", value=shown(raw))
    return within


def _upright(corners: list[float]) -> list[float]:
    if corners[2] > corners[0] and corners[3] > corners[1]:
        return corners
    raise ValueError("the second corner is not below and to the right of the first")


def _confidence(raw: object) -> float:
    value = _number(raw)
    if value is None:
        raise PydanticKnownError("float_type")
    if not 0 <= value <= 1:  # false for NaN, too
        raise error("caption_confidence_range", value=shown(raw))
    return value


def text_up_to(limit: int) -> Rule:
    """A describing text: never an error for its length, but cut to *limit* bytes."""
    note = f"Cut to {limit} bytes of UTF-8 at a character's border; NUL and lone surrogates are dropped."
    # No character takes more than four bytes, so a short text need not be measured.
    normal = core.str_schema(strict=True, max_length=limit // 4, pattern=r"^[^\x00]*$")
    return Rule(lambda raw: cut(string(raw), limit), {"type": "string", "description": note}, normal)


def one_of(*values: str) -> Rule:
    expected = " or ".join((", ".join(map(repr, values[:-1])), repr(values[-1])))

    def explain(raw: object) -> str:
        if not isinstance(raw, str) or raw not in values:
            raise PydanticKnownError("literal_error", {"expected": expected})
        return raw

    return Rule(explain, {"enum": list(values), "type": "string"}, core.literal_schema(list(values)))


def _line(limit: int) -> CoreSchema:
    return core.str_schema(strict=True, max_length=limit, pattern=_LINE)


_NAME_SCHEMA = {"type": "string", "pattern": NAME}
_blank_is_null = "Blank counts as null."

_uuid_rule = Rule(_uuid_of, {"type": "string", "format": "uuid"}, core.uuid_schema())
_uri_schema = {"type": "string", "minLength": 1, "maxLength": MAX_URI}

TenantId = Annotated[str, Rule(_tenant, {"type": "string", "minLength": 1, "maxLength": 128}, _line(128))]
_workflow_normal = core.str_schema(strict=True, max_length=128, pattern=NAME)
WorkflowId = Annotated[str, Rule(_workflow, {**_NAME_SCHEMA, "maxLength": 128}, _workflow_normal)]
Uuid = Annotated[UUID, _uuid_rule]
OptionalUuid = Annotated[UUID | None, optional(_uuid_rule)]
Version = Annotated[
    str | None,
    optional(Rule(_version, {**_NAME_SCHEMA, "maxLength": 64, "description": _blank_is_null})),
]
Title = Annotated[
    str | None,
    optional(Rule(_title, {"type": "string", "maxLength": 256, "description": _blank_is_null})),
]
Language = Annotated[
    str | None,
    optional(
        Rule(
            _language_tag,
            {"type": "string", "pattern": LANGUAGE, "description": f"Like BCP 47. {_blank_is_null}"},
        )
    ),
]
Tags = Annotated[
    list[str],
    optional(
        Rule(
            _tags,
            {"type": "array", "items": {**_NAME_SCHEMA, "maxLength": 64}, "description": "Sorted, without doubles."},
        ),
        list,
    ),
]
ExternalRef = Annotated[
    dict[str, str],
    optional(
        Rule(
            _external_ref,
            {
                "type": "object",
                "maxProperties": 16,
                "propertyNames": {"minLength": 1, "maxLength": 128},
                "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 512},
            },
        ),
        dict,
    ),
]
Uri = Annotated[str, Rule(_uri, _uri_schema, _line(MAX_URI))]
_optional_text = Rule(
    _optional_uri, {"type": "string", "maxLength": MAX_URI, "description": _blank_is_null}, _line(MAX_URI)
)
OptionalUri = Annotated[str | None, optional(_optional_text)]
CaptionModel = Annotated[str | None, optional(_optional_text)]
Sha256 = Annotated[str, digest("sha256_invalid")]
OptionalSha256 = Annotated[str | None, optional(digest("sha256_invalid"))]
Checksum = Annotated[str, digest("checksum_invalid")]
Size = Annotated[int, whole_number("size_negative")]
PageIndex = Annotated[int | None, optional(whole_number("page_index_negative"))]
MediaType = Annotated[
    str,
    Rule(
        _media,
        {"type": "string", "pattern": MEDIA_TYPE, "maxLength": MAX_MEDIA_TYPE},
        core.str_schema(strict=True, max_length=MAX_MEDIA_TYPE, pattern=MEDIA_TYPE),
    ),
]
Base64 = Annotated[str, Rule(_base64, {"type": "string", "contentEncoding": "base64"})]
CreatedAt = Annotated[datetime, timestamp("created_at_naive")]
CrawlTimestamp = Annotated[datetime | None, optional(timestamp("crawl_timestamp_naive"))]
_unit = core.float_schema(strict=True, allow_inf_nan=False, ge=0, le=1)
BBox = Annotated[
    list[float] | None,
    optional(
        Rule(
            _bbox,
            {
                "type": "array",
                "items": {"type": "number", "minimum": 0, "maximum": 1},
                "minItems": 4,
                "maxItems": 4,
                "description": "[x0, y0, x1, y1] from the top left, x1 > x0 and y1 > y0",
            },
            core.no_info_after_validator_function(
                _upright, core.list_schema(_unit, strict=True, min_length=4, max_length=4)
            ),
        )
    ),
]
Confidence = Annotated[float | None, optional(Rule(_confidence, {"type": "number", "minimum": 0, "maximum": 1}, _unit))]
Context = Annotated[str | None, optional(text_up_to(2048))]
OcrText = Annotated[str | None, optional(text_up_to(8192))]

TEXT_LIMITS = {"context_before": 2048, "context_after": 2048, "ocr_text": 8192, "text_description": 2048}

Kind = Annotated[Literal["http", "https", "s3", "gcs"], one_of("http", "https", "s3", "gcs")]
Source = Annotated[
    Literal["upload", "crawler", "integration", "other"] | None,
    optional(one_of("upload", "crawler", "integration", "other")),
]
CaptionMethod = Annotated[
    Literal["vlm_caption", "ocr_only", "manual", "none"], one_of("vlm_caption", "ocr_only", "manual", "none")
]
