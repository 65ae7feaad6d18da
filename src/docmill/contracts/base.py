"""What the contracts share: immutability, and a judgement that finds everything that is wrong at once."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError, SchemaValidator
from pydantic_core import core_schema as core

from .codes import ascii_safe, error, said
from .fields import MAX_FAULTS, Rule, one_of
from .mode import Mode, current

Loc = tuple[str | int, ...]
Fault = tuple[Loc, PydanticCustomError]


class _Unknown:
    """Stands for a field that is missing or invalid: nothing can be said about its relations."""

    def __getattr__(self, name: str) -> "_Unknown":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False


UNKNOWN = _Unknown()


def known(*values: object) -> bool:
    return all(value is not UNKNOWN for value in values)


def fault(code: str, *loc: str | int, **context: object) -> Fault:
    return loc, error(code, **context)


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong: a stable code, the place in the data, and a sentence for people."""

    code: str
    loc: Loc
    message: str

    @property
    def pointer(self) -> str:
        """The place as a JSON Pointer (RFC 6901)."""
        return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in self.loc)

    def as_dict(self) -> dict[str, object]:
        return {"code": self.code, "loc": list(self.loc), "message": self.message}


class Enough(Exception):
    """So much is wrong that the judgement stops."""


class Finding:
    """One judgement: its mode, and what it has found so far."""

    __slots__ = ("found", "mode")

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.found: list[Violation] = []

    def add(self, code: str, loc: Loc, message: str) -> None:
        if len(self.found) == MAX_FAULTS:
            raise Enough
        self.found.append(Violation(code, loc, ascii_safe(message)))

    def add_error(self, loc: Loc, wrong: PydanticCustomError | PydanticKnownError) -> None:
        self.add(wrong.type, loc, wrong.message())


def safe(keys: Loc) -> Loc:
    """*keys* out of foreign data as steps that every encoder accepts."""
    return tuple(ascii_safe(step) if isinstance(step, str) else step for step in keys)


Judge = Callable[[object, Loc, Finding], Any]
"""Gives the value in its normal form, or what is left of it once its faults are noted."""


