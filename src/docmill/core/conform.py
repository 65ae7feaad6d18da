"""A value is let in only if it keeps its contract; otherwise the error lists every place where it does not."""

from __future__ import annotations

from typing import Any

from docmill.contracts import check
from docmill.core.errors import Invalid


def conform(kind: str, data: bytes | str, *, strict: bool = True) -> Any:
    """The contract's value. Else Invalid `contract_violated`, whose fact `errors` is a list of {code, loc, message}."""
    checked = check(kind, data, strict=strict)
    if checked.errors:
        errors = [error.as_dict() for error in checked.errors]
        raise Invalid("contract_violated", count=len(errors), errors=errors)
    return checked.value
