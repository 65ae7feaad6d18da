"""Mounting puts a task's output into a table's value, at a JSON Pointer, under the document's stem.

    target is an object   target[stem] = value; the task's own entry is replaced, anything else there is a conflict
    target is an array    {stem: value} is appended, each time it is mounted (with *once*: the task's own is replaced)

Values are never changed in place: what is not on the way to the entry is shared with the old value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from docmill.core.errors import Conflict, NotFound
from docmill.core.pointer import Pointer, index_of, parse, render, resolve, shown

MountedBy = Callable[[str, str], int | None]
"""Which task mounted the entry at a pointer, if one did."""


@dataclass(frozen=True, slots=True)
class Mounted:
    data: Any
    path: str
    """The pointer to what was mounted."""
    pointer: str
    """The pointer to the object or array that holds it, always spelled the same."""
    entry: str
    """The key or index there."""


def mount(
    data: Any,
    pointer: str,
    stem: str,
    output: Any,
    *,
    task_id: int,
    mounted_by: MountedBy,
    once: bool = False,
) -> Mounted:
    """The table's new value. *once* makes mounting into an array repeatable, for a stage that may run again."""
    tokens = parse(pointer)
    place = render(tokens)
    target = resolve(data, tokens)
    value = unwrapped(stem, output)
    entry: str
    changed: dict[str, Any] | list[Any]
    match target:
        case dict():
            if stem in target and mounted_by(place, stem) != task_id:
                raise Conflict("mount_conflict", key=shown(stem), pointer=shown(place))
            entry, changed = stem, {**target, stem: value}
        case list():
            index = _own_index(target, place, task_id, mounted_by) if once else len(target)
            entry, changed = str(index), [*target[:index], {stem: value}, *target[index + 1 :]]
        case _:
            raise Conflict("pointer_not_container", pointer=shown(place))
    return Mounted(_with(data, tokens, changed), render((*tokens, entry)), place, entry)


def unwrapped(stem: str, output: Any) -> Any:
    """The output without its own stem, so that mounting it under the stem does not nest it twice."""
    if isinstance(output, dict) and output.keys() == {stem}:
        return output[stem]
    return output


def survives(old: Any, new: Any, pointer: str, entry: str) -> bool:
    """Whether a mounted entry is still there, unchanged, after somebody replaced the table's whole value."""
    tokens = (*parse(pointer), entry)
    try:
        return bool(resolve(old, tokens) == resolve(new, tokens))
    except NotFound:
        return False


def _own_index(target: list[Any], place: str, task_id: int, mounted_by: MountedBy) -> int:
    own = (index for index in range(len(target)) if mounted_by(place, str(index)) == task_id)
    return next(own, len(target))


def _with(data: Any, tokens: Pointer, changed: Any) -> Any:
    """A copy of *data* that has *changed* at the pointer; only the containers on the way are copied."""
    way = [data]
    for token in tokens:
        way.append(_child(way[-1], token))
    for parent, token in zip(reversed(way[:-1]), reversed(tokens), strict=True):
        copy = parent.copy()
        copy[token if isinstance(copy, dict) else index_of(token)] = changed
        changed = copy
    return changed


def _child(parent: Any, token: str) -> Any:
    return parent[token] if isinstance(parent, dict) else parent[index_of(token)]
