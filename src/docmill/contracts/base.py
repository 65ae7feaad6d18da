"""What the contracts share: immutability, and judging relationships even between what is left of a broken value."""

from collections.abc import Iterable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError

from .codes import error, said
from .fields import Rule
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


class Contract(BaseModel):
    """An immutable value that reports all its errors at once, each with a stable code as its type."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def relations(cls, view: Any, mode: Mode) -> Iterable[Fault]:
        """What is wrong between the fields of *view*: a value, or what `salvage` could keep of one."""
        del view, mode
        return ()

    def settled(self) -> Self:
        """The value once its parts have taken over what they inherit."""
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _judge(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            value = handler(data)
        except ValidationError as found:
            broken = [_again(line) for line in found.errors(include_url=False, include_input=False)]
            _raise(cls, broken, cls.relations(salvage(cls, data), current()))
            raise
        _raise(cls, [], cls.relations(value, current()))
        return value.settled()


def _again(line: Any) -> InitErrorDetails:
    kind = said(line["type"], line["msg"], line.get("ctx", {}))
    return InitErrorDetails(type=kind, loc=line["loc"], input=None)


def _raise(cls: type[Contract], broken: list[InitErrorDetails], faults: Iterable[Fault]) -> None:
    lines = broken + [InitErrorDetails(type=kind, loc=loc, input=None) for loc, kind in faults]
    if lines:
        raise ValidationError.from_exception_data(cls.__name__, lines, hide_input=True)


def salvage(cls: type[Contract], data: object) -> Any:
    """What can be known of *data*: every field that is valid by itself, and UNKNOWN for the others."""
    if isinstance(data, cls):
        return data
    if not isinstance(data, dict):
        return UNKNOWN
    return SimpleNamespace(**{name: _salvaged(field, name, data) for name, field in _fields(cls)})


@cache
def _fields(cls: type[Contract]) -> tuple[tuple[str, FieldInfo], ...]:
    return tuple(cls.model_fields.items())


def _salvaged(field: FieldInfo, name: str, data: dict[Any, Any]) -> Any:
    if name not in data:
        return UNKNOWN if field.is_required() else field.get_default(call_default_factory=True)
    return salvage_part(field.metadata, field.annotation, data[name])


def salvage_part(metadata: list[Any], annotation: Any, raw: object) -> Any:
    for marker in metadata:
        if isinstance(marker, Rule):
            try:
                return marker.explain(raw)
            except (PydanticCustomError, PydanticKnownError, ValidationError):
                return UNKNOWN
        if hasattr(marker, "salvage"):
            return marker.salvage(raw)
    if isinstance(annotation, type) and issubclass(annotation, Contract):
        return salvage(annotation, raw)
    return raw
