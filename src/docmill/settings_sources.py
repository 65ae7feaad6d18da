"""Where the value of a setting comes from, and what to say when it cannot be used.

A value is a flag, an environment variable, a line of `docmill.toml` or the default. Environment variables hold lists
as `a,b` and tables as JSON; the file holds both in TOML's own way, and may hold them as text, too.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin
from urllib.parse import urlsplit, urlunsplit

from pydantic import AliasChoices, BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, InitSettingsSource

from docmill.core.errors import Invalid

FILE = "docmill.toml"
PREFIX = "DOCMILL_"
NOT_SETTINGS = frozenset({"DOCMILL_URL", "DOCMILL_API_KEY", "DOCMILL_WORKER_API_KEY"})
"""Variables of the commands that talk to a service, and of `docmill worker-server`."""
TEST_PREFIX = "DOCMILL_TEST_"
KUBERNETES = re.compile(r"DOCMILL_(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT(_\d+_\w+)?)")
"""Kubernetes gives such variables to every pod beside a Service of this name."""
MIN_SIMILARITY = 0.8
"""Of a misspelt name; from 0 to 1, as `difflib` measures it."""

_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")


@dataclass(frozen=True, slots=True)
class Origin:
    kind: Literal["flag", "environment", "file", "default"]
    place: str = ""
    """`--port`, `DOCMILL_PORT`, or `docmill.toml, line 3`."""

    def __str__(self) -> str:
        return self.place or self.kind


class EnvironmentSource(EnvSettingsSource):
    """Hands the text of a variable on as it is: `decode` reads it, whatever its source."""

    def prepare_field_value(self, field_name: str, field: FieldInfo, value: Any, value_is_complex: bool) -> Any:  # noqa: ARG002 - the library's signature
        return value


class FileSource(InitSettingsSource):
    """`docmill.toml` in the current folder."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        found = read_file()
        known = {alias for name, field in settings_cls.model_fields.items() for alias in _file_keys(name, field)}
        for key in found.values:
            if key.lower() not in known:
                raise _unknown(f"'{key}' ({found.place_of((key,))})", key, settings_cls.model_fields)
        super().__init__(settings_cls, found.values)


@dataclass(frozen=True)
class File:
    values: dict[str, Any]
    lines: Mapping[tuple[str, ...], int]

    def place_of(self, path: Sequence[str]) -> str:
        """The line of a value, or of the table around it."""
        for length in range(len(path), 0, -1):
            if line := self.lines.get(tuple(path[:length])):
                return f"{FILE}, line {line}"
        return FILE


