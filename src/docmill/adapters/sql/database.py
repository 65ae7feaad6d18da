"""A database runs operations: each one whole or not at all, and answers only after its commit."""

from __future__ import annotations

from typing import Protocol, TypeVar

from docmill.adapters.sql.statement import Op

T = TypeVar("T")


class Database(Protocol):
    dialect: str

    async def read(self, op: Op[T], *, tenant: str | None = None, snapshot: bool = False) -> T:
        """Run *op*, which changes nothing, beside the writers.

        Each statement sees what was committed before it. *snapshot*: all statements of *op* see the same state.
        """
        ...

    async def write(
        self,
        op: Op[T],
        *,
        tenant: str | None = None,
        durable: bool = True,
        lock_s: float | None = None,
        statement_s: float | None = None,
    ) -> T:
        """Run *op* in a transaction that can write. What it raises rolls it back and is raised here.

        With *tenant* it sees and touches that tenant's rows alone, where the database enforces that itself
        (PostgreSQL's row-level security); without one it works for all of them. Not *durable*: committed, but a power
        cut may undo it, unless anything durable was written later. Databases that many processes share may ignore the
        difference, and SQLite the limits: *lock_s* of waiting for a row lock, *statement_s* of one statement
        (migrations need more than the default).
        """
        ...

    async def script(self, text: str) -> None:
        """Run several statements without parameters (migrations)."""
        ...

    async def close(self) -> None: ...
