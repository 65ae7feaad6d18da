"""A database runs operations: each one whole or not at all, and answers only after its commit."""

from __future__ import annotations

from typing import Protocol, TypeVar

from docmill.adapters.sql.statement import Op

T = TypeVar("T")


class Database(Protocol):
    dialect: str

    async def write(self, op: Op[T], *, tenant: str | None = None, patience_s: float | None = None) -> T:
        """Run *op* in a transaction that can write. What it raises rolls it back and is raised here.

        With *tenant* it sees and touches that tenant's rows alone, where the database can hold to that by itself
        (PostgreSQL's row-level security); without one it works for all of them. *patience_s*: a statement
        may take longer than usual (migrations).
        """
        ...

    async def read(self, op: Op[T], *, tenant: str | None = None) -> T:
        """Run *op* on a snapshot, beside the writers."""
        ...

    async def glance(self, op: Op[T], *, tenant: str | None = None) -> T:
        """The same for an operation of one statement, which is its own snapshot."""
        ...

    async def peek(self, op: Op[T], *, tenant: str | None = None) -> T:
        """A glance at one row by its key: so little work that handing it to a thread would cost more than doing it."""
        ...

    async def script(self, text: str) -> None:
        """Run several statements without parameters (migrations)."""
        ...

    async def close(self) -> None: ...
