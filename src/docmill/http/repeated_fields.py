"""Forms of other products' clients: files, and fields that may come several times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from docmill.http.errors import validation
from docmill.http.uploads import Inbox

Model = TypeVar("Model", bound=BaseModel)


@dataclass
class RepeatedFields(Inbox):
    """The same form as for an upload; each field keeps all of its values."""

    lists: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, text: str) -> None:
        self.lists.setdefault(name, []).append(text)

    async def submit(self, submit: Callable[[str, str], Awaitable[int]]) -> list[int]:
        """Submit every file by its key and name; the ids of the tasks. If one could not be stored, none is started."""
        for file in self.files:
            if file.fault:
                raise file.fault
        ids = []
        for file in self.files:
            assert file.stored  # noqa: S101 - or it had a fault
            ids.append(await submit(file.stored.key, file.filename))
            file.used = True
        return ids


def check_fields(model: type[Model], fields: dict[str, Any]) -> Model:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise validation({**one, "loc": ("body", *one["loc"])} for one in error.errors()) from None