def read_file() -> File:
    path = Path(FILE)
    try:
        text = path.read_text("utf-8")
        return File(tomllib.loads(text), _find_lines(text))
    except FileNotFoundError:
        return File({}, {})
    except UnicodeDecodeError as error:
        raise Invalid("settings_file_invalid", file=FILE, why=f"byte {error.start + 1} is not UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise Invalid("settings_file_invalid", file=FILE, why=_explain_syntax(str(error))) from error
    except OSError as error:
        raise Invalid("settings_file_invalid", file=FILE, why=f"{error.strerror}.") from error


def _explain_syntax(message: str) -> str:
    what, _, place = message.rstrip(")").partition(" (at ")
    return f'{place or "line 1"}: {what}. A line is such as: port = 9000, or: data = "/srv/docmill".'


def _find_lines(text: str) -> dict[tuple[str, ...], int]:
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _split_key(header[1])
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault(table + _split_key(key[1]), number)
    return lines


def _split_key(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def variables(name: str, field: FieldInfo) -> tuple[str, ...]:
    """The environment variables that set it, the one to recommend first."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        named = [str(choice).upper() for choice in reversed(alias.choices)]
        return tuple(dict.fromkeys([*named, f"{PREFIX}{name.upper()}"]))
    return (f"{PREFIX}{name.upper()}",)


def _file_keys(name: str, field: FieldInfo) -> set[str]:
    return {name} | {variable.lower() for variable in variables(name, field) if not variable.startswith(PREFIX)}


def find_origins(cls: type[BaseSettings], flags: Mapping[str, Any]) -> dict[str, Origin]:
    """Where each setting in force comes from."""
    file = read_file()
    in_file = {key.lower(): key for key in file.values}
    in_environment = {name.upper() for name, value in os.environ.items() if value}
    found = {}
    for name, field in cls.model_fields.items():
        variable = next((one for one in variables(name, field) if one in in_environment), None)
        key = next((in_file[one] for one in sorted(_file_keys(name, field)) if one in in_file), None)
        if name in flags:
            found[name] = Origin("flag", f"--{name.replace('_', '-')}")
        elif variable:
            found[name] = Origin("environment", variable)
        elif key:
            found[name] = Origin("file", file.place_of((key,)))
        else:
            found[name] = Origin("default")
    return found


def find_unknown_variables(cls: type[BaseSettings]) -> list[str]:
    """Variables with our prefix that set nothing."""
    known = {one for name, field in cls.model_fields.items() for one in variables(name, field)} | NOT_SETTINGS
    return sorted(
        name
        for name in map(str.upper, os.environ)
        if name.startswith(PREFIX)
        and name not in known
        and not name.startswith(TEST_PREFIX)
        and not KUBERNETES.fullmatch(name)
    )


def refuse_misspelt_variables(cls: type[BaseSettings]) -> None:
    """A variable that nobody knows may belong to another program; one that is almost ours is a mistake."""
    known = {one for name, field in cls.model_fields.items() for one in variables(name, field)}
    known = {one.removeprefix(PREFIX) for one in known}
    for name in find_unknown_variables(cls):
        if close := get_close_matches(name.removeprefix(PREFIX), known, 1, MIN_SIMILARITY):
            raise Invalid("setting_unknown", name=name, hint=f" Did you mean {PREFIX}{close[0]}?")


def decode(name: str, field: FieldInfo, value: Any) -> Any:
    """Lists may be written as `a,b` or as JSON, tables as JSON."""
    if not isinstance(value, str):
        return value
    if name == "port" and value.startswith("tcp://"):
        raise ValueError("Kubernetes sets it for a Service named docmill; set enableServiceLinks: false in the pod")
    if _is_list(field.annotation):
        text = value.strip()
        return _read_json(text, "a list such as a,b") if text.startswith("[") else _split_list(text)
    if _models_in(field.annotation):
        return _read_json(value, 'a JSON object such as {"key": "value"}')
    return value


def _split_list(text: str) -> list[str]:
    return [part for part in (part.strip() for part in text.split(",")) if part]


def _read_json(text: str, expected: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"it must be {expected}; as JSON it is broken at {place}: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"it must be {expected}; it is nested too deeply") from None


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is tuple


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """The tables that the value may be, or be made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (dict, Union, UnionType):
        return [model for part in get_args(annotation) for model in _models_in(part)]
    return []


def check_networks(values: Iterable[str]) -> None:
    for one in values:
        try:
            ip_network(one)
        except ValueError as error:
            example = "write addresses or networks such as 10.1.2.3,10.0.0.0/8"
            raise ValueError(f"'{one}' is not a network ({error}); {example}") from None


def check_hosts(values: Iterable[str]) -> None:
    for one in values:
        if "/" in one or " " in one:
            raise ValueError(f"'{one}' is not a host name; write names such as a.example.org,*.example.net, or *")


def explain(cls: type[BaseSettings], error: ValidationError, flags: Mapping[str, Any]) -> Invalid:
    """The first thing that is wrong, in one line: the setting, where its value stands, and what is allowed."""
    first = error.errors(include_input=False, include_url=False)[0]
    message = str(first["msg"]).removeprefix("Value error, ").rstrip(".")
    path = [str(part) for part in first["loc"]]
    if not path:
        # A check of several settings begins its message with the one to change.
        word = message.partition(" ")[0]
        path = [word] if word in cls.model_fields else []
    if not path:
        return Invalid("setting_invalid", name="mix", why=f"{message}.")
    names = {variable.lower(): name for name, field in cls.model_fields.items() for variable in variables(name, field)}
    path[0] = names.get(path[0].lower(), path[0])
    field = cls.model_fields[path[0]]
    origin = find_origins(cls, flags)[path[0]]
    place = read_file().place_of(path) if origin.kind == "file" else str(origin)
    if first["type"] == "extra_forbidden":
        known = [key for model in _models_in(field.annotation) for key in model.model_fields]
        return _unknown(f"'{'.'.join(path)}' ({place})", path[-1], known)
    why = _say_what_is_allowed(str(first["type"]), message, field if len(path) == 1 else None)
    return Invalid("setting_invalid", name=f"{'.'.join(path)} ({place})", why=why)


def _say_what_is_allowed(kind: str, message: str, field: FieldInfo | None) -> str:
    if kind == "string_pattern_mismatch" and "^https?://" in message:
        return "it must start with http:// or https://."
    if kind == "string_pattern_mismatch" and field is not None:
        return f"it must be one of: {str(field.description).rstrip('.')}."
    return f"{message}."


def _unknown(shown: str, key: str, known: Iterable[str]) -> Invalid:
    close = get_close_matches(key.lower(), list(known), 1, 0.6)
    hint = f" Did you mean '{close[0]}'?" if close else " docs/reference/settings.md lists all settings."
    return Invalid("setting_unknown", name=shown, hint=hint)


def show(name: str, value: Any) -> str:
    """For people to read; of a secret only that it is set."""
    if value in (None, (), {}):
        return "–"
    if isinstance(value, SecretStr):
        return "…"
    if isinstance(value, BaseModel):
        return json.dumps(_masked(value), ensure_ascii=False)
    if isinstance(value, dict):
        return json.dumps({key: _masked(one) for key, one in value.items()}, ensure_ascii=False)
    if name == "database_url":
        return urlsplit(str(value)).scheme + "://…"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else _without_user(str(value))


def _masked(table: BaseModel) -> dict[str, Any]:
    """What differs from the default. Options may hold anything, a key included: only their names are shown."""
    found = {name: getattr(table, name) for name in type(table).model_fields if name in table.model_fields_set}
    return {name: _masked_value(value) for name, value in found.items() if value is not None}


def _masked_value(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return "…"
    if isinstance(value, dict):
        return dict.fromkeys(value, "…")
    return value if isinstance(value, bool | int | float) else _without_user(str(value))


def _without_user(text: str) -> str:
    """An address without the name and password in it."""
    if "://" not in text or "@" not in text:
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return "…"
    return urlunsplit(parts._replace(netloc=f"…@{parts.netloc.rpartition('@')[2]}"))
