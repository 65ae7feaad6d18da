"""A database runs operations: each one whole or not at all, and answers only after its commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from docmill.adapters.sql.statement import Op

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one item of many: a value, or why there is none."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class Shared(Protocol):
    """An operation that many callers share, each with an item of their own."""

    def __call__(self, items: Sequence[Any], *, patient: bool) -> Op[list[Answer | None]]:
        """One answer for each item; nothing is written for one that failed. What it raises undoes all of them.

        Impatient, it waits for nobody else's row: None says that the item needs a transaction of its own. Patient, it
        has one item alone, and an answer for it.
        """
        ...


Later = Callable[[], Op[None]]
"""Work that was put off. It may be done once more than needed, or after a crash."""


class Database(Protocol):
    dialect: str
    puts_off: bool
    """Whether `write` knows *later*. A database that many processes share does not: they would have to ask each other
    before they look."""

    async def write(
        self,
        op: Op[T],
        *,
        tenant: str | None = None,
        patience_s: float | None = None,
        durable: bool = True,
        brief: bool = False,
        later: Later | None = None,
    ) -> T:
        """Run *op* in a transaction that can write. What it raises rolls it back and is raised here.

        With *tenant* it sees and touches that tenant's rows alone, where the database can hold to that by itself
        (PostgreSQL's row-level security); without one it works for all of them. *patience_s*: a statement
        may take longer than usual (migrations). Not *durable*: committed, but a power cut may undo it, unless anything
        durable was written later. A database that many share need not know the difference. *brief*: a few rows by their
        keys, so little work that it may be done at once, where its caller stands; its commit is waited for elsewhere.
        *later*: what *op* stores is only noted, and somebody has to put it in its place. That is done before any
        operation that does not say the same *later*, so that nobody sees the difference, and soon in any case. Whoever
        opens the database does what a crash left undone (`migrate`).
        """
        ...

    async def share(self, item: Any, op: Shared, *, tenant: str | None = None, durable: bool = True) -> Any:
        """Write *item* together with those of others who come at the same time; what *op* answers for it.

        Nobody waits for company that has not been there, and nobody's failure is another's. A caller that is cancelled
        while its item is being written learns of that when it is over: afterwards nothing of it is on the way.
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
