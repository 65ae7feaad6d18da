"""Keys that come twice in one JSON object."""

import json
from collections.abc import Iterator
from typing import Any

Loc = tuple[str | int, ...]


def keys_written(text: bytes) -> int:
    """At least as many keys as the valid JSON *text* has: a text that holds `":` counts, too.

    As many as were kept, and none came twice; more, and it takes a closer look.
    """
    return text.translate(None, b" \t\r\n").count(b'":')


def keys_kept(value: object) -> int:
    """How many keys all objects in *value*, which was parsed, have."""
    count = 0
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    while level:
        count += sum([len(part) for part in level if type(part) is dict])
        inside = [part.values() if type(part) is dict else part for part in level if part]
        level = [child for part in inside for child in part if type(child) is dict or type(child) is list]
    return count


def doubles(text: bytes) -> Iterator[tuple[Loc, str]]:
    """Where each key that occurs twice in its object is, and the key; *text* is valid JSON of modest depth."""
    doubled: dict[int, list[str]] = {}
    objects: list[dict[str, Any]] = []

    def gather(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            seen: set[str] = set()
            twice = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
            doubled[id(result)] = list(dict.fromkeys(twice))
            objects.append(result)  # keeps its id in use
        return result

    root = json.loads(text.decode(), object_pairs_hook=gather, parse_int=len, parse_float=len, parse_constant=len)
    stack: list[tuple[Loc, Any]] = [((), root)]
    while stack and doubled:
        loc, value = stack.pop()
        if isinstance(value, dict):
            for key in doubled.get(id(value), ()):
                yield (*loc, key), key
        steps = value.items() if isinstance(value, dict) else enumerate(value)
        stack += [((*loc, step), child) for step, child in steps if isinstance(child, dict | list)]
