"""The base of request bodies."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """A body in which an unknown field is an error: misspelt or misplaced, it would silently change what is asked."""

    model_config = ConfigDict(extra="forbid")