class Contract(BaseModel):
    """An immutable value that reports all its errors at once, each with a stable code as its type."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def relations(cls, view: Any, mode: Mode) -> Iterable[Fault]:
        """What is wrong between the fields of *view*: a value, or what is left of a broken one."""
        del view, mode
        return ()

    def settled(self) -> Self:
        """The value once its parts have taken over what they inherit."""
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _judge(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        finding = Finding(current())
        try:
            value = handler(data)
        except ValidationError:
            with suppress(Enough):
                judged(cls, data, (), finding)
            _raise(cls, finding)
            raise
        _relate(cls, value, (), finding)
        _raise(cls, finding)
        return value.settled()


def _raise(cls: type[Contract], finding: Finding) -> None:
    lines = [InitErrorDetails(type=said(one.code, one.message), loc=one.loc, input=None) for one in finding.found]
    if lines:
        raise ValidationError.from_exception_data(cls.__name__, lines, hide_input=True)


def judged(cls: type[Contract], data: object, loc: Loc, finding: Finding) -> Any:
    """A value of *cls*, or what is left of *data* when something is wrong with it."""
    if isinstance(data, cls):
        _relate(cls, data, loc, finding)
        return data.settled()
    if not isinstance(data, dict):
        finding.add_error(loc, PydanticKnownError("model_type", {"class_name": cls.__name__}))
        return UNKNOWN
    already = len(finding.found)
    fields: dict[str, Any] = {}
    for name, judge, default in _judges(cls):
        if name in data:
            fields[name] = judge(data[name], (*loc, name), finding)
        elif default is None:
            finding.add("missing", (*loc, name), _MISSING)
            fields[name] = UNKNOWN
        else:
            fields[name] = default()
    if len(data) != len(fields) or not data.keys() <= fields.keys():
        _refuse_others(fields, data, loc, finding)
    if len(finding.found) > already:
        view = SimpleNamespace(**fields)
        _relate(cls, view, loc, finding)
        return view
    value: Contract = maker(cls)((fields, None, set(data)))
    _relate(cls, value, loc, finding)
    return value.settled()


def _relate(cls: type[Contract], view: Any, loc: Loc, finding: Finding) -> None:
    for place, wrong in cls.relations(view, finding.mode):
        finding.add_error((*loc, *place), wrong)


def _refuse_others(fields: dict[str, Any], data: dict[Any, Any], loc: Loc, finding: Finding) -> None:
    for key in data:
        if not isinstance(key, str):
            finding.add("invalid_key", (*loc, key if isinstance(key, int) else type(key).__name__), _INVALID_KEY)
        elif key not in fields:
            finding.add("extra_forbidden", (*loc, *safe((key,))), _EXTRA)


_MISSING = PydanticKnownError("missing").message()
_EXTRA = PydanticKnownError("extra_forbidden").message()
_INVALID_KEY = PydanticKnownError("invalid_key").message()


@cache
def _judges(cls: type[Contract]) -> tuple[tuple[str, Judge, Callable[[], object] | None], ...]:
    """For each field its judge, and what makes its default if it is not required."""
    return tuple((name, _judge_of(field), _default_of(field)) for name, field in cls.model_fields.items())


def _default_of(field: FieldInfo) -> Callable[[], object] | None:
    if field.is_required():
        return None
    return partial(field.get_default, call_default_factory=True) if field.default_factory else lambda: field.default


def _judge_of(field: FieldInfo) -> Judge:
    for marker in field.metadata:
        if isinstance(marker, Rule):
            return _by_rule(marker)
        if hasattr(marker, "judge"):
            return marker.judge  # type: ignore[no-any-return]
    annotation: Any = field.annotation
    if get_origin(annotation) is Literal:
        return _by_rule(one_of(*get_args(annotation)))
    return partial(judged, annotation)


def _by_rule(rule: Rule) -> Judge:
    explain = rule.explain

    def judge(raw: object, loc: Loc, finding: Finding) -> Any:
        try:
            return explain(raw)
        except (PydanticCustomError, PydanticKnownError) as wrong:
            finding.add_error(loc, wrong)
        except ValidationError as several:
            for line in several.errors(include_url=False, include_input=False, include_context=False):
                finding.add(line["type"], (*loc, *safe(line["loc"])), line["msg"])
        return UNKNOWN

    return judge


@cache
def plain_schema(cls: type[Contract]) -> CoreSchema:
    """The model's schema for data that is in order, without the explanation of errors that each model has by itself.

    The mode is the context of the validation. What it refuses is given to `judged`, which says why.
    """
    fields = {
        name: core.model_field(_with_default(_schema_of(field), field)) for name, field in cls.model_fields.items()
    }
    inner = core.model_fields_schema(fields, extra_behavior="forbid")
    model = core.model_schema(cls, inner, config=core.CoreConfig(hide_input_in_errors=True))
    if cls.relations.__func__ is Contract.relations.__func__:  # type: ignore[attr-defined]
        return model
    return core.with_info_after_validator_function(_check_relations, model)


def _check_relations(value: Contract, info: ValidationInfo[Mode]) -> Contract:
    for _, wrong in type(value).relations(value, info.context):
        raise wrong
    return value.settled()


def _schema_of(field: FieldInfo) -> CoreSchema:
    for marker in field.metadata:
        if hasattr(marker, "core"):
            return marker.core  # type: ignore[no-any-return]
    annotation: Any = field.annotation
    if get_origin(annotation) is Literal:
        return core.literal_schema(list(get_args(annotation)))
    return plain_schema(annotation)


def _with_default(schema: CoreSchema, field: FieldInfo) -> CoreSchema:
    if field.is_required():
        return schema
    if field.default_factory:
        return core.with_default_schema(schema, default_factory=field.default_factory)
    return core.with_default_schema(schema, default=field.default)


@cache
def maker(cls: type[Contract]) -> Callable[[tuple[dict[str, Any], None, set[str]]], Any]:
    """Makes a model of its fields, no extra ones, and the names of those that were given; judges nothing.

    That is what a model's schema expects of the schema of its fields, whose place `any` takes.
    """
    # Pydantic would put the model's own validators, which judge, back in place of ours.
    return SchemaValidator(core.model_schema(cls, core.any_schema()), _use_prebuilt=False).validate_python
